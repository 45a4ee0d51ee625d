#!/usr/bin/env bash
# Settings are documented and tested.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed"; exit 77; }
exec python3 tests/lint/settings.py
