#!/usr/bin/env bash
# An active RDMA device that is not used is named once for each host, where a job has several hosts. The
# device is pretended: sysfs is covered by a folder, in a mount namespace of this test.
set -u
cd "${MUSTER_SOURCE:-$(dirname "$0")/../../..}" || exit 1
bin=${MUSTER_BIN:-$PWD/build/release/bin}
if [ "${1:-}" != inside ]; then
    if ! unshare -m true 2>/dev/null; then
        echo "SKIP: pretending a device in sysfs needs root and a mount namespace"
        exit 77
    fi
    exec unshare -m bash "tests/worker/session/test_unused_devices.sh" inside
fi
mount -t tmpfs pretended /sys/class 2>/dev/null || {
    echo "SKIP: tmpfs cannot be mounted here"
    exit 77
}
mkdir -p /sys/class/infiniband/mlx5_7/ports/1
echo "4: ACTIVE" >/sys/class/infiniband/mlx5_7/ports/1/state
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset MUSTER_VERBS MUSTER_LOG
failed=0

# Runs a job and counts the lines that name the device.
expect() { # LINES HOSTS [NAME=VALUE...]
    local lines=$1 hosts=$2 seen
    shift 2
    env "$@" timeout 60 "$bin/muster" run --hosts "$hosts" -- "$bin/hello_allreduce" >"$folder/out" 2>&1 || failed=1
    seen=$(grep -c 'RDMA devices are active and not used: mlx5_7 port 1 (MUSTER_VERBS=1 uses them' "$folder/out")
    if [ "$seen" != "$lines" ]; then
        echo "hosts $hosts, $*: $seen lines instead of $lines"
        cat "$folder/out"
        failed=1
    fi
}
expect 2 a:2,b:2
expect 0 a:2                  # one host needs no network
expect 0 a:1,b:1 MUSTER_VERBS=0 # the user has decided
echo "1: DOWN" >/sys/class/infiniband/mlx5_7/ports/1/state
expect 0 a:1,b:1
exit $failed
