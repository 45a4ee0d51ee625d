#!/usr/bin/env bash
# A timeline of links over RDMA has the stages of the device, too: memory is registered, written from and
# deregistered.
set -u
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}" || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# shellcheck disable=SC2016
tests/verbs/run --devices 1 --limit 100 -- bash -c '
    "$0/muster" bench allreduce -n 2 --transport verbs --bytes 1M --iterations 2 \
        --algorithm ring_chunked --timeline /dev/shm/t >/dev/shm/out || { cat /dev/shm/out; exit 1; }
    "$0/muster" timeline --json /dev/shm/t.1.0.json /dev/shm/t.1.1.json' "$MUSTER_BIN" >"$folder/out" 2>"$folder/errors"
status=$?
if [ $status != 0 ]; then
    cat "$folder/out" "$folder/errors"
    exit $status
fi
for rank in 0 1; do
    stages=$(grep "\"rank\":$rank," "$folder/out" | grep -oE '"stage":"[a-z ]+"' | cut -d'"' -f4 | xargs)
    for stage in call register send write receive reduce deregister; do
        [[ " $stages " == *" $stage "* ]] || {
            echo "rank $rank has no $stage: $stages"
            exit 1
        }
    done
    # Memory that is written from was registered, and all of it is deregistered.
    registered=$(grep "\"rank\":$rank," "$folder/out" | grep -oE '"stage":"register","spans":[0-9]+' | cut -d: -f3)
    let_go=$(grep "\"rank\":$rank," "$folder/out" | grep -oE '"stage":"deregister","spans":[0-9]+' | cut -d: -f3)
    [ "$registered" = "$let_go" ] || {
        echo "rank $rank has registered $registered times, and deregistered $let_go times"
        exit 1
    }
done
echo "the stages of RDMA stand in the timeline"
