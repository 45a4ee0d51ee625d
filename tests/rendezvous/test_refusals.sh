#!/usr/bin/env bash
# What a musterd refuses: with which code and words, and that it counts it and changes nothing. Last, a worker of
# another wire version than the job's.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"

serve --settle-ms 20 --lease-ms 600000 --hold-ms 100
url=http://127.0.0.1:$port
one="\"job\":\"j\",\"member\":\"$(member 1)\""
two="\"job\":\"j\",\"member\":\"$(member 2)\""
expect '"formed"' Join "{$one,\"host\":\"h\",\"minSize\":1,\"maxSize\":1,\"wireVersion\":7}"
running=$(generation)

job() { ask GetJob '{"job":"j"}' | sed -E 's/"lastSeenMs":"?[0-9]+"?//g; s/"(nowMs|silentMs)":"?[0-9]+"?//g'; }
refusals() { curl -sS -m 20 "$url/metrics" | awk '/^musterd_(requests|refused_requests)_total/ && !/code="ok"/ {sum += $2} END {print sum + 0}'; }
before=$(job)
counted=$(refusals)
count=0

# refused CODE WORDS METHOD JSON
refused() {
    expect "{\"code\":\"$1\",\"message\":\"" "$3" "$4"
    case "$response" in *"$2"*) ;; *) fail "$3: no \"$2\" in $response" ;; esac
    count=$((count + 1))
}

echo "- wrong types, and numbers that are too large or negative, by the name of the field"
refused invalid_argument 'job: not a string' Join '{"job":5}'
refused invalid_argument 'minSize: not a whole number from 0 to 4294967295' Join "{$two,\"host\":\"h\",\"minSize\":99999999999}"
refused invalid_argument 'minSize: not a whole number' Join "{$two,\"host\":\"h\",\"minSize\":-1}"
refused invalid_argument 'minSize: not a whole number' Join "{$two,\"host\":\"h\",\"minSize\":1.5}"
refused invalid_argument 'targetSize: not a whole number' Resize '{"job":"j","targetSize":"many"}'
refused invalid_argument 'kind: \"NO\": no such value' Report "{$one,\"generation\":\"$running\",\"kind\":\"NO\"}"
refused invalid_argument 'suspectMember goes with REPORT_KIND_RESET only' Report \
    "{$one,\"suspectMember\":\"$(member 2)\",\"kind\":\"REPORT_KIND_WAITING\"}"

echo "- odd names"
refused invalid_argument 'host: \"a/b c\": use letters' Join "{$two,\"host\":\"a/b c\"}"
refused invalid_argument 'host: missing or empty' Join "{$two,\"host\":\"\"}"
refused invalid_argument 'member: \"xyz\": not a UUID' Join '{"job":"j","member":"xyz","host":"h"}'
refused invalid_argument 'suspectMember: \"x\": not a UUID' Report "{$one,\"suspectMember\":\"x\",\"kind\":\"REPORT_KIND_RESET\"}"
refused invalid_argument 'job:' Join "{\"job\":\"../j\",\"member\":\"$(member 2)\",\"host\":\"h\"}"

echo "- no JSON, deep JSON, members that come twice, no UTF-8"
refused invalid_argument 'JSON: line 1' Join 'not json'
refused invalid_argument 'nested deeper than 16' Join "$(printf '%0.s[' $(seq 1000))"
refused invalid_argument 'duplicate object key' Join "{$two,\"job\":\"k\",\"host\":\"h\"}"
refused invalid_argument 'unable to decode byte 0xff' Join "$(printf '{"job":"\xff\xfe"}')"

echo "- strangers to the job"
refused not_found 'is not in this job' Watch "{\"job\":\"j\",\"member\":\"$(member 9)\",\"generation\":\"$running\"}"
refused not_found 'is not in this job' Report \
    "{\"job\":\"j\",\"member\":\"$(member 9)\",\"suspectMember\":\"$(member 1)\",\"kind\":\"REPORT_KIND_RESET\"}"
refused not_found 'job none is not known here' GetJob '{"job":"none"}'
refused invalid_argument 'wire version 6, but the job has wire version 7' Join "{$two,\"host\":\"h\",\"minSize\":1,\"maxSize\":1,\"wireVersion\":6}"

echo "- each was counted, and nothing has changed"
[ $(($(refusals) - counted)) = $count ] || fail "$(refusals) refusals are counted after $counted, not $count more"
[ "$(job)" = "$before" ] || fail "the job was: $before, and is: $(job)"
# Nobody doubts that it lives, so that a member's word alone is no death; nor is one of a member that does not exist.
for suspect in 1 9; do
    expect '{}' Report "{$one,\"suspectMember\":\"$(member $suspect)\",\"kind\":\"REPORT_KIND_RESET\"}"
done
[ "$(job)" = "$before" ] || fail "after reports of nobody the job is: $(job)"
expect unimplemented NoSuchMethod '{}'
expect '"revoked":true' Watch "{$one,\"generation\":\"$((running - 1))\"}" # a stale generation

echo "- a worker of another wire version is told both"
worker=${MUSTER_BIN:-$source/build/release/bin}/hello_allreduce
status=0
MUSTER_RENDEZVOUS=$url MUSTER_JOB=j MUSTER_MIN=1 MUSTER_MAX=1 timeout 60 "$worker" >"$folder/out" 2>"$folder/worker" || status=$?
[ "$status" = 1 ] || fail "status $status: $(cat "$folder/worker")"
grep -qE 'wire version [0-9]+ \(libmuster [0-9.]+\), but the job has wire version 7' "$folder/worker" || fail "$(cat "$folder/worker")"
[ "$(wc -l <"$folder/worker")" = 1 ] || fail "more than one line: $(cat "$folder/worker")"
stop 0
