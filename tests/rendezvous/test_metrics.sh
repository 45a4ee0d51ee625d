#!/usr/bin/env bash
# /metrics, /healthz and /readyz: the format, the numbers after known requests, a store that is gone.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"
store=$folder/jobs.db

get() { curl -sS -m 20 "http://127.0.0.1:$port$1"; }
status_of() { curl -sS -m 20 -o /dev/null -w '%{http_code}' "${@:2}" "http://127.0.0.1:$port$1"; }
# value SERIES: of the metrics in $folder/metrics.
value() { awk -v name="$1" '$1 == name {print $2; found = 1} END {exit !found}' "$folder/metrics"; }
has() { # SERIES VALUE
    got=$(value "$1") || fail "no $1 in the metrics"
    [ "$got" = "$2" ] || fail "$1 is $got, not $2"
}

serve --store "$store" --settle-ms 20 --lease-ms 600000 --hold-ms 100 --watch-ms 100
echo "- health"
[ "$(get /healthz)" = ok ] || fail "/healthz: $(get /healthz)"
[ "$(get /readyz)" = ready ] || fail "/readyz: $(get /readyz)"
[ "$(status_of /readyz -I)" = 200 ] || fail "HEAD /readyz: $(status_of /readyz -I)"
[ "$(status_of /healthz -d x)" = 404 ] || fail "POST /healthz: $(status_of /healthz -d x)"

echo "- a job of one that leaves, twice: two generations, and one recovery"
join() { # member generation
    for _ in $(seq 400); do
        answer=$(ask Join "{\"job\":\"j\",\"member\":\"$(member "$1")\",\"host\":\"h\",\"addresses\":[\"tcp://a\"],
            \"generation\":\"$2\",\"minSize\":1,\"maxSize\":4}")
        case "$answer" in *'"waiting"'*) ;; *) return ;; esac
    done
    fail "no generation: $answer"
}
join 1 0
first=$(generation)
join 2 0 & newcomer=$!
for _ in $(seq 400); do # until the newcomer has settled
    case "$(ask Watch "{\"job\":\"j\",\"member\":\"$(member 1)\",\"generation\":\"$first\"}")" in
    *'"pending":true'*) break ;;
    esac
done
join 1 "$first"
wait $newcomer || fail "the newcomer got no answer"
expect '{}' Leave "{\"job\":\"j\",\"member\":\"$(member 2)\",\"generation\":\"$(generation)\",\"reason\":\"LEAVE_REASON_PLANNED\"}"
expect invalid_argument GetJob '{"job":"a/b"}'
expect not_found GetJob '{"job":"none"}'
[ "$(status_of /no/such/path)" = 404 ] || fail "a path that is none is not refused"

echo "- every line has the format, each metric is declared once before its values"
get /metrics >"$folder/metrics"
awk '/^# HELP [a-z0-9_]+ [A-Z1].*\.$/ || /^# HELP [a-z0-9_]+ 1;/ {if ($3 in help) bad($0); help[$3] = 1; next}
    /^# TYPE [a-z0-9_]+ (counter|gauge|histogram)$/ {if (!($3 in help) || $3 in type) bad($0); type[$3] = $4; next}
    /^[a-z0-9_]+({[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*})? [0-9.e+-]+$/ {
        name = $1; sub(/{.*/, "", name); base = name
        sub(/_(bucket|sum|count)$/, "", base); if (type[base] != "histogram") base = name
        if (!(base in type) || $1 in seen) bad($0)
        if (type[base] == "counter" && base !~ /_total$/) bad($0)
        seen[$1] = 1; next}
    {bad($0)}
    function bad(line) {print "not the format: " line; failed = 1}
    END {exit failed}' "$folder/metrics" || fail "see above"
if command -v promtool >/dev/null; then
    promtool check metrics <"$folder/metrics" || fail "promtool finds mistakes"
fi
curl -sS -m 20 -D - -o /dev/null "http://127.0.0.1:$port/metrics" |
    grep -qi '^content-type: text/plain; version=0.0.4' || fail "/metrics has another content type"

echo "- the numbers are those of the requests"
has 'musterd_requests_total{method="Leave",code="ok"}' 1
has 'musterd_requests_total{method="GetJob",code="invalid_argument"}' 1
has 'musterd_requests_total{method="GetJob",code="not_found"}' 1
has 'musterd_refused_requests_total{code="unimplemented"}' 2
has 'musterd_jobs{phase="forming"}' 1
has 'musterd_members{phase="awaited"}' 1
has 'musterd_generations_formed_total' 2
has 'musterd_departures_total{reason="planned"}' 1
has 'musterd_recovery_seconds_count' 1
has 'musterd_recovery_seconds_bucket{le="+Inf"}' 1
has 'musterd_held_requests' 0
has 'musterd_store_append_failures_total' 0
has 'musterd_store_sync_failures_total' 0
has 'musterd_damaged_jobs' 0
has 'musterd_connections' 1
[ "$(value musterd_store_append_seconds_count)" -ge 5 ] || fail "fewer appends than events"
[ "$(value process_resident_memory_bytes)" -gt 1000000 ] || fail "less than a megabyte of memory"
[ "$(value process_open_fds)" -gt 3 ] || fail "fewer files than are open"

# ready WANTED: /readyz has this status within 20 s; the store is asked once a second.
ready() {
    for _ in $(seq 400); do
        [ "$(status_of /readyz)" != "$1" ] || return 0
        sleep 0.05
    done
    fail "/readyz is $(status_of /readyz), not $1: $(get /readyz)"
}
echo "- without its store it is healthy, and not ready"
mv "$store" "$store.away"
ready 503
get /readyz | grep -q "^not ready: store $store: No such file" || fail "/readyz: $(get /readyz)"
[ "$(get /healthz)" = ok ] || fail "/healthz: $(get /healthz)"
expect unavailable Resize '{"job":"j","targetSize":2}'
get /metrics >"$folder/metrics"
has 'musterd_store_append_failures_total' 1
mv "$store.away" "$store"
ready 200
stop 0
