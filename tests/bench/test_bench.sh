#!/usr/bin/env bash
# muster bench: its output, the options that it refuses, and that it leaves no process behind.
set -eu
muster=$MUSTER_BIN/muster
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# One object for each size, with exactly these fields.
number='[0-9.e+-]+'
check_json() {
    local collective=$1 transport=$2 ranks=$3 hosts=$4 bytes=$5
    shift 5
    local memory='[0-9]+'
    [ "$transport" != inproc ] || memory=null # ranks are threads
    "$muster" bench "$collective" -n "$ranks" --hosts "$hosts" --transport "$transport" \
        --iterations 3 --json "$@" >"$folder/json" 2>"$folder/errors" || fail "$(cat "$folder/errors")"
    for size in ${bytes//,/ }; do
        grep -qE "^\{\"collective\":\"$collective\",\"algorithm\":\"[a-z_]+\",\"transport\":\"$transport\",\"ranks\":$ranks,\"hosts\":$hosts,\"shape\":null,\"bytes\":$size,\"iterations\":3,\"p50_us\":$number,\"p99_us\":$number,\"min_us\":$number,\"max_us\":$number,\"first_us\":$number,\"spread\":$number,\"algbw_GBps\":$number,\"busbw_GBps\":$number,\"predicted_us\":$number,\"memory_bytes\":$memory\}$" "$folder/json" ||
            fail "$collective over $transport, $size bytes: $(cat "$folder/json")"
    done
    [ "$(wc -l <"$folder/json")" = "$(wc -w <<<"${bytes//,/ }")" ] || fail "lines: $(cat "$folder/json")"
}

for transport in inproc tcp; do
    check_json allreduce $transport 3 2 4,65536,1048576 --bytes 4,64K,1M
    check_json allreduce $transport 2 1 4096 --bytes 4K --in-place --type int32 --op average
    check_json reduce_scatter $transport 3 1 1200 --bytes 1200
    check_json allgather $transport 3 1 1212 --bytes 1201 --type int32 --in-place
    check_json broadcast $transport 4 2 1024 --bytes 1K --type uint8
    check_json barrier $transport 3 1 0
done
# Every collective that has an algorithm; bench checks the results.
for collective in $("$muster" plan --list | cut -d' ' -f1 | sort -u); do
    for place in "" --in-place; do
        # shellcheck disable=SC2086
        "$muster" bench "$collective" -n 3 --hosts 2 --transport inproc --bytes 4,1200 --iterations 2 --json $place \
            >"$folder/json" 2>"$folder/errors" || fail "$collective $place: $(cat "$folder/errors")"
        grep -q "^{\"collective\":\"$collective\"" "$folder/json" || fail "$collective: $(cat "$folder/json")"
    done
done
check_json allreduce tcp 1 1 1024 --bytes 1K
check_json allreduce shm 2 1 65536 --bytes 64K --alloc
for place in "" --in-place --stream; do
    for transport in inproc tcp shm; do # a pretended GPU
        # shellcheck disable=SC2086
        MUSTER_NCCL=off LD_LIBRARY_PATH=$MUSTER_BIN/../tests/cuda_new "$muster" bench allreduce -n 2 --transport $transport \
            --device cuda $place --bytes 4,3M --iterations 2 >"$folder/out" 2>"$folder/errors" ||
            fail "--device cuda: $(cat "$folder/errors")"
        grep -q ", float32 sum, memory of GPUs" "$folder/out" || fail "--device cuda: $(cat "$folder/out")"
    done
done
"$muster" bench allreduce -n 2 --transport inproc --bytes 100K --iterations 1 --algorithm ring --compression int8 >"$folder/out"
grep -q ', float32 sum, compressed to int8$' "$folder/out" || fail "compression: $(cat "$folder/out")"
"$muster" bench allreduce -n 2 --transport inproc --bytes 4 --iterations 1 --reproducible >"$folder/out"
grep -q ', float32 sum, reproducible$' "$folder/out" || fail "reproducible: $(cat "$folder/out")"
"$muster" bench allreduce -n 2 --transport inproc --bytes 4 --iterations 1 --keep-input >"$folder/out"
grep -q ', float32 sum, in place, input kept$' "$folder/out" || fail "keep-input: $(cat "$folder/out")"
"$muster" bench broadcast -n 2 --transport inproc --bytes 4 --iterations 1 --finish-together >"$folder/out"
grep -q ', float32, finishing together$' "$folder/out" || fail "finish-together: $(cat "$folder/out")"
"$muster" bench allreduce -n 2 --transport inproc --bytes 4 --iterations 1 --json --figures >"$folder/json"
grep -qE '^\{"figures":\{"core":.*"host":\{"latency_us":' "$folder/json" || fail "figures: $(cat "$folder/json")"
[ "$(wc -l <"$folder/json")" = 2 ] || fail "lines: $(cat "$folder/json")"
"$muster" bench allreduce -n 2 --transport inproc --bytes 4 --iterations 1 --figures >"$folder/out"
grep -qE '^host +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$folder/out" || fail "figures: $(cat "$folder/out")"
check_json allreduce inproc 2 1 64 --bytes 64 --algorithm ring
check_json allreduce inproc 2 1 64 --bytes 64 --algorithm allreduce_ring
"$muster" bench pairwise_exchange -n 5 --transport inproc --bytes 1K --iterations 2 --json \
    --algorithm 'pairwise_exchange(steps=1),chosen' >"$folder/pairs" 2>"$folder/errors" || fail "$(cat "$folder/errors")"
grep -q '"algorithm":"pairwise_exchange(steps=1)"' "$folder/pairs" || fail "steps: $(cat "$folder/pairs")"
grep -q '"algorithm":"ring_whole"' "$folder/json" || fail "Gloo's name: $(cat "$folder/json")"

# The figures of a row are in their order, and the first call took time.
"$muster" bench allreduce -n 2 --transport inproc --bytes 4,64K --iterations 50 --json >"$folder/json"
python3 - "$folder/json" <<'EOF' || fail "figures of a row: $(cat "$folder/json")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 2
for row in rows:
    assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"] <= row["max_us"], row
    assert row["first_us"] > 0 and row["spread"] >= 0, row
    assert row["spread"] <= (row["max_us"] - row["min_us"]) / row["p50_us"] + 0.01, row
EOF
"$muster" bench allreduce -n 2 --transport inproc --bytes 4 --iterations 9 >"$folder/out"
grep -qE ' max us +first us +spread ' "$folder/out" || fail "columns: $(cat "$folder/out")"

# Ranges of sizes, and several algorithms: one object for each size and algorithm.
"$muster" bench allreduce -n 2 --hosts 2 --transport inproc --bytes 4..1K,4M..8M:2 --iterations 9 --json \
    --algorithm 'ring,chosen,hierarchical(local=ring,cross=ring)' --svg "$folder/svg" >"$folder/json"
sizes=$(grep -oE '"bytes":[0-9]+' "$folder/json" | cut -d: -f2 | uniq | xargs)
[ "$sizes" = "4 16 64 256 1024 4194304 8388608" ] || fail "sizes: $sizes"
[ "$(wc -l <"$folder/json")" = 21 ] || fail "lines: $(cat "$folder/json")"
[ "$(grep -c '"algorithm":"ring"' "$folder/json")" -ge 7 ] || fail "algorithms: $(cat "$folder/json")"
[ "$(grep -c '"iterations":9,' "$folder/json")" = 21 ] || fail "iterations: $(cat "$folder/json")"
[ "$(grep -o '<path class="line' "$folder/svg" | wc -l)" = 9 ] || fail "lines drawn: $(cat "$folder/svg")"
! command -v xmllint >/dev/null || xmllint --noout "$folder/svg" || fail "the picture is no XML"
# The tuned and the chosen algorithm are marked.
"$muster" bench allreduce -n 2 --transport inproc --bytes 4K --iterations 9 --algorithm tuned,chosen,ring >"$folder/out"
[ "$(grep -cE ' (tuned|chosen)( +fastest)?$' "$folder/out")" = 2 ] || fail "tuned: $(cat "$folder/out")"
# All algorithms that fit.
"$muster" bench allgather -n 3 --transport inproc --bytes 1200 --iterations 2 --algorithm all >"$folder/out"
[ "$(wc -l <"$folder/out")" -ge 5 ] || fail "all: $(cat "$folder/out")"
[ "$(grep -c ' fastest$' "$folder/out")" = 1 ] || fail "fastest: $(cat "$folder/out")"
status=0
"$muster" bench allreduce -n 2 --transport inproc --bytes 4 --iterations 1 --svg "$folder/no/svg" \
    >"$folder/out" 2>"$folder/errors" || status=$?
[ "$status $(wc -l <"$folder/errors")" = "1 1" ] || fail "--svg in no folder: $status, $(cat "$folder/errors")"
[ ! -s "$folder/out" ] || fail "it measures although it cannot draw: $(cat "$folder/out")"

# Buffers that do not fit into memory are refused (ulimit ends the command if they are not).
kib=$(sed -nE 's/^MemTotal: *([0-9]+) kB/\1/p' /proc/meminfo)
status=0
(ulimit -f 1000 && "$muster" bench allreduce -n 2 --alloc --bytes "${kib}K" >"$folder/out" 2>"$folder/errors") || status=$?
[ "$status $(wc -l <"$folder/errors")" = "1 1" ] || fail "no memory: $status, $(cat "$folder/errors")"
grep -qE 'the buffers of 2 ranks need at least [0-9.]+ GiB, and [0-9.]+ GiB of memory are available' "$folder/errors" ||
    fail "no memory: $(cat "$folder/errors")"

# Wrong options: exit status 2, and the message names the word.
refuse() {
    local word=$1 status=0
    shift
    "$muster" bench "$@" >"$folder/out" 2>"$folder/errors" || status=$?
    [ $status = 2 ] || fail "exit status $status for: $*"
    [ ! -s "$folder/out" ] || fail "output for: $*"
    grep -qF -- "$word" "$folder/errors" || fail "\"$word\" is not in: $(cat "$folder/errors")"
    [ "$(wc -l <"$folder/errors")" -le 2 ] || fail "too many lines for: $*"
}
refuse "-n" allreduce
refuse "collective" -n 2
refuse "\"alreduce\"" alreduce -n 2
refuse "\"0\"" allreduce -n 0
refuse "--device" allreduce -n 2 --device tpu
refuse "--stream" allreduce -n 2 --stream
refuse "\"12x\"" allreduce -n 2 --bytes 4,12x
refuse "\"\"" allreduce -n 2 --bytes 4,
refuse "\"12x\"" allreduce -n 2 --bytes 4..12x
refuse "\"1K\"" allreduce -n 2 --bytes 1K..4
refuse "\"1\"" allreduce -n 2 --bytes 4..1K:1
refuse "more than 64 sizes" allreduce -n 2 --bytes 1..64G:2,1..64G:2
refuse "\"ring,\"" allreduce -n 2 --algorithm ring,
refuse "\"rign\"" allreduce -n 2 --algorithm ring,rign
refuse "--svg" barrier -n 2 --svg "$folder/svg"
refuse "--hosts" allreduce -n 2 --hosts 3
refuse "\"1gb\"" allreduce -n 2 --hosts 2 --shape 1gb
refuse "--hosts 2" allreduce -n 2 --shape 1gbit
refuse "tcp" allreduce -n 2 --hosts 2 --shape 1gbit --transport inproc
refuse "\"udp\"" allreduce -n 2 --transport udp
refuse "\"0\"" allreduce -n 2 --connections 0
refuse "\"float8\"" allreduce -n 2 --type float8
refuse "\"xor\"" allreduce -n 2 --op xor
refuse "float16 has no operation bitwise_xor" allreduce -n 2 --type float16 --op bitwise_xor
refuse "\"rign\"" allreduce -n 2 --algorithm rign
refuse "--devices" allreduce -n 2 --devices rxe0
refuse "empty" allreduce -n 2 --transport verbs --devices rxe0,
refuse "exclude" allreduce -n 2 --iterations 3 --seconds 3

# start_long_run OPTIONS...: three ranks that are measuring when it returns.
start_long_run() {
    rm -f "$folder/run"
    "$muster" bench allreduce -n 3 --transport tcp --bytes 64K --seconds 60 "$@" >"$folder/run" 2>"$folder/errors" &
    parent=$!
    for _ in $(seq 500); do
        [ ! -s "$folder/run" ] || break
        sleep 0.02
    done
    children=$(pgrep -P $parent | xargs)
    [ "$(wc -w <<<"$children")" = 3 ] || fail "children: $children"
}
# False for a zombie, which waits for the process that adopts orphans.
runs() {
    kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}
# The sockets of the first rank.
sockets() {
    find "/proc/${children%% *}/fd" -lname 'socket:*' | wc -l
}
# --connections: two more to each of the two peers.
start_long_run
before=$(sockets)
kill $parent
wait $parent 2>/dev/null || true
start_long_run --connections 3
after=$(sockets)
[ $((after - before)) = 4 ] || fail "$before sockets, $after with --connections 3"
kill $parent
wait $parent 2>/dev/null || true

# A killed rank: one line, status 1, the other ranks end too.
start_long_run
kill -9 "$(cut -d' ' -f2 <<<"$children")"
status=0
wait $parent || status=$?
[ $status = 1 ] || fail "exit status $status after a killed rank"
[ "$(grep -vc '^muster: the ranks still ' "$folder/errors")" = 1 ] || fail "$(cat "$folder/errors")"
grep -qE 'rank [0-2] was killed by signal 9' "$folder/errors" || fail "$(cat "$folder/errors")"
for child in $children; do
    ! runs "$child" || fail "rank $child is still running"
done

# A rank that is stopped before anything is printed: a line says what the ranks are doing.
prints_what_ranks_do() {
    rm -f "$folder/run"
    "$muster" bench allreduce -n 2 --transport tcp --bytes 64M --iterations 1 >"$folder/run" 2>"$folder/errors" &
    parent=$!
    child=
    while [ -z "$child" ]; do
        child=$(pgrep -P $parent | tail -n 1)
        kill -0 $parent || fail "$(cat "$folder/errors")"
    done
    kill -STOP "$child"
    until grep -q '^muster: the ranks still ' "$folder/errors" || [ -s "$folder/run" ]; do
        kill -0 $parent || break
        sleep 0.1
    done
    kill -CONT "$child"
    wait $parent || fail "$(cat "$folder/errors")"
    grep -q '^muster: the ranks still ' "$folder/errors" # otherwise it was stopped too late
}
for _ in $(seq 20); do
    ! prints_what_ranks_do || break
done
grep -qE '^muster: the ranks still (start|fill their buffers.*)$' "$folder/errors" || fail "no line says what the ranks do: $(cat "$folder/errors")"

# A killed parent: no rank outlives it.
start_long_run
kill -9 $parent
wait $parent 2>/dev/null || true
for child in $children; do
    for _ in $(seq 500); do
        runs "$child" || break
        sleep 0.02
    done
    ! runs "$child" || fail "rank $child outlives its parent"
done
echo "bench prints, refuses and cleans up"
