#!/usr/bin/env bash
# Strangers in crowds: idle connections, bodies that never end, invented jobs, values. Others are served, memory
# has a bound, and no job ends.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"
command -v python3 >/dev/null || { echo "SKIP: there is no python3"; exit 77; }

flood_pid=
# flood ARGUMENT...: returns once the crowd stands; end_flood lets it go.
flood() {
    rm -f "$folder/crowd" "$folder/ready"
    mkfifo "$folder/crowd"
    python3 -B "$source/tests/rendezvous/flood.py" "$port" "$@" <"$folder/crowd" >"$folder/ready" 2>"$folder/flood" &
    flood_pid=$!
    exec 9>"$folder/crowd"
    for _ in $(seq 2400); do
        [ ! -s "$folder/ready" ] || return 0
        kill -0 $flood_pid 2>/dev/null || fail "no crowd: $(cat "$folder/flood")"
        sleep 0.05
    done
    fail "the crowd does not stand"
}
end_flood() {
    exec 9>&-
    wait $flood_pid || true
    flood_pid=
}
end_all() {
    [ -z "$flood_pid" ] || kill $flood_pid 2>/dev/null || true
    clean_up
}
trap end_all EXIT
memory_kib() { awk '/^VmRSS/ {print $2}' "/proc/$pid/status"; }
new_job() { # name: of one member, who need not come
    echo "{\"job\":\"$1\",\"member\":\"$(member 1)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"],\"minSize\":${2:-1}}"
}

echo "- more idle connections than there may be: the next request is answered at once, and so is one that was there"
# MUSTER_CROWD=16500 is the crowd that fills a server with the default limit.
crowd=${MUSTER_CROWD:-2500}
most=$((crowd > 16384 ? 16384 : 2000))
serve --store memory --settle-ms 20 --lease-ms 600000 --hold-ms 30000 --suspect-ms 60000 --arrive-ms 60000 --max-connections $most
expect '"formed"' Join "$(new_job mine)"
curl -sS -m 200 -H 'Content-Type: application/json' -d "{\"job\":\"mine\",\"member\":\"$(member 1)\",\"generation\":\"$(generation mine)\"}" \
    "http://127.0.0.1:$port/muster.v1.Rendezvous/Watch" >"$folder/watch" &
watch=$!
for _ in $(seq 400); do # until it is held
    case "$(curl -sS -m 20 "http://127.0.0.1:$port/metrics")" in *"musterd_held_requests 1"*) break ;; esac
    sleep 0.05
done
flood idle $crowd
began=$(date +%s%N)
for i in 1 2 3 4 5; do expect '"phase"' GetJob '{"job":"mine"}'; done
took=$((($(date +%s%N) - began) / 1000000))
echo "  5 requests beside $crowd idle connections: $took ms"
[ $took -lt 15000 ] || fail "5 requests took $took ms beside $crowd idle connections"
[ ! -s "$folder/watch" ] || fail "the held Watch has ended: $(cat "$folder/watch")"
expect '{}' EndJob '{"job":"mine"}'
wait $watch || fail "the held Watch got no answer"
end_flood
stop 0

echo "- an address has its own limit, and another address does not notice"
serve --store memory --max-connections-per-address 10 --max-connections 100
flood idle 500 127.0.0.9
expect '"jobs":[]' ListJobs '{}'
open=$(curl -sS -m 20 "http://127.0.0.1:$port/metrics" | awk '$1 == "musterd_connections" {print $2}')
[ "$open" -le 40 ] || fail "$open connections are open, and one address may have 10"
end_flood
stop 0

echo "- a thousand bodies that never end take bounded memory, and leave room for others"
ASAN_OPTIONS=quarantine_size_mb=1 serve --store memory --settle-ms 20 # what is freed leaves the memory
before=$(memory_kib)
flood bodies 1000 262144 127.0.0.9
grown=$(($(memory_kib) - before))
echo "  memory grew by $grown KiB"
[ $grown -lt 200000 ] || fail "1000 unfinished bodies of 256 KiB took $grown KiB"
expect '"formed"' Join "$(new_job beside)"
head -c 40000 /dev/zero | base64 -w 0 >"$folder/value"
echo "{\"job\":\"beside\",\"key\":\"k\",\"value\":\"$(cat "$folder/value")\"}" >"$folder/put"
expect '{}' Put "@$folder/put"
end_flood
stop 0

