#!/usr/bin/env bash
# cppcheck over everything that is compiled.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v cppcheck >/dev/null || { echo "SKIP: cppcheck is not installed"; exit 77; }
cppcheck --quiet -j2 --std=c11 --enable=warning,performance,portability --inline-suppr \
    --error-exitcode=1 --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
    --suppress=varFuncNullUB --suppressions-list=tests/lint/cppcheck.txt \
    -I . -D_GNU_SOURCE '-DMUSTER_VERSION="0"' worker collectives elastic rendezvous
