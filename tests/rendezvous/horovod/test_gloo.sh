#!/usr/bin/env bash
# Real Gloo contexts meet through musterd as Horovod's workers do: four processes, three contexts each, and an
# allreduce in each; again after a reset; and without one of them, which is killed.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../../..}
. "$source/tests/rendezvous/musterd.sh"
if ! command -v g++ >/dev/null || ! echo '#include <gloo/context.h>' | g++ -E -x c++ - >/dev/null 2>&1; then
    echo "SKIP: there is no g++ or no Gloo (in Debian: g++ libgloo-dev)"
    exit 77
fi
g++ -std=c++17 -O1 -Wall -Wextra -o "$folder/worker" "$source/tests/rendezvous/horovod/gloo_worker.cc" -lgloo -pthread
serve --store memory
job=127.0.0.1:$port/horovod/gloo.s-1
workers=
clean_up_workers() {
    for worker in $workers; do kill -9 "$worker" 2>/dev/null || true; done
    clean_up
}
trap clean_up_workers EXIT

# start NAME HOST:LOCAL_RANK RANKS: its lines come from a pipe, NAME.in.
start() {
    mkfifo "$folder/$1.in"
    IFS=, read -r rank size local_rank local_size cross_rank cross_size <<<"$3"
    HOROVOD_GLOO_RENDEZVOUS_ADDR=$job/$1 HOROVOD_GLOO_RENDEZVOUS_PORT=$port HOROVOD_HOSTNAME=${2%:*} \
        HOROVOD_RANK=$rank HOROVOD_SIZE=$size HOROVOD_LOCAL_RANK=$local_rank HOROVOD_LOCAL_SIZE=$local_size \
        HOROVOD_CROSS_RANK=$cross_rank HOROVOD_CROSS_SIZE=$cross_size \
        "$folder/worker" <"$folder/$1.in" >"$folder/$1.out" 2>"$folder/$1.err" &
    workers="$workers $!"
}

# expect_lines COUNT NAME...: waits until each has printed so many lines.
expect_lines() {
    count=$1
    shift
    for name in "$@"; do
        for _ in $(seq 1200); do
            [ "$(wc -l <"$folder/$name.out")" -lt "$count" ] || continue 2
            sleep 0.05
        done
        fail "$name has printed only: $(cat "$folder/$name.out" "$folder/$name.err")"
    done
}

curl -sS --fail-with-body -X PUT -d a:2,b:2 "http://$job/muster/plan" >"$folder/plan"
while read -r slot ranks _; do
    start "${slot/:/}" "$slot" "$ranks"
done < <(tail -n +2 "$folder/plan")
exec 3>"$folder/a0.in" 4>"$folder/a1.in" 5>"$folder/b0.in" 6>"$folder/b1.in"
for pipe in 3 4 5 6; do echo first >&$pipe; done
expect_lines 1 a0 a1 b0 b1
for pipe in 3 4 5 6; do echo reset >&$pipe; done
expect_lines 2 a0 a1 b0 b1

for worker in $workers; do last=$worker; done
kill -9 "$last"
{ wait "$last" || true; } 2>/dev/null
curl -sS --fail-with-body -X DELETE "http://$job/rank_and_size/b:1"
for pipe in 3 4 5; do echo reset >&$pipe; done
expect_lines 3 a0 a1 b0
exec 3>&- 4>&- 5>&- 6>&-
for worker in $workers; do
    [ "$worker" = "$last" ] || wait "$worker" || fail "a worker ended with $?: $(cat "$folder"/*.err)"
done
workers=

# HOST:LOCAL_RANK RANK SIZE and the sums of rank + 1 over global, local and cross.
diff - <(cat "$folder"/a0.out "$folder"/a1.out "$folder"/b0.out) <<'END' || fail "these are the sums"
a:0 0 4 10 3 3
a:0 0 4 10 3 3
a:0 0 3 6 3 3
a:1 1 4 10 3 3
a:1 1 4 10 3 3
a:1 1 3 6 3 1
b:0 2 4 10 3 3
b:0 2 4 10 3 3
b:0 2 3 6 1 3
END
stop 0
echo "PASS"