echo "- invented jobs lock nobody out: an address has its limit, and a full table makes those give way that never formed"
serve --store memory --max-jobs 30 --max-jobs-per-address 28 --hold-ms 100 --settle-ms 20 --lease-ms 600000 --suspect-ms 600000
for i in $(seq 28); do
    curl -sS -m 20 --interface 127.0.0.9 -H 'Content-Type: application/json' -d "$(new_job "invented-$i" 2)" \
        "http://127.0.0.1:$port/muster.v1.Rendezvous/Join" >"$folder/answer"
    grep -q waiting "$folder/answer" || fail "job $i: $(cat "$folder/answer")"
done
curl -sS -m 20 --interface 127.0.0.9 -H 'Content-Type: application/json' -d "$(new_job one-more 2)" \
    "http://127.0.0.1:$port/muster.v1.Rendezvous/Join" >"$folder/answer"
grep -q 'address 127.0.0.9 has 28 jobs already, and may have 28' "$folder/answer" || fail "$(cat "$folder/answer")"
for i in $(seq 12); do
    for _ in $(seq 400); do
        ask Join "$(new_job "real-$i")" >"$folder/answer"
        grep -qE 'resource_exhausted|waiting' "$folder/answer" || break
        sleep 0.02
    done
    grep -q '"formed"' "$folder/answer" || fail "job $i of another address: $(cat "$folder/answer")"
done
for i in $(seq 12); do expect '"phase":"JOB_PHASE_RUNNING"' GetJob "{\"job\":\"real-$i\"}"; done
stop 0

echo "- values have a bound for each address"
serve --store memory --settle-ms 20 --lease-ms 600000
head -c 65536 /dev/zero | base64 -w 0 >"$folder/value"
refused=
for i in $(seq 20); do
    expect '"formed"' Join "$(new_job "full-$i")"
    python3 -B "$source/tests/rendezvous/flood.py" "$port" values "full-$i" 63 >"$folder/answer" || fail "$(cat "$folder/answer")"
    if grep -q 'the values of the jobs of address 127.0.0.1 have 67108864 bytes already' "$folder/answer"; then
        refused=$i
        break
    fi
done
[ -n "$refused" ] || fail "an address stores without a bound: $(cat "$folder/answer")"
[ "$refused" -gt 15 ] || fail "job $refused was refused values: $(cat "$folder/answer")"
expect '{}' EndJob '{"job":"full-1"}'
stop 0
echo "- strangers who ask too often are told when to come again; those with a token, and other addresses, do not notice"
# rate FROM COUNT [HEADER]: asks so many times over one connection; prints how often each status came.
rate() { python3 -B "$source/tests/rendezvous/flood.py" "$port" rate "$2" "$1" "${3:-}"; }
token=worker-0123456789abcdef
limited() { curl -sS -m 20 -H "Muster-Server-Token: viewer-0123456789abcdef" "http://127.0.0.1:$port/metrics" | awk "/^musterd_rate_limited_requests_total.*$1/ {print \$2}"; }
MUSTERD_WORKER_TOKEN=$token MUSTERD_VIEWER_TOKEN=viewer-0123456789abcdef serve --store memory --max-requests-per-address 10
[ "$(rate 127.0.0.9 100 $token)" = "404 100" ] || fail "with a token: $(rate 127.0.0.9 100 $token)"
got=$(rate 127.0.0.9 100 wrong-0123456789abcdef) # 10 wrong tokens at once, then one a second
case "$got" in "401 1"[0-9]" 429 "*" Retry-After 1") ;; *) fail "wrong tokens: $got" ;; esac
[ "$(limited failures)" -ge 80 ] || fail "$(limited failures) requests with wrong tokens were counted"
[ "$(rate 127.0.0.9 100 $token)" = "404 100" ] || fail "with a token, beside wrong ones: $(rate 127.0.0.9 100 $token)"
got=$(rate 127.0.0.8 5)
[ "$got" = "401 5" ] || fail "another address: $got"
stop 0
serve --store memory --max-requests-per-address 10 # without tokens all are strangers
got=$(rate 127.0.0.9 300)
case "$got" in "404 1"[0-9][0-9]" 429 "*" Retry-After 1") ;; *) fail "strangers: $got" ;; esac
[ "$(rate 127.0.0.8 50)" = "404 50" ] || fail "another address notices"
stop 0
serve --store memory # this machine has no limit by itself
[ "$(rate 127.0.0.9 12000)" = "404 12000" ] || fail "this machine has a limit"
stop 0
echo "PASS"
