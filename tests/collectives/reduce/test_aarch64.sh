#!/usr/bin/env bash
# The reduction kernels for 64-bit ARM: compiled by a cross compiler and run under an emulator.
set -eu
compiler=aarch64-linux-gnu-gcc
emulator=qemu-aarch64
for program in $compiler $emulator; do
    command -v $program >/dev/null || {
        echo "there is no $program (in Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
        exit 77
    }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$MUSTER_SOURCE"
$compiler -std=gnu17 -D_GNU_SOURCE "-DMUSTER_VERSION=\"0\"" -O3 -fno-trapping-math -fno-math-errno -ffp-contract=off \
    -fno-strict-aliasing -Wall -Wextra -Werror -static -I. -o "$folder/kernels" \
    collectives/reduce/*.c collectives/call/types.c collectives/call/names.c collectives/call/compression.c worker/base/status.c \
    tests/support/elements.c tests/collectives/reduce/aarch64_kernels.c -lm
timeout 100 $emulator "$folder/kernels"
