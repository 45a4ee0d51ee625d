#!/usr/bin/env bash
# The page in a real browser: what it shows of a job, that nothing from a worker becomes HTML, tokens.
# MUSTER_SCREENSHOTS=FOLDER leaves screenshots there, 1200 and 400 pixels wide.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"

# The headers need no browser.
serve --store memory --lease-ms 600000 --settle-ms 3000 --suspect-ms 20000 --arrive-ms 600000
curl -sS -m 20 -D "$folder/head" -o "$folder/body" "http://127.0.0.1:$port/"
for wanted in '^HTTP/1.1 200' '^content-type: text/html' "^content-security-policy: default-src 'none'; script-src 'self'" \
    '^x-content-type-options: nosniff' '^referrer-policy: no-referrer' "frame-ancestors 'none'"; do
    grep -qi -- "$wanted" "$folder/head" || fail "no $wanted in $(cat "$folder/head")"
done
cmp "$folder/body" "$source/rendezvous/page/page.html" || fail "the page is not the one in the sources"
for file in page.js page.css; do
    curl -sS -m 20 "http://127.0.0.1:$port/$file" | cmp - "$source/rendezvous/page/$file" || fail "$file differs"
done
! grep -rnE 'https?://|innerHTML|insertAdjacent|document\.write|eval\(' "$source/rendezvous/page" |
    grep -v 'www.w3.org/2000/svg' || fail "the page asks others, or writes HTML"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "SKIP: there is no chromium"; exit 77; }

# Generation 1 has six members on three hosts; one leaves, one dies for an odd reason, and there is a newcomer.
host_of() { case $1 in 1 | 2) echo node-a ;; 3 | 4 | 5) echo node-b ;; *) echo node-c ;; esac; }
join() { # member generation
    for _ in $(seq 400); do
        case "$(ask Join "{\"job\":\"train\",\"member\":\"$(member "$1")\",\"host\":\"$(host_of "$1")\",\"rack\":\"r1\",
            \"pid\":410$1,\"addresses\":[\"tcp://a\"],\"generation\":\"$2\",\"order\":$1,\"minSize\":2,\"maxSize\":9,
            \"targetSize\":6}")" in *'"waiting"'*) ;; *) return ;; esac
    done
    fail "no generation for member $1"
}
form() { # generation member...
    joins=
    for i in "${@:2}"; do join "$i" "$1" & joins="$joins $!"; done
    for i in $joins; do wait "$i" || fail "a Join got no answer"; done
}
form 0 1 2 3 4 5 6
expect '{}' Leave "{\"job\":\"train\",\"member\":\"$(member 3)\",\"generation\":\"$(generation train)\",\"reason\":\"LEAVE_REASON_PLANNED\",\"why\":\"SIGTERM: the node is drained\"}"
form "$(generation train)" 1 2 4 5 6
expect '{}' Leave "{\"job\":\"train\",\"member\":\"$(member 6)\",\"generation\":\"$(generation train)\",\"reason\":\"LEAVE_REASON_FAILED\",\"why\":\"<b>disk</b> & \\\"more\\\" <img src=x onerror=document.title=1>\"}"
form "$(generation train)" 1 2 4 5
ask Join "{\"job\":\"train\",\"member\":\"$(member 7)\",\"host\":\"node-d\",\"pid\":77,\"addresses\":[\"tcp://a\"],\"minSize\":2,\"maxSize\":9,\"targetSize\":6}" >/dev/null
expect revoked Watch "{\"job\":\"train\",\"member\":\"$(member 2)\",\"generation\":\"$(generation train)\",\"progress\":12345}"

# browse FRAGMENT OPTION...: runs the browser until the page has asked the server a few times.
browse() {
    timeout 300 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --user-data-dir="$folder/browser" --virtual-time-budget=5000 "${@:2}" \
        "http://127.0.0.1:$port/$1" 2>"$folder/browser.log" || fail "$(tail -n 5 "$folder/browser.log")"
}
shows() { grep -q -- "$1" "$folder/dom" || fail "the page does not show $1: $(sed -n '/<body>/,$p' "$folder/dom")"; }

