#!/usr/bin/env bash
# muster bench step: the models' tensors, the fields that are printed, and what is refused. Results are checked by
# the command itself. No time is asserted.
set -eu
muster=$MUSTER_BIN/muster
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# check_model NAME TENSORS ELEMENTS FIRST LAST: the list, as the model's authors count it.
check_model() {
    "$muster" bench step --model "$1" --list >"$folder/list"
    [ "$(wc -l <"$folder/list")" = "$2" ] || fail "$1 has $(wc -l <"$folder/list") tensors, not $2"
    elements=$(awk '{sum += $1} END {print sum}' "$folder/list")
    [ "$elements" = "$3" ] || fail "$1 has $elements elements, not $3"
    [ "$(head -n 1 "$folder/list")" = "$4" ] || fail "$1 begins with $(head -n 1 "$folder/list")"
    [ "$(tail -n 1 "$folder/list")" = "$5" ] || fail "$1 ends with $(tail -n 1 "$folder/list")"
    [ "$(cut -d' ' -f2 "$folder/list" | sort -u | wc -l)" = "$2" ] || fail "$1 has a name twice"
}
check_model resnet50 161 25557032 "1000 fc.bias" "9408 conv1.weight"
check_model bert 206 110106428 "2 cls.seq_relationship.bias" "23440896 embeddings.word_embeddings.weight"
check_model gpt2 148 124439808 "768 ln_f.bias" "38597376 wte.weight"
check_model vgg16 32 138357544 "1000 classifier.6.bias" "1728 features.0.weight"
check_model ones:3 3 3 "1 one.0" "1 one.2"
grep -q '^9408 conv1.weight$' <("$muster" bench step --list) || fail "resnet50 is not the default"

# One object, with the fields of each side in their order, for every transport, order and kind of buffer.
number='[0-9.e+-]+'
check_json() {
    local transport=$1 ranks=$2 model=$3 expected=""
    shift 3
    "$muster" bench step --model "$model" -n "$ranks" --transport "$transport" --sides "$sides" --iterations 3 --json \
        "$@" >"$folder/json" 2>"$folder/errors" || fail "$(cat "$folder/errors")"
    for side in ${sides//,/ }; do
        expected+=",\"${side}_p50_us\":$number,\"${side}_p99_us\":$number,\"${side}_exposed_us\":$number,\"${side}_first_needed_us\":$number"
    done
    [ "$(wc -l <"$folder/json")" = 1 ] || fail "lines: $(cat "$folder/json")"
    grep -qE "^\{\"model\":\"$model\",\"tensors\":[0-9]+,.*\"transport\":\"$transport\",\"ranks\":$ranks,.*,\"iterations\":3$expected" "$folder/json" ||
        fail "$*: $(cat "$folder/json")"
}
sides=plain,each,started,engine,urgent
check_json tcp 2 ones:16
check_json shm 3 ones:7 --in-place
check_json tcp 3 ones:9 --hosts 2 --order shuffled --seed 7
grep -q '"order":"shuffled","seed":7,' "$folder/json" || fail "order and seed: $(cat "$folder/json")"
check_json shm 2 ones:5 --backward-ms 20 --order ready
python3 - "$folder/json" <<'END' || fail "a step that is fed over 20 ms: $(cat "$folder/json")"
import json, sys
row = json.load(open(sys.argv[1]))
for side in ("plain", "each", "started", "engine"):
    assert row[side + "_p50_us"] >= 20000, side
    assert row[side + "_exposed_us"] <= row[side + "_p50_us"] - 20000 * 0.75, side
    assert 0 < row[side + "_first_needed_us"] <= row[side + "_p50_us"], side
END
"$muster" bench step --model ones:4 -n 2 --iterations 2 >"$folder/out"
grep -q '^a step of ones:4: 4 tensors, 16 B of float32, 2 ranks on 1 host over shm$' "$folder/out" || fail "head: $(cat "$folder/out")"
grep -qE '^each +[0-9.]+ us ' "$folder/out" || fail "rows: $(cat "$folder/out")"

# In the steady state there is no agreement, and the tensors of each rank are recorded. A rank that the machine
# holds up for long enough deviates, so one of several runs has to do without.
is_steady() {
    "$muster" bench step --model ones:20 -n 2 --sides engine --iterations 50 --idle-seconds 1 --json --trace "$folder/trace" >"$folder/json"
    grep -qE '"agreement_messages":0.0,"operations":[0-9.]+,"deviations":0.0,"idle_cpu_percent":[0-9.e-]+,"idle_wake_ups":[0-9]+\}$' "$folder/json"
}
steady=
for _ in $(seq 10); do
    if is_steady; then
        steady=1
        break
    fi
done
[ -n "$steady" ] || fail "the engine's steady state: $(cat "$folder/json")"
"$muster" timeline "$folder/trace.1.0.json" "$folder/trace.1.1.json" --svg "$folder/svg" --step >"$folder/out"
[ "$(grep -c '^tensor on wire ' "$folder/out")" = 2 ] || fail "tensors are not recorded: $(cat "$folder/out")"
[ "$(grep -c '>one.19<' "$folder/svg")" = 2 ] || fail "tensors are not drawn: $(cat "$folder/svg")"

# Wrong options: exit status 2, and the message names the word.
refuse() {
    local word=$1 status=0
    shift
    "$muster" bench step "$@" >"$folder/out" 2>"$folder/errors" || status=$?
    [ $status = 2 ] || fail "exit status $status for: $*"
    [ ! -s "$folder/out" ] || fail "output for: $*"
    grep -qF -- "$word" "$folder/errors" || fail "\"$word\" is not in: $(cat "$folder/errors")"
    [ "$(wc -l <"$folder/errors")" -le 3 ] || fail "too many lines for: $*" # argp breaks its hint in two
}
refuse "-n" --model resnet50
refuse "\"0\"" -n 0
refuse "\"resnet\"" -n 2 --model resnet
refuse "\"ones:0\"" -n 2 --model ones:0
refuse "\"ones:4097\"" -n 2 --model ones:4097
refuse "\"ones:1x\"" -n 2 --model ones:1x
refuse "\"inproc\"" -n 2 --transport inproc
refuse "\"plian\"" -n 2 --sides each,plian
refuse "\"\"" -n 2 --sides plain,
refuse "plain is named twice" -n 2 --sides plain,each,plain
refuse "\"sorted\"" -n 2 --order sorted
refuse "--hosts" -n 2 --hosts 3
refuse "--hosts 2" -n 2 --shape 1gbit
refuse "exclude" -n 2 --iterations 3 --seconds 3
refuse "\"x\"" -n 2 x

# A killed rank: one line, status 1, no rank is left.
"$muster" bench step --model ones:16 -n 3 --transport tcp --seconds 60 >"$folder/out" 2>"$folder/errors" &
parent=$!
until [ "$(pgrep -c -P $parent)" = 3 ]; do
    kill -0 $parent || fail "it ended: $(cat "$folder/errors")"
done
children=$(pgrep -P $parent | xargs)
kill -9 "$(cut -d' ' -f2 <<<"$children")"
status=0
wait $parent || status=$?
[ $status = 1 ] || fail "exit status $status after a killed rank"
grep -qE '^muster: rank 1 was killed by signal 9' "$folder/errors" || fail "$(cat "$folder/errors")"
[ "$(wc -l <"$folder/errors")" = 1 ] || fail "$(cat "$folder/errors")"
for child in $children; do
    ! kill -0 "$child" 2>/dev/null || grep -q '^State:.Z' "/proc/$child/status" || fail "rank $child is still running"
done
echo "muster bench step prints, refuses and ends"
