#!/usr/bin/env bash
# musterd as a program: options, addresses, signals, kill -9 and a full disk.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"
store=$folder/jobs.db

# A Join that waits for others is answered after --hold-ms and sent again, as workers do.
join() { # member generation
    for _ in $(seq 400); do
        answer=$(ask Join "{\"job\":\"j\",\"member\":\"$(member "$1")\",\"host\":\"h$1\",\"addresses\":[\"tcp://a\"],
            \"generation\":$2,\"order\":$1,\"minSize\":2,\"maxSize\":4,\"targetSize\":3}") || return 1
        case "$answer" in *'"waiting"'*) ;; *) break ;; esac
    done
    echo "$answer"
}

echo "- wrong options are status 2"
refuses 2 'hold-ms: "x"' --hold-ms x
refuses 2 'hold-ms: "0"' --hold-ms 0
refuses 2 'lease-ms 2000 must be more than twice --hold-ms 1000' --lease-ms 2000
refuses 2 'suspect-ms 1000 must be more than --hold-ms 1000' --suspect-ms 1000
refuses 2 'suspect-ms 5001 must not be more than --lease-ms 5000' --suspect-ms 5001
refuses 2 'arrive-ms 1000 must be more than --hold-ms 1000' --arrive-ms 1000
refuses 2 'unrecognized option' --no-such-option
refuses 2 '"stray"' stray
refuses 2 'log level "loud"' --log loud
refuses 2 'log-format "xml"' --log-format xml
MUSTERD_SETTLE_MS=-1 refuses 2 'settle-ms: "-1"'

echo "- a failure to start is reported in one line"
for address in 7070 127.0.0.1 127.0.0.1: 127.0.0.1:x 127.0.0.1:65536 ::1:7070; do
    refuses 1 "listen address \"$address\"" --listen "$address" --store memory
done
refuses 1 'cannot listen on 192.0.2.1:7070' --listen 192.0.2.1:7070 --store memory
refuses 1 "store $folder: Is a directory" --listen 127.0.0.1:0 --store "$folder"
refuses 1 'store /no/such/folder/x.db: No such file' --listen 127.0.0.1:0 --store /no/such/folder/x.db
head -c 4096 /dev/urandom >"$folder/noise"
refuses 1 "store $folder/noise: file is not a database" --listen 127.0.0.1:0 --store "$folder/noise"
refuses 1 'port file /no/such/folder/port' --listen 127.0.0.1:0 --store memory --port-file /no/such/folder/port

echo "- the log as JSON: an object a line, with the fields of the text"
serve --store memory --log info --log-format json --settle-ms 0
expect '"formed"' Join "{\"job\":\"logged\",\"member\":\"$(member 1)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"]}"
expect '{}' EndJob '{"job":"logged","why":"\"enough\""}'
stop 0
time='{"time":"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z","level":"info"'
grep -qE "^$time,\"job\":\"logged\",\"member\":\"$(member 1)\",\"host\":\"h\",\"pid\":\"0\",\"text\":\"joins" "$folder/err" ||
    fail "no Join in the log: $(cat "$folder/err")"
grep -qF 'ended: \"enough\""}' "$folder/err" ||
    fail "no end of the job in the log: $(cat "$folder/err")"
grep -qE "^$time,\"text\":\"ending: Terminated\"}\$" "$folder/err" || fail "no end in the log: $(cat "$folder/err")"
! grep -qvE "^$time.*\"text\":\".*\"}\$" "$folder/err" || fail "a line is no object: $(cat "$folder/err")"

echo "- a port and a store have one owner"
serve --store "$store" --settle-ms 5000
refuses 1 "cannot listen on 127.0.0.1:$port: Address already in use" --listen "127.0.0.1:$port" --store memory
refuses 1 "store $store: another musterd is using it" --listen 127.0.0.1:0 --store "$store"

