#!/usr/bin/env bash
# Who may include whom, and that nothing depends on itself in a circle.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed"; exit 77; }
exec python3 tests/lint/layers.py ${MUSTER_BIN:+"${MUSTER_BIN%/bin}"}
