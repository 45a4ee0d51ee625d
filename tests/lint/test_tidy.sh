#!/usr/bin/env bash
# clang-tidy over every file of ours; tidy.py says how. MUSTER_DEEP makes it search without a limit of ours, and
# MUSTER_TIDY_FILES names the files, if not all.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v clang-tidy >/dev/null || { echo "SKIP: clang-tidy is not installed"; exit 77; }
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed"; exit 77; }
build=${MUSTER_BIN:-build/release/bin}
build=${build%/bin}
[ -f "$build/compile_commands.json" ] || { echo "SKIP: no compile_commands.json"; exit 77; }
# shellcheck disable=SC2086
exec python3 tests/lint/tidy.py "$build" ${MUSTER_DEEP:+--deep} ${MUSTER_TIDY_FILES:-}