echo "- kill -9 in the middle: the same generation afterwards, and the members re-attach"
for i in 1 2 3; do join $i 0 >"$folder/join$i" & joins="${joins:-} $!"; done
for i in $joins; do wait "$i" || fail "a Join got no answer"; done
one=$(generation)
[ $((one >> 32)) -gt 0 ] || fail "there is no epoch in generation $one"
grep -q "\"generation\":\"$one\"" "$folder/join1" || fail "$(cat "$folder/join1")"
token=$(sed -nE 's/.*"linkToken":"([0-9a-f]+)".*/\1/p' "$folder/join1")
expect '{}' Put "{\"job\":\"j\",\"generation\":\"$one\",\"key\":\"k\",\"value\":\"AAEC\"}"
ask Watch "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"$one\"}" >"$folder/watch" 2>&1 &
watch=$!
crash
wait $watch || true
listen=127.0.0.1:$port
serve --store "$store" --hold-ms 100 --watch-ms 100
for i in 1 2 3; do
    expect '"revoked":false' Watch "{\"job\":\"j\",\"member\":\"$(member $i)\",\"generation\":\"$one\"}"
done
expect '"phase":"JOB_PHASE_RUNNING"' GetJob '{"job":"j"}'
expect '"value":"AAEC"' Get "{\"job\":\"j\",\"generation\":\"$one\",\"key\":\"k\"}"
expect "\"linkToken\":\"$token\"" Join "{\"job\":\"j\",\"member\":\"$(member 2)\",\"host\":\"h2\"}"
expect '{}' Leave "{\"job\":\"j\",\"member\":\"$(member 3)\",\"generation\":\"$one\",\"reason\":\"LEAVE_REASON_PLANNED\"}"
join 1 "$one" >"$folder/join1" &
first=$!
join 2 "$one" >"$folder/join2"
wait $first
two=$(generation)
[ "$two" -gt $((one + 1)) ] || fail "generation $two after $one: the new start began no epoch"
for i in 1 2; do
    grep -q "\"generation\":\"$two\"" "$folder/join$i" || fail "$(cat "$folder/join$i")"
    grep -q '"size":2' "$folder/join$i" || fail "$(cat "$folder/join$i")"
done

echo "- SIGTERM with held requests is status 0"
stop 0
serve --store "$store" --hold-ms 20000 --lease-ms 60000 --suspect-ms 30000
for i in 1 2; do
    ask Watch "{\"job\":\"j\",\"member\":\"$(member $i)\",\"generation\":\"$two\",\"progress\":7}" >"$folder/watch$i" &
    watches="${watches:-} $!"
done
held=0
for _ in $(seq 400); do
    held=$(ask GetJob '{"job":"j"}' | grep -o '"progress":"7"' | wc -l)
    [ "$held" = 2 ] && break
    sleep 0.05
done
[ "$held" = 2 ] || fail "the Watches did not arrive"
stop 0
for i in $watches; do wait "$i" || fail "a held Watch got no answer"; done
grep -q '"code":"unavailable"' "$folder/watch1" || fail "$(cat "$folder/watch1")"
listen=127.0.0.1:0

echo "- a memory store that is lost makes no number fall back: a new one is served when its second is over"
last=0
for i in 1 2 3; do
    launch --listen "$listen" --port-file "$folder/port" --store memory --settle-ms 0
    now=$(($(date +%s) - $(date -d 2026-01-01T00:00:00Z +%s)))
    listen=127.0.0.1:$port
    expect '"formed"' Join "{\"job\":\"j\",\"member\":\"$(member $i)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"]}"
    number=$(generation)
    [ $((number & 0xffffffff)) = 1 ] || fail "the first generation is $number, which is not shown as 1"
    [ "$number" -gt "$last" ] || fail "generation $number of a new store is not after $last"
    [ $((number >> 32)) -lt $now ] || fail "epoch $((number >> 32)) is not over at second $now"
    expect 'is more than a day after' Join "{\"job\":\"j\",\"member\":\"$(member 9)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"],
        \"generation\":\"$((((number >> 32) + 86401) << 32))\"}"
    last=$number
    crash
