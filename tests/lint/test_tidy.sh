#!/usr/bin/env bash
# clang-tidy over every file of ours, with the flags it is compiled with. A file whose text, headers
# and configuration passed before is not looked at again (stamps in the build folder).
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v clang-tidy >/dev/null || { echo "SKIP: clang-tidy is not installed"; exit 77; }
build=${MUSTER_BIN%/bin}
[ -f "$build/compile_commands.json" ] || { echo "SKIP: no compile_commands.json"; exit 77; }
stamps=$build/tidy-stamps
mkdir -p "$stamps"
common=$(cat .clang-tidy $(find worker collectives elastic rendezvous -name '*.h' | LC_ALL=C sort) | sha256sum)

check_one() {
    stamp=$stamps/$( (echo "$common" "$1"; cat "$1") | sha256sum | cut -c1-32)
    [ -f "$stamp" ] && return 0
    if clang-tidy --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option "$1" 2>/dev/null >"$stamp.log"; then
        touch "$stamp"
        rm "$stamp.log"
    else
        cat "$stamp.log"
        return 1
    fi
}
export -f check_one
export stamps common build
find worker collectives elastic rendezvous -name '*.c' | LC_ALL=C sort |
    xargs -P "$(nproc)" -I{} bash -c 'check_one {}'
