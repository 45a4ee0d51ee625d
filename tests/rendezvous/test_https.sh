#!/usr/bin/env bash
# https: workers verify the server, the server its callers; certificates that are renewed, and that are no good.
set -eu
source=$(realpath "${MUSTER_SOURCE:-$(dirname "$0")/../..}")
. "$source/tests/rendezvous/musterd.sh"
muster=${MUSTER_BIN:-$source/build/release/bin}/muster
hello=${MUSTER_BIN:-$source/build/release/bin}/hello_allreduce
for needed in "$muster" "$hello" openssl; do
    command -v "$needed" >/dev/null || { echo "SKIP: there is no $needed"; exit 77; }
done
cd "$folder"

# authority NAME: makes NAME.pem and NAME.key.
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem" 2>made || fail "$(cat made)"
}
# certificate NAME AUTHORITY USAGE ALTERNATIVE-NAMES [DAYS]
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>made || fail "$(cat made)"
    printf 'extendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days "${5:-2}" -extfile "$1.ext" -out "$1.pem" 2>made || fail "$(cat made)"
}
authority ours
authority theirs
certificate server ours serverAuth IP:127.0.0.1,DNS:localhost
certificate renewed ours serverAuth IP:127.0.0.1
certificate elsewhere ours serverAuth DNS:elsewhere.example
certificate worker ours clientAuth DNS:worker
certificate stranger theirs clientAuth DNS:worker
certificate wrong_use ours serverAuth DNS:worker
certificate expired ours serverAuth IP:127.0.0.1 -1

# https OPTION...: curl of the list of jobs; its status.
https() { curl -sS -m 20 -o body -w '%{http_code}' "$@" -H 'Content-Type: application/json' -d '{}' "https://127.0.0.1:$port/muster.v1.Rendezvous/ListJobs" 2>curl_error; }

echo "- options that do not go together, and files that are no good, by name"
refuses 2 'only --certificate is' --certificate server.pem
refuses 2 'only --key is' --key server.key
refuses 2 'client-authority needs --certificate and --key' --client-authority ours.pem
start="--listen 127.0.0.1:0 --store memory"
refuses 1 'certificate none.pem: No such file' $start --certificate none.pem --key server.key
refuses 1 'key none.key: No such file' $start --certificate server.pem --key none.key
refuses 1 'certificate server.key: ' $start --certificate server.key --key server.key
refuses 1 'key server.pem: ' $start --certificate server.pem --key server.pem
refuses 1 'key worker.key: it does not belong to the certificate server.pem' $start --certificate server.pem --key worker.key
refuses 1 'certificate expired.pem: it has expired' $start --certificate expired.pem --key expired.key
refuses 1 'client authority server.key: ' $start --certificate server.pem --key server.key --client-authority server.key

echo "- a server with a certificate may listen off the loopback; who does not trust it hears so"
cp server.pem shown.pem
cp server.key shown.key
MUSTER_LOG=info listen=0.0.0.0:0 serve --store memory --certificate shown.pem --key shown.key --settle-ms 50
grep -q 'https://0.0.0.0' out || fail "$(cat out)"
[ "$(https --cacert ours.pem)" = 200 ] || fail "$(cat curl_error body)"
[ "$(https --cacert ours.pem --tls-max 1.2)" = 200 ] || fail "TLS 1.2: $(cat curl_error)"
! https --cacert ours.pem --tls-max 1.1 >status || fail "TLS 1.1 is served"
! https --cacert theirs.pem >status || fail "a server of another authority is trusted"
! curl -sS -m 20 "http://127.0.0.1:$port/healthz" >body 2>&1 || fail "plain HTTP is served: $(cat body)"
[ "$(https --cacert ours.pem)" = 200 ] || fail "after plain HTTP: $(cat curl_error)"
url=https://127.0.0.1:$port
MUSTER_RENDEZVOUS_AUTHORITY=ours.pem "$muster" run -n 2 --rendezvous "$url" -- "$hello" >log 2>&1 || fail "$(cat log)"
grep -q 'rank 1 of 2' log || fail "no sum: $(cat log)"
for trust in theirs.pem ''; do
    ! MUSTER_RENDEZVOUS_AUTHORITY=$trust "$muster" run -n 1 --rendezvous "$url" -- "$hello" >log 2>&1 || fail "a worker trusts anybody"
    grep -qi 'certificate' log || fail "the worker is not told: $(cat log)"
