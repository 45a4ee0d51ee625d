#!/usr/bin/env bash
# charlm in one process: its output, and the errors for wrong arguments and files.
set -eu
charlm=$MUSTER_BIN/charlm
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset MUSTER_RENDEZVOUS
fail() {
    echo "FAILED: $1"
    cat "$scratch/out" "$scratch/errors"
    exit 1
}
# refuse STATUS TEXT ARGUMENTS...: expects that status, no output, and one line of errors with that text.
refuse() {
    local expected=$1 text=$2 status=0
    shift 2
    "$charlm" "$@" >"$scratch/out" 2>"$scratch/errors" || status=$?
    [ $status = "$expected" ] || fail "exit status $status for: $*"
    grep -qF -- "$text" "$scratch/errors" || fail "no \"$text\" for: $*"
    [ "$(cat "$scratch/out" "$scratch/errors" | wc -l)" = 1 ] || fail "more than one line for: $*"
}
refuse 2 "muster run -n 4 -- charlm"
refuse 2 "--steps 0" --steps 0
refuse 2 "--batch 12x" --batch 12x
refuse 2 "--seed -1" --seed=-1
refuse 2 "--layers 3" --layers 3
refuse 2 "--learning-rate nan" --learning-rate nan
refuse 2 "--data novel.txt" novel.txt
refuse 1 "$scratch/none: No such file" --alone --data "$scratch/none"
refuse 1 "$scratch: not a regular file" --alone --data "$scratch"
: >"$scratch/empty"
refuse 1 "$scratch/empty: is empty" --alone --data "$scratch/empty"
echo lonely >"$scratch/line"
refuse 1 "too few lines" --alone --data "$scratch/line"
if [ ! -e /usr/share/dict/american-english ]; then
    refuse 1 "wamerican" --alone
fi

# Bytes that are not text must not reach the terminal.
seq -f '%g words' 400 >"$scratch/numbers"
printf 'bell\a escape\033[31m half a character\303\n%.0s' $(seq 50) >>"$scratch/numbers"
train=(--alone --data "$scratch/numbers" --steps 60 --batch 20 --hidden 16 --embed 4 --context 4)
"$charlm" "${train[@]}" --report-every 20 >"$scratch/out" 2>"$scratch/errors" || fail "exit status $?"
[ "$(grep -cE '^step +(20|40|60) of 60  loss [0-9.]+  size 1  generation 0  +[0-9]+ samples/s$' "$scratch/out")" = 3 ] ||
    fail "not three reports"
grep -qE '^held-out loss [0-9.]+ nats a character$' "$scratch/out" || fail "no held-out loss"
iconv -f UTF-8 -t UTF-8 "$scratch/out" >/dev/null || fail "the output is not UTF-8"
! grep -q '[[:cntrl:]]' "$scratch/out" || fail "control characters in the output"

# The same seed gives the same weights and words, another seed other ones.
"$charlm" "${train[@]}" | grep -E '^(digest|invented)' >"$scratch/again"
grep -E '^(digest|invented)' "$scratch/out" | diff - "$scratch/again" || fail "the same seed gives other words"
"$charlm" "${train[@]}" --seed 2 | grep '^digest' >"$scratch/other"
! grep -qxFf "$scratch/other" "$scratch/again" || fail "another seed gives the same weights"