echo "- the page shows the job: ranks, hosts, generations, departures and why"
browse '#job=train' --dump-dom >"$folder/dom"
shows '<title>train: running</title>'
shows '>node-a</h3>'
shows '<td class="n">3</td><td class="n">1</td><td class="n">1</td><td class="n">4105</td>' # rank, local, cross, pid
shows '>12,345</td>'
shows 'waits for the next generation'
shows 'left: SIGTERM: the node is drained'
shows '>gave up</span>'
shows 'generation 3: 4 workers on 2 hosts'
[ "$(grep -o '<rect class="bar"' "$folder/dom" | wc -l)" = 2 ] || fail "not two recoveries in the chart"

asked=$(curl -sS -m 20 "http://127.0.0.1:$port/metrics" | awk '$1 == "musterd_requests_total{method=\"GetJob\",code=\"ok\"}" {print $2}')
[ "$asked" -ge 3 ] || fail "in five seconds of the browser's time the page asked $asked times"

echo "- what workers say stays text"
shows '&lt;img src=x onerror=document.title=1&gt;'
shows '&lt;b&gt;disk&lt;/b&gt; &amp; "more" &lt;img'
! grep -qE '<img|<b>disk' "$folder/dom" || fail "a worker's text became HTML"

echo "- a job with a token is shown with it alone"
curl -sS -m 20 -H 'Authorization: Bearer s3cret' -H 'Content-Type: application/json' -o /dev/null \
    -d "{\"job\":\"locked\",\"member\":\"$(member 8)\",\"host\":\"vault\",\"addresses\":[\"tcp://a\"],\"targetSize\":1,\"maxSize\":1}" \
    "http://127.0.0.1:$port/muster.v1.Rendezvous/Join"
browse '#job=locked' --dump-dom >"$folder/dom"
shows 'needs a token'
! grep -q vault "$folder/dom" || fail "a job is shown without its token"
browse '#job=locked&token=wrong' --dump-dom >"$folder/dom"
shows 'the token of the request is not the job'
browse '#job=locked&token=s3cret' --dump-dom >"$folder/dom"
shows '>vault</h3>'
shows '<form id="access" hidden="">'
! grep -q s3cret "$folder/dom" "$folder/err" || fail "the token is in the page or in the log"

if [ -n "${MUSTER_SCREENSHOTS:-}" ]; then
    browse '#job=train' --window-size=1200,1300 --screenshot="$MUSTER_SCREENSHOTS/page_1200.png"
    browse '#job=train' --window-size=400,2200 --screenshot="$MUSTER_SCREENSHOTS/page_400.png"
fi
stop 0

echo "- a server with tokens shows nothing without a viewer's"
MUSTERD_WORKER_TOKEN=worker-0123456789abcdef MUSTERD_VIEWER_TOKEN=viewer-0123456789abcdef serve --store memory --lease-ms 600000 --settle-ms 20
curl -sS -m 20 -H 'Muster-Server-Token: worker-0123456789abcdef' -H 'Authorization: Bearer s3cret' -o /dev/null \
    -H 'Content-Type: application/json' -d "{\"job\":\"guarded\",\"member\":\"$(member 1)\",\"host\":\"vault\",\"addresses\":[\"tcp://a\"]}" \
    "http://127.0.0.1:$port/muster.v1.Rendezvous/Join"
browse '' --dump-dom >"$folder/dom"
shows 'This server needs the token of a viewer'
! grep -qE 'guarded|vault' "$folder/dom" || fail "a job is shown without a token"
browse '#server-token=worker-0123456789abcdef' --dump-dom >"$folder/dom"
shows 'This server needs the token of a viewer'
browse '#server-token=viewer-0123456789abcdef' --dump-dom >"$folder/dom"
shows '>vault</h3>' # also without the job's token
shows '<form id="access" hidden="">'
! grep -q viewer-0123 "$folder/dom" "$folder/err" || fail "the token is in the page or in the log"
stop 0