done
! MUSTER_RENDEZVOUS_AUTHORITY=none.pem "$muster" job ls --rendezvous "$url" >log 2>&1 || fail "an authority that is none"
grep -q 'authority (MUSTER_RENDEZVOUS_AUTHORITY) none.pem: No such file' log || fail "$(cat log)"
! MUSTER_RENDEZVOUS_KEY=worker.key "$muster" job ls --rendezvous "$url" >log 2>&1 || fail "a key alone"
grep -q 'only the key is' log || fail "$(cat log)"

# serial: of the certificate that the server shows.
serial() { openssl s_client -connect "127.0.0.1:$port" </dev/null 2>made | openssl x509 -noout -serial 2>made || echo none; }
shows() { # CERTIFICATE: within 20 s
    wanted=$(openssl x509 -noout -serial -in "$1")
    for _ in $(seq 200); do
        [ "$(serial)" != "$wanted" ] || return 0
        sleep 0.1
    done
    fail "the server does not show $1: $(cat err)"
}
echo "- a renewed certificate is shown without a restart; one that is no good is not"
exec 8<>/dev/tcp/127.0.0.1/"$port" # a handshake that has not begun does not hold it up
shows server.pem
cp renewed.key shown.key
cp renewed.pem shown.pem # seen as files that changed, in whatever order
shows renewed.pem
kill -HUP "$pid"
echo nonsense >shown.pem
for _ in $(seq 200); do ! grep -q 'certificates stay as they were' err || break; sleep 0.1; done
grep -q 'certificate shown.pem: .*certificates stay as they were' err || fail "$(cat err)"
shows renewed.pem
cp elsewhere.key shown.key
cp elsewhere.pem shown.pem
kill -HUP "$pid"
shows elsewhere.pem
! MUSTER_RENDEZVOUS_AUTHORITY=ours.pem "$muster" job ls --rendezvous "$url" >log 2>&1 || fail "a server of another name is trusted"
exec 8>&-
stop 0

echo "- with a client authority, only those with its certificate, in TLS 1.3 and 1.2"
serve --store memory --certificate server.pem --key server.key --client-authority ours.pem --settle-ms 50
url=https://127.0.0.1:$port
for version in 1.2 1.3; do
    [ "$(https --cacert ours.pem --tls-max $version --cert worker.pem --key worker.key)" = 200 ] || fail "TLS $version: $(cat curl_error)"
    ! https --cacert ours.pem --tls-max $version >status || fail "TLS $version: served without a certificate: $(cat body)"
    for name in stranger wrong_use; do
        ! https --cacert ours.pem --tls-max $version --cert $name.pem --key $name.key >status || fail "TLS $version: $name is served"
    done
done
MUSTER_RENDEZVOUS_AUTHORITY=ours.pem MUSTER_RENDEZVOUS_CERTIFICATE=worker.pem MUSTER_RENDEZVOUS_KEY=worker.key \
    "$muster" run -n 2 --rendezvous "$url" -- "$hello" >log 2>&1 || fail "$(cat log)"
grep -q 'rank 1 of 2' log || fail "no sum: $(cat log)"
stop 0
echo "- a client that offers HTTP/2 only is told so in the handshake, and one that offers both gets HTTP/1.1"
serve --store memory --certificate server.pem --key server.key
openssl s_client -connect "127.0.0.1:$port" -alpn h2 </dev/null >log 2>&1 || true
grep -qi 'no application protocol' log || fail "h2 only: $(cat log)"
curl -sS -m 20 --cacert ours.pem "https://127.0.0.1:$port/metrics" | grep -q '^musterd_refused_handshakes_total 1$' || fail "it is not counted"
openssl s_client -connect "127.0.0.1:$port" -alpn h2,http/1.1 </dev/null >log 2>&1 || true
grep -q 'Verify return code' log || fail "h2 and http/1.1: $(cat log)"
[ "$(https --cacert ours.pem --http2)" = 200 ] || fail "curl --http2: $(cat curl_error)"
stop 0
echo "PASS"
