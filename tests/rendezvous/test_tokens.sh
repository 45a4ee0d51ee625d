#!/usr/bin/env bash
# The tokens of a server: who may do what, on every route; where they come from and are never seen;
# a worker's job behind them; and no start on a network without them.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"
muster=${MUSTER_BIN:-$source/build/release/bin}/muster
hello=${MUSTER_BIN:-$source/build/release/bin}/hello_allreduce
[ -x "$muster" ] && [ -x "$hello" ] || { echo "SKIP: there is no muster with its examples"; exit 77; }
worker=worker-0123456789abcdef viewer=viewer-0123456789abcdef admin=admin-0123456789abcdef
tokens=$folder/tokens
printf '# of this test\n\nworker %s\nviewer\t%s\n admin %s\n' $worker $viewer $admin >"$tokens"

# status_of TOKEN PATH OPTION...: the HTTP status; TOKEN "" is none.
status_of() {
    curl -sS -m 20 -o "$folder/body" -w '%{http_code}' ${1:+-H "Muster-Server-Token: $1"} "${@:3}" \
        "http://127.0.0.1:$port$2"
}
# gives STATUS TOKEN PATH OPTION...
gives() {
    got=$(status_of "${@:2}")
    [ "$got" = "$1" ] || fail "${*:3}: $got, not $1: $(cat "$folder/body")"
}
# rpc STATUS TOKEN METHOD JSON OPTION...
rpc() { gives "$1" "$2" "/muster.v1.Rendezvous/$3" -H 'Content-Type: application/json' -d "$4" "${@:5}"; }
# stream TOKEN JSON TEXT OPTION...: WatchStream answers with a stream that has TEXT.
stream() {
    local size
    size=$(printf '\\x%02x' ${#2})
    printf "\\0\\0\\0\\0$size%s" "$2" >"$folder/envelope"
    gives 200 "$1" /muster.v1.Rendezvous/WatchStream -H 'Content-Type: application/connect+json' \
        -H 'Connect-Timeout-Ms: 100' --data-binary @"$folder/envelope" "${@:4}"
    grep -aq -- "$3" "$folder/body" || fail "no $3 in $(tr '\0' ' ' <"$folder/body")"
}
body_has() { grep -q -- "$1" "$folder/body" || fail "no $1 in $(cat "$folder/body")"; }
join="{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"]}"

echo "- off the loopback it does not start without a token, and says what to do"
for address in 0.0.0.0:0 '[::]:0' :0; do
    refuses 1 "no token: give --tokens FILE or MUSTERD_WORKER_TOKEN, or --certificate and --key, or say --insecure" --listen "$address" --store memory
done
MUSTERD_INSECURE=0 refuses 1 "say --insecure" --listen 0.0.0.0:0 --store memory
listen=0.0.0.0:0 serve --store memory --insecure
rpc 200 "" ListJobs '{}'
stop 0
MUSTERD_WORKER_TOKEN=$worker listen=0.0.0.0:0 serve --store memory
rpc 401 "" ListJobs '{}'
rpc 403 $worker ListJobs '{}'
stop 0

echo "- tokens that are none are refused by file and line, without being repeated"
for line in "$worker" "worker" "worker short" "boss $worker" "worker $worker extra" "worker $(head -c 129 /dev/zero | tr '\0' x)"; do
    printf 'worker %s\n%s\n' $worker "$line" >"$folder/wrong"
    refuses 1 "tokens $folder/wrong, line 2" --listen 127.0.0.1:0 --store memory --tokens "$folder/wrong"
    ! grep -qE "$worker|short" "$folder/err" || fail "the error has a token: $(cat "$folder/err")"
done
echo "# nothing" >"$folder/wrong"
refuses 1 "it has no token" --listen 127.0.0.1:0 --store memory --tokens "$folder/wrong"
refuses 1 "tokens /no/such/file: No such file" --listen 127.0.0.1:0 --store memory --tokens /no/such/file
MUSTERD_ADMIN_TOKEN=short refuses 1 "MUSTERD_ADMIN_TOKEN: a token of 5 bytes" --listen 127.0.0.1:0 --store memory

MUSTER_LOG=debug serve --store "$folder/jobs.db" --tokens "$tokens" --settle-ms 50
echo "- strangers see health and the empty page, and nothing else"
for path in /healthz /readyz / /page.js /page.css; do gives 200 "" $path; done
gives 401 "" /metrics
for token in "" worker-0123456789abcdeX "$worker$worker"; do
    for method in Join Watch Leave Report Resize Put Get Wait GetJob ListJobs EndJob Peers Add CompareAndSwap Delete CountKeys; do
        rpc 401 "$token" $method "$join"
        body_has '"code":"unauthenticated"'
    done
    stream "$token" '{"job":"j"}' '"code":"unauthenticated"'
done
gives 401 "" '/muster.v1.Rendezvous/GetJob?encoding=json&message=%7B%22job%22:%22j%22%7D'
rpc 401 "" Join "$join" -H "Authorization: Bearer none-of-the-server"
gives 401 "" /horovod/h.s3cret/global/key -X PUT -d x
gives 401 "" /horovod/h.s3cret/global/key
gives 401 "" /horovod/h.s3cret/muster/plan -X PUT -d a:2
# A body that is not let in is not kept, and the connection serves on.
head -c 200000 /dev/zero | tr '\0' ' ' >"$folder/large"
rpc 401 "" Join @"$folder/large"