done
listen=127.0.0.1:0
MUSTERD_ONLY_SERVER=1 launch --listen "$listen" --port-file "$folder/port" --store memory
stop 0

echo "- IPv6, if there is one"
if [ -e /proc/net/if_inet6 ] && grep -q '^00000000000000000000000000000001 ' /proc/net/if_inet6; then
    listen='[::1]:0' serve --store memory
    grep -qF "http://[::1]:$port" "$folder/out" || fail "$(cat "$folder/out")"
    host='[::1]' expect '"jobs":[]' ListJobs '{}'
    stop 0
else
    echo "  SKIP: no IPv6 here"
fi

echo "- the help has every option and its default"
"$musterd" --help | tr -s ' \n' ' ' >"$folder/help"
while read -r option default; do
    grep -qE -- "--$option=[A-Z:]+ [^[]*\[default: $default\]" "$folder/help" || fail "--$option $default: $(cat "$folder/help")"
done <<'END'
listen 127.0.0.1:7070
store musterd.db
log warn
hold-ms 1000
watch-ms 30000
lease-ms 5000
settle-ms 200
arrive-ms 30000
suspect-ms 2000
keep-ended-ms 3600000
max-jobs 1024
max-jobs-per-address 256
max-connections 16384
END
grep -q -- '--only-server' "$folder/help" || fail "$(cat "$folder/help")"
grep -q -- --port-file=FILE "$folder/help" || fail "$(cat "$folder/help")"

echo "- every option has its variable"
for name in HOLD WATCH LEASE SETTLE ARRIVE SUSPECT KEEP_ENDED; do
    option=$(echo "$name" | tr A-Z_ a-z-)-ms
    export "MUSTERD_${name}_MS=x"
    refuses 2 "--$option: \"x\" is not a number"
    unset "MUSTERD_${name}_MS"
done
MUSTER_LOG=loud refuses 2 'log level "loud"'
MUSTERD_LISTEN=127.0.0.1:0 MUSTERD_PORT_FILE=$folder/port MUSTERD_STORE=memory MUSTERD_HOLD_MS=50 MUSTER_LOG=info launch
expect '"members":1' Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"minSize\":2}"
grep -q 'store memory' "$folder/out" || fail "$(cat "$folder/out")"
grep -q "member=$(member 1) host=h pid=0 joins" "$folder/err" || fail "$(cat "$folder/err")"
kill -INT "$pid"
wait "$pid" || fail "SIGINT: status $?"
pid=

# until_job PART: waits until GetJob contains it.
until_job() {
    for _ in $(seq 400); do
        response=$(ask GetJob '{"job":"j"}')
        case "$response" in *"$1"*) return ;; esac
        sleep 0.05
    done
    fail "no $1 in $response"
}

echo "- every time limit is the one of its option"
serve --store memory --hold-ms 400 --watch-ms 400 --lease-ms 6000 --suspect-ms 500 --arrive-ms 600 --keep-ended-ms 3000
expect '"members":1' Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"minSize\":2,\"maxSize\":2}"
expect '"holdMs":400,"leaseMs":6000' Join "{\"job\":\"j\",\"member\":\"$(member 2)\",\"host\":\"h\"}"
curl -sS -m 0.1 -H 'Content-Type: application/json' -d "{\"job\":\"j\",\"member\":\"$(member 2)\",\"generation\":\"$(generation)\"}" \
    "http://127.0.0.1:$port/muster.v1.Rendezvous/Watch" 2>/dev/null && fail "the Watch was not held"
until_job 'connection closed and no sign of life for 500 ms'
until_job 'stuck: alive but did not join again within 600 ms'
until_job '"phase":"JOB_PHASE_ENDED"'
until_job '"code":"not_found"'
stop 0

echo "PASS"
