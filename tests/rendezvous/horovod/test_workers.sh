#!/usr/bin/env bash
# Clients that play Horovod's workers, static and elastic, over HTTP: workers.py.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../../..}
. "$source/tests/rendezvous/musterd.sh"
command -v python3 >/dev/null || { echo "SKIP: there is no python3"; exit 77; }
serve --store memory
timeout 300 python3 -B "$source/tests/rendezvous/horovod/workers.py" "$port" || fail "$(cat "$folder/err")"
stop 0
echo "PASS"