echo "- a worker works, a viewer looks, an admin does both and needs no job's token"
rpc 200 $worker Join "$join" -H 'Authorization: Bearer of-the-job'
rpc 403 $viewer Join "$join"
body_has 'role worker or admin'
rpc 403 $worker ListJobs '{}'
body_has 'role viewer or admin'
rpc 401 $worker GetJob '{"job":"j"}'
body_has 'needs a token'
rpc 200 $worker GetJob '{"job":"j"}' -H 'Authorization: Bearer of-the-job'
rpc 200 $viewer GetJob '{"job":"j"}'
! grep -q of-the-job "$folder/body" || fail "GetJob shows the job's token"
stream $viewer '{"job":"j"}' '"job":{"name":"j"'
! grep -aq of-the-job "$folder/body" || fail "WatchStream shows the job's token"
stream $worker '{"job":"j"}' 'needs a token'
stream $worker '{"job":"j"}' '"job":{"name":"j"' -H 'Authorization: Bearer of-the-job'
stream $viewer "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"1\"}" '"code":"permission_denied".*role worker or admin'
stream $worker "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"1\"}" 'needs a token'
stream $admin "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"7\"}" '"watch":{'
rpc 403 $viewer EndJob '{"job":"j"}'
rpc 403 $viewer Put '{"job":"j","key":"k","value":"AA=="}'
rpc 401 $worker EndJob '{"job":"j"}' -H 'Authorization: Bearer of-another'
rpc 200 $viewer ListJobs '{}'
gives 200 $viewer /metrics
gives 403 $worker /metrics
gives 200 "" /metrics -H "Authorization: Bearer $viewer" # as Prometheus sends it
rpc 200 $admin Resize '{"job":"j","targetSize":2}'
rpc 200 $admin EndJob '{"job":"j"}'

echo "- a server's token in Authorization is no job's token, and is not stored"
one="{\"job\":\"k\",\"member\":\"$(member 2)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"]}"
rpc 200 "" Join "$one" -H "Authorization: Bearer $worker"
rpc 200 $worker GetJob '{"job":"k"}'
! grep -aq "$worker" "$folder/jobs.db" "$folder"/jobs.db-* || fail "the store has the server's token"

echo "- a job of Horovod's is made with a worker's token, and then has its own secret"
gives 200 "" /horovod/h.s3cret/muster/plan -X PUT -d a:2 -H "Authorization: Bearer $worker"
gives 200 "" /horovod/h.s3cret/muster/plan
gives 401 "" /horovod/h.other/muster/plan
gives 200 "" "/horovod/static.$worker:7070/global/key" -X PUT -d x
gives 401 "" "/horovod/other.$viewer:7070/global/key" -X PUT -d x

echo "- SIGHUP reads the tokens again; a file that is wrong changes nothing"
next=worker-fedcba9876543210
printf 'worker %s\n' $next >"$tokens"
kill -HUP "$pid"
for _ in $(seq 400); do [ "$(status_of $next /muster.v1.Rendezvous/GetJob -H 'Content-Type: application/json' -d '{"job":"k"}')" = 401 ] || break; sleep 0.05; done
rpc 200 $next GetJob '{"job":"k"}'
rpc 401 $worker GetJob '{"job":"k"}'
echo "worker" >"$tokens"
kill -HUP "$pid"
for _ in $(seq 400); do ! grep -q "tokens stay as they were" "$folder/err" || break; sleep 0.05; done
grep -q "$tokens, line 1: .*tokens stay as they were" "$folder/err" || fail "the log does not name the file: $(tail -n 3 "$folder/err")"
rpc 200 $next GetJob '{"job":"k"}'

echo "- no token is in the log, or in what ps shows"
for token in $worker $viewer $admin $next of-the-job; do
    ! grep -q "$token" "$folder/err" "$folder/out" || fail "the log has $token"
    ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q "$token" || fail "the command line has $token"
done

echo "- workers, muster run and muster job behind a token"
url=http://127.0.0.1:$port
echo $next >"$folder/worker"
! MUSTER_JOIN_TIMEOUT_MS=20000 "$muster" run -n 1 --rendezvous "$url" -- "$hello" >"$folder/log" 2>&1 || fail "a worker without the token joined"
grep -q 'needs one of its tokens: MUSTER_SERVER_TOKEN' "$folder/log" || fail "the worker is not told what is missing: $(cat "$folder/log")"
"$muster" run -n 2 --rendezvous "$url" --server-token-file "$folder/worker" -- "$hello" >"$folder/log" 2>&1 || fail "$(cat "$folder/log")"
grep -q 'rank 1 of 2' "$folder/log" || fail "no sum: $(cat "$folder/log")"
MUSTER_SERVER_TOKEN=$next "$muster" job show k --rendezvous "$url" >"$folder/log" 2>&1 || fail "$(cat "$folder/log")"
"$muster" job end k --rendezvous "$url" --server-token-file "$folder/worker" >"$folder/log" 2>&1 || fail "$(cat "$folder/log")"
! "$muster" job show k --rendezvous "$url" >"$folder/log" 2>&1 || fail "shown without a token"
! "$muster" job ls --rendezvous "$url" --server-token-file /no/such/file >"$folder/log" 2>&1 || fail "a token file that is none"
grep -q 'token file /no/such/file: No such file' "$folder/log" || fail "$(cat "$folder/log")"
! grep -q "$next" "$folder/log" || fail "an error text has the token"
stop 0
echo "PASS"
