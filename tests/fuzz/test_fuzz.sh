#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each from its corpus: 5 s, or with "all" 3 minutes. What fails is named with
# the input that does it. MUSTER_FUZZ_KEEP=FOLDER collects inputs that reach new code there.
set -eu
source=$(realpath "${MUSTER_SOURCE:-$(dirname "$0")/../..}")
bin=$(realpath "${MUSTER_BIN:-$source/build/release/bin}")
build=${bin%/bin}-fuzz
seconds=5
[ "${1:-}" != all ] || seconds=180
command -v clang >/dev/null || { echo "SKIP: there is no clang"; exit 77; }
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long s); int LLVMFuzzerTestOneInput(const char *d, unsigned long s) { return d && s > 9 ? 0 : 0; }' |
    clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null || { echo "SKIP: clang has no libFuzzer (Debian: libclang-rt-14-dev)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! { cmake -G Ninja -S "$source" -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1" -DMUSTER_SANITIZE=fuzzer-no-link,address,undefined \
    -DMUSTER_TESTS=OFF -DMUSTER_FUZZ=ON && cmake --build "$build" -j2 --target fuzz_messages fuzz_routes fuzz_store; } >"$scratch/log" 2>&1; then
    grep -iE "error|warning" "$scratch/log" || tail -n 20 "$scratch/log"
    exit 1
fi
failed=0
for name in messages routes store; do
    mkdir -p "$scratch/$name"
    if ASAN_OPTIONS=detect_leaks=1 "$build/bin/fuzz_$name" -max_total_time=$seconds -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
        -dict="$source/tests/fuzz/words.dict" -artifact_prefix="$scratch/" -print_final_stats=1 \
        "$scratch/$name" "$source/tests/fuzz/corpus/$name" >"$scratch/log" 2>&1; then
        echo "- $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$scratch/log") inputs in $seconds s," \
            "coverage $(grep -oE 'cov: [0-9]+' "$scratch/log" | tail -n 1 | tr -dc 0-9)"
    else
        failed=1
        tail -n 40 "$scratch/log"
        for input in "$scratch"/crash-* "$scratch"/leak-* "$scratch"/timeout-* "$scratch"/oom-*; do
            [ ! -f "$input" ] || { echo "FAIL: $name, with this input, base64:"; base64 -w 0 "$input"; echo; rm "$input"; }
        done
    fi
    [ -z "${MUSTER_FUZZ_KEEP:-}" ] || { mkdir -p "$MUSTER_FUZZ_KEEP/$name"; "$build/bin/fuzz_$name" -merge=1 "$MUSTER_FUZZ_KEEP/$name" "$source/tests/fuzz/corpus/$name" "$scratch/$name" >/dev/null 2>&1; }
done
exit $failed
