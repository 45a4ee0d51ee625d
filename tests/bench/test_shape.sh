#!/usr/bin/env bash
# muster bench --shape: links have the rate of the option, and nothing of them is left behind.
set -eu
muster=$MUSTER_BIN/muster
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# Without root: one line that says what helps.
nobody=()
[ "$(id -u)" != 0 ] || nobody=(setpriv --reuid 65534 --clear-groups)
if "${nobody[@]}" test -x "$muster"; then
    status=0
    "${nobody[@]}" "$muster" bench barrier -n 2 --hosts 2 --shape 1gbit 2>"$folder/errors" || status=$?
    [ $status = 1 ] || fail "exit status $status without root: $(cat "$folder/errors")"
    [ "$(wc -l <"$folder/errors")" = 1 ] || fail "$(cat "$folder/errors")"
    grep -q 'sudo' "$folder/errors" || fail "$(cat "$folder/errors")"
fi

if [ "$(id -u)" != 0 ] || ! unshare --net true 2>/dev/null; then
    echo "SKIP: only root may make network namespaces"
    exit 77
fi
if ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    echo "SKIP: no ip or no tc (Debian package iproute2)"
    exit 77
fi
if ! unshare --net sh -c 'ip link add one type veth peer name two &&
    tc qdisc add dev one root tbf rate 1gbit burst 128kb latency 50ms && ip link add three type bridge' \
    >/dev/null 2>&1; then
    echo "SKIP: this kernel has no veth, bridge or tbf"
    exit 77
fi

status=0
PATH=$folder/empty "$muster" bench barrier -n 2 --hosts 2 --shape 1gbit 2>"$folder/errors" || status=$?
[ $status = 1 ] || fail "exit status $status without ip"
grep -q 'iproute2' "$folder/errors" || fail "$(cat "$folder/errors")"

# 8 MiB at 200 Mbit/s take 335 ms; an idle link sends 128 KiB of it without delay.
"$muster" bench broadcast -n 3 --hosts 3 --shape 200mbit --bytes 8M --iterations 1 --json >"$folder/json"
grep -q '"shape":"200mbit"' "$folder/json" || fail "$(cat "$folder/json")"
us=$(sed -E 's/.*"min_us":([0-9]+).*/\1/' "$folder/json")
[ "$us" -ge 325000 ] || fail "8 MiB at 200 Mbit/s in $us us"
"$muster" bench allreduce -n 5 --hosts 2 --shape 1gbit --bytes 64K --iterations 3 --json >"$folder/json"
[ "$(wc -l <"$folder/json")" = 1 ] || fail "$(cat "$folder/json")"
! ip link show host0 >/dev/null 2>&1 || fail "a link was made here: $(ip link)"

# Nothing is left when it is killed in the middle: the links end with the last process in their
# namespaces.
for signal in INT KILL; do
    rm -f "$folder/run"
    setsid env --default-signal=INT "$muster" bench allreduce -n 4 --hosts 2 --shape 1gbit --bytes 64K \
        --seconds 60 >"$folder/run" 2>"$folder/errors" &
    parent=$!
    for _ in $(seq 1500); do
        ! grep -qs bytes "$folder/run" || break
        sleep 0.02
    done
    grep -q bytes "$folder/run" || fail "it does not start: $(cat "$folder/errors")"
    kill -$signal "$parent"
    wait "$parent" 2>/dev/null || true
    for _ in $(seq 1500); do
        pgrep -s "$parent" >/dev/null || break
        sleep 0.02
    done
    ! pgrep -s "$parent" || fail "left behind after SIG$signal"
done
echo "shaped links have their rate, and are removed"
