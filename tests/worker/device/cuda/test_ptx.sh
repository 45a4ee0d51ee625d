#!/usr/bin/env bash
# The kernels for GPUs as the build has made them: what the compiler must not do, and, where NVIDIA's assembler is,
# that it takes them for several architectures without spilling registers.
set -eu
ptx=$MUSTER_BIN/../worker/kernels.ptx
if [ ! -s "$ptx" ]; then
    echo "SKIP: this build has no kernels for GPUs: there was no clang for nvptx64"
    exit 77
fi

# Each step is rounded once and keeps denormals, as on the CPU.
if grep -nE '^\s*(fma|mad)\.|\.ftz|\.approx|\s(add|sub|mul)\.f(32|64)' "$ptx"; then
    echo "these instructions round differently from the CPU's" >&2
    exit 1
fi
# clang 14 takes such a bit field for a masked sign, and zeros come in from above.
if awk '$1 ~ /^bfe\.[us](32|64)$/ && $(NF - 1) + $NF > substr($1, length($1) - 1) + 0 { print; found = 1 } END { exit !found }' "$ptx"; then
    echo "these bit fields reach beyond their words" >&2
    exit 1
fi
if grep -n local_depot "$ptx"; then
    echo "these elements are in memory instead of registers" >&2
    exit 1
fi

assembler=$(PATH=$PATH:/usr/local/cuda/bin command -v ptxas) || {
    echo "SKIP: there is no ptxas, NVIDIA's assembler, to assemble the kernels"
    exit 77
}
kernels=$(grep -c '^\.visible \.entry' "$ptx")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
known=$("$assembler" --help)
checked=
for architecture in sm_60 sm_75 sm_90 sm_120; do
    grep -q "'$architecture'" <<<"$known" || continue
    "$assembler" -arch=$architecture -v "$ptx" -o "$folder/cubin" 2>"$folder/log"
    if [ "$(grep -c ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$folder/log")" != "$kernels" ]; then
        grep 'bytes stack frame' "$folder/log" >&2
        echo "$architecture: some of $kernels kernels spill registers" >&2
        exit 1
    fi
    checked="$checked $architecture"
done
echo "$kernels kernels, no spills:$checked"
[ -n "$checked" ]
