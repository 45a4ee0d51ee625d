#!/usr/bin/env bash
# charlm, end to end: any number of workers reaches the same loss; workers come, die and leave during the
# training, and those that finish have the same weights.
set -eu
muster=$MUSTER_BIN/muster
charlm=$MUSTER_BIN/charlm
words=/usr/share/dict/american-english
for needed in "$muster" "$charlm" "$MUSTER_BIN/musterd"; do
    [ -x "$needed" ] || { echo "SKIP: there is no $(basename "$needed")"; exit 77; }
done
[ -f $words ] || { echo "SKIP: there is no $words (Debian's package wamerican has it)"; exit 77; }

scratch=$(mktemp -d)
launcher=
clean_up() {
    if [ -n "$launcher" ]; then
        kill -TERM "$launcher" 2>/dev/null || true
        sleep 0.2
        kill -TERM "$launcher" 2>/dev/null || true
    fi
    rm -rf "$scratch"
}
trap clean_up EXIT
fail() {
    echo "FAILED: $1"
    grep -Hv '^step ' "$scratch"/*.log | sed "s|^$scratch/||"
    exit 1
}
awk 'NR % 40 == 0' $words >"$scratch/words"
small=(--data "$scratch/words" --hidden 32 --layers 1 --embed 8 --context 6)

# One worker and four; 130 samples do not divide evenly among four.
for size in 1 4; do
    timeout 60 "$muster" run -n $size --no-prefix -- "$charlm" "${small[@]}" --steps 200 --batch 130 \
        --learning-rate 0.01 >"$scratch/same$size.log" 2>&1 || fail "$size workers: exit status $?"
    grep -q "the same on every worker ($size)" "$scratch/same$size.log" || fail "no digest of $size workers"
    [ "$(grep -c '^invented: ' "$scratch/same$size.log")" = 1 ] || fail "other ranks than 0 of $size print"
done
loss() { sed -n 's/^held-out loss \([0-9.]*\) .*/\1/p' "$scratch/$1.log"; }
echo "held-out loss: $(loss same1) by 1 worker, $(loss same4) by 4"
awk -v a="$(loss same1)" -v b="$(loss same4)" \
    'BEGIN {exit !(a > 1 && a < 3 && b > 0.99 * a && b < 1.01 * a)}' || fail "the losses differ by more than 1%"

# Grow, kill, leave. The pace makes the training last until all of that has happened.
log=$scratch/elastic.log
"$muster" run -n 3 --min 1 --max 5 --no-prefix --job charlm --token-file "$scratch/token" -- \
    "$charlm" "${small[@]}" --steps 500 --batch 60 --pace-ms 10 --commit-every 5 --report-every 5 >"$log" 2>&1 &
launcher=$!
# Waits until the last report is from a job of this size.
await_size() {
    for _ in $(seq 1200); do
        ! tail -n 1 "$log" | grep -q "  size $1  " || return 0
        kill -0 $launcher 2>/dev/null || fail "the job ended before it had $1 workers"
        sleep 0.05
    done
    fail "the job never had $1 workers"
}
# The workers' process ids, the longest running first.
workers() { pgrep -P $launcher -x charlm; }
await_size 3
url=$(grep -oE 'http://[0-9.]+:[0-9]+' "$log" | head -n 1)
"$muster" job resize charlm 5 --rendezvous "$url" --token-file "$scratch/token" >/dev/null
await_size 5
kill -KILL "$(workers | head -n 1)"
await_size 4
kill -TERM "$(workers | head -n 1)"
await_size 3
wait $launcher || fail "exit status $?"
launcher=
grep -q 'the same on every worker (3)' "$log" || fail "no digest of the 3 workers that finish"
[ "$(grep -c '^invented: ' "$log")" = 1 ] || fail "other ranks than 0 print at the end"
grep -E '^going on from|^held-out|^digest' "$log"
