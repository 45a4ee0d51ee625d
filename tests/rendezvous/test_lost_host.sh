#!/usr/bin/env bash
# The host of a member is lost while its Watch is held: no packet comes from it any more, and none says so. The
# kernel's probes notice it, long before the Watch would end. In a network namespace, in which a route swallows what
# the server sends to the member.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
if [ "${1:-}" != inside ]; then
    if ! unshare -rn ip link set lo up 2>/dev/null; then
        echo "SKIP: no network namespace may be made here"
        exit 77
    fi
    exec unshare -rn bash "$0" inside
fi
ip link set lo up
. "$source/tests/rendezvous/musterd.sh"
serve --store memory --log info --settle-ms 0
# tell METHOD JSON: as the member, from an address of its own.
tell() {
    curl -sS -m 60 --interface 127.0.0.2 -H 'Content-Type: application/json' -d "$2" \
        "http://127.0.0.1:$port/muster.v1.Rendezvous/$1"
}
tell Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\"}" | grep -q '"formed"' || fail "no generation"
# Soon after a change Watches are short, and end before the probes begin.
watch="{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"$(generation)\""
begun=$SECONDS
while [ $((SECONDS - begun)) -lt 11 ]; do
    tell Watch "$watch}" >/dev/null
done
tell Watch "$watch,\"progress\":5}" >/dev/null 2>&1 &
for _ in $(seq 400); do
    ask GetJob '{"job":"j"}' | grep -q '"progress":"5"' && break
    sleep 0.05
done
ip route add blackhole 127.0.0.2/32 table local
echo "- the host is gone at $(date +%T)"
for _ in $(seq 1200); do
    grep -q 'gone: ' "$folder/err" && break
    sleep 0.05
done
echo "- noticed at $(date +%T)"
grep -q 'its connection closed' "$folder/err" || fail "the lost connection was not noticed: $(cat "$folder/err")"
grep -q 'gone: .*connection closed and no sign of life' "$folder/err" || fail "$(cat "$folder/err")"
stop 0
echo "PASS"
