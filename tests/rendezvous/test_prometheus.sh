#!/usr/bin/env bash
# A Prometheus scrapes musterd, and answers questions about it.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
command -v prometheus >/dev/null || { echo "SKIP: there is no prometheus"; exit 77; }
. "$source/tests/rendezvous/musterd.sh"
prometheus=
trap '[ -z "$prometheus" ] || kill -9 $prometheus 2>/dev/null || true; clean_up' EXIT

serve --store memory --settle-ms 20 --lease-ms 600000 --hold-ms 100 --watch-ms 100
expect '"formed"' Join "{\"job\":\"j\",\"member\":\"$(member 1)\",\"host\":\"h\",\"addresses\":[\"tcp://a\"],\"targetSize\":1,\"maxSize\":1}"
cat >"$folder/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs: [{job_name: musterd, static_configs: [{targets: ["127.0.0.1:$port"]}]}]
END
# It does not tell which port it got for 0, so the port is one that was free a moment ago.
for _ in 1 2 3 4 5; do
    scraper=$((20000 + RANDOM % 12000))
    prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" \
        --web.listen-address="127.0.0.1:$scraper" >"$folder/prometheus.log" 2>&1 &
    prometheus=$!
    for _ in $(seq 600); do
        kill -0 $prometheus 2>/dev/null || break
        answer=$(curl -sS -m 5 -G "http://127.0.0.1:$scraper/api/v1/query" \
            --data-urlencode 'query=musterd_generations_formed_total + on(job) musterd_jobs{phase="running"}' 2>/dev/null || true)
        case "$answer" in *'"value":['*'"2"]'*) break 2 ;; esac
        sleep 0.1
    done
    kill -0 $prometheus 2>/dev/null && fail "no answer: $answer"
done
kill -0 $prometheus 2>/dev/null || fail "$(cat "$folder/prometheus.log")"
curl -sS -m 5 "http://127.0.0.1:$scraper/api/v1/targets" | grep -q '"health":"up"' || fail "the target is not up"
stop 0
