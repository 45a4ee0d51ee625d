# Sourced by the tests of the program: starts and stops a musterd, calls it, and cleans up.
musterd=${MUSTER_BIN:-$source/build/release/bin}/musterd
for needed in "$musterd" curl; do
    command -v "$needed" >/dev/null || { echo "SKIP: there is no $needed"; exit 77; }
done
folder=$(mktemp -d)
pid=
port=

clean_up() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    umount "$folder/disk" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean_up EXIT

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# launch OPTION...: waits until the server has written its port; sets pid and port.
launch() {
    rm -f "$folder/port"
    "$musterd" "$@" >"$folder/out" 2>"$folder/err" &
    pid=$!
    for _ in $(seq 400); do
        [ -s "$folder/port" ] && break
        kill -0 "$pid" 2>/dev/null || fail "musterd has ended: $(cat "$folder/err")"
        sleep 0.05
    done
    [ -s "$folder/port" ] || fail "musterd does not serve"
    port=$(cat "$folder/port")
}

# serve OPTION...: launches it on $listen, or on a free port of the loopback. There no worker was served before, and
# what follows on the same port has the same store: it need not wait for the next second.
serve() {
    if [ -n "${listen:-}" ]; then
        launch --listen "$listen" --port-file "$folder/port" "$@"
    else
        launch --listen 127.0.0.1:0 --only-server --port-file "$folder/port" "$@"
    fi
}

# stop STATUS: sends SIGTERM and expects this exit status.
stop() {
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    pid=
    [ "$status" = "$1" ] || fail "status $status, not $1: $(cat "$folder/err")"
}

# kill -9.
crash() {
    kill -9 "$pid"
    { wait "$pid" || true; } 2>/dev/null
    pid=
}

# ask METHOD JSON: prints the response, whatever its status.
ask() {
    curl -sS -m 20 -H 'Content-Type: application/json' -d "$2" \
        "http://${host:-127.0.0.1}:$port/muster.v1.Rendezvous/$1"
}

# expect PART METHOD JSON: the response contains PART.
expect() {
    part=$1
    shift
    response=$(ask "$@") || fail "$*: no response"
    case "$response" in
    *"$part"*) ;;
    *) fail "$*: no $part in $response" ;;
    esac
}

# refuses STATUS PART OPTION...: it exits with STATUS, and its error contains PART.
refuses() {
    wanted=$1
    part=$2
    shift 2
    status=0
    timeout 30 "$musterd" "$@" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "musterd $*: status $status, not $wanted: $(cat "$folder/err")"
    grep -q -- "$part" "$folder/err" || fail "musterd $*: no \"$part\" in $(cat "$folder/err")"
    [ "$wanted" != 1 ] || [ "$(wc -l <"$folder/err")" = 1 ] || fail "musterd $*: more than one line"
}

member() { echo "00000000-0000-4000-8000-00000000000$1"; }

# generation [JOB]: the whole number of the job's generation.
generation() {
    ask GetJob "{\"job\":\"${1:-j}\"}" | grep -oE '"generation":"[0-9]+"' | head -1 | grep -oE '[0-9]+'
}
