#!/usr/bin/env bash
# tests/verbs/run itself: a command runs where there are RDMA devices, its output and status come back, a
# command in a served guest leaves nothing to the next one, and a guest ends with the process it is for.
set -u
export WORD="one  'two'"
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}" || exit 1
folder=$(mktemp -d)
mkdir "$folder/tmp"
export TMPDIR=$folder/tmp
trap 'rm -rf "$folder"' EXIT
failed=0
expect() { # WHAT CONDITION...
    local what=$1
    shift
    "$@" && return
    echo "not so: $what"
    failed=1
}
gone() { # PID: waits
    local try
    for ((try = 0; try < 300; try++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}

tests/verbs/run --devices 2 --limit 100 -- bash -c 'cat /sys/class/infiniband/*/ports/1/state
    echo "$WORD" >&2
    touch "$TMPDIR/written" /dev/shm/left
    ip link set eth0 down
    setsid sleep 1000 &
    exit 3' >"$folder/out" 2>"$folder/err"
status=$?
if [ $status = 77 ]; then
    cat "$folder/out"
    exit 77
fi
expect "the command's status comes back (3), not $status" [ $status = 3 ]
expect "two devices, both with a port that is up" [ "$(grep -c ACTIVE "$folder/out")" = 2 ]
expect "the environment goes along, and stderr comes back" [ "$(tail -n 1 "$folder/err")" = "$WORD" ]
expect "files are written in the guest only" [ -z "$(ls -A "$TMPDIR")" ]

if [ -n "${MUSTER_VERBS_SERVER-}" ]; then
    tests/verbs/run --devices 1 --limit 100 -- bash -c 'cat /sys/class/infiniband/*/ports/1/state
        ls /dev/shm
        ! pgrep -a sleep' >"$folder/out" 2>"$folder/err"
    expect "the next command finds no process of the one before, not status $?" [ $? = 0 ]
    expect "it has the device that it asks for, up, and finds no shared memory" \
        [ "$(cat "$folder/out")" = "4: ACTIVE" ]
fi

for options in "--devices 0" "--limit soon" "--nonsense" "--serve $folder/served" ""; do
    # shellcheck disable=SC2086
    tests/verbs/run $options >/dev/null 2>"$folder/wrong"
    expect "\"$options\" is refused" [ $? = 2 ]
done

# The rest boots guests of its own, and waits for none of them to be up.
unset MUSTER_VERBS_SERVER

# The processes: the one that was started, timeout, qemu.
tests/verbs/run -- sleep 100 >/dev/null 2>&1 &
runner=$!
qemu=
while [ -z "$qemu" ] && kill -0 $runner; do
    for child in $(pgrep -P $runner timeout); do
        qemu=$(pgrep -P "$child" qemu-system)
    done
done
kill -9 $runner
wait $runner 2>/dev/null
expect "the guest ends with the process that started it" gone "$qemu"
expect "no file is left" [ -z "$(ls -A "$TMPDIR")" ]

sleep 1000 &
watched=$!
tests/verbs/run --serve "$folder/served" --while $watched >/dev/null 2>"$folder/wrong" &
server=$!
qemu=
while [ -z "$qemu" ] && kill -0 $server; do
    qemu=$(pgrep -f "^qemu-system.*path=$folder/served/command")
done
kill $watched
expect "a served guest ends with the process it is for" gone "$qemu"
wait $server
expect "whoever starts it hears that it did not come up, not status $?" [ $? = 125 ]
tests/verbs/run --stop "$folder/served"
expect "no file of it is left" [ ! -e "$folder/served" ]

[ $failed = 0 ] || cat "$folder/out" "$folder/err"
exit $failed
