#!/usr/bin/env bash
# tests/verbs/run itself: a command runs with RDMA devices, its output and status are returned, and
# nothing is left behind when all of it is killed.
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

tests/verbs/run --devices 2 --limit 100 -- bash -c 'cat /sys/class/infiniband/*/ports/1/state
    echo "$WORD" >&2
    touch "$TMPDIR/written"
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

for options in "--devices 0" "--limit soon" "--nonsense" ""; do
    # shellcheck disable=SC2086
    tests/verbs/run $options >/dev/null 2>"$folder/wrong"
    expect "\"$options\" is refused" [ $? = 2 ]
done

# The processes: the started one, timeout, qemu.
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
for ((i = 0; i < 300; i++)); do
    kill -0 "$qemu" 2>/dev/null || break
    sleep 0.1
done
expect "the guest dies with who started it" [ $i -lt 300 ]
expect "no file is left" [ -z "$(ls -A "$TMPDIR")" ]
[ $failed = 0 ] || cat "$folder/out" "$folder/err"
exit $failed
