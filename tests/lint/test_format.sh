#!/usr/bin/env bash
# clang-format decides the layout.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v clang-format >/dev/null || { echo "SKIP: clang-format is not installed"; exit 77; }
find worker collectives elastic rendezvous tests -name '*.[ch]' -print0 |
    xargs -0 clang-format --dry-run --Werror
