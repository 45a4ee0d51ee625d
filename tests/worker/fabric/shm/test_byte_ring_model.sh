#!/usr/bin/env bash
# The ring under the C11 memory model, as Relacy simulates it; and that each of its orders is needed.
set -eu
compiler=g++
if ! command -v $compiler >/dev/null || ! echo '#include <relacy/relacy.hpp>' | $compiler -E -x c++ - >/dev/null 2>&1; then
    echo "SKIP: there is no $compiler or no Relacy (in Debian: g++ relacy-dev)"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$MUSTER_SOURCE"

# model NAME FLAG...: builds the model and runs it.
model() {
    local name=$1
    shift
    # Relacy's own code has warnings; byte_ring.c is C, whose own build shows its warnings.
    $compiler -std=c++17 -O2 -w -I. "$@" -o "$folder/$name" tests/worker/fabric/shm/byte_ring_model.cc
    timeout 100 "$folder/$name" >"$folder/$name.out"
}

model ring || { tail -60 "$folder/ring.out"; exit 1; }
grep executions "$folder/ring.out"

# missed NAME WHAT FLAG: without that, the model finds WHAT.
missed() {
    if model "$1" "$3" || ! grep "executions" "$folder/$1.out" | grep -i "$2"; then
        echo "without $1 nothing of the kind \"$2\" was found"
        tail -20 "$folder/$1.out"
        exit 1
    fi
}
missed acquire "data race" -DACQUIRE=rl::mo_relaxed
missed release "data race" -DRELEASE=rl::mo_relaxed
missed fence "deadlock" -DNO_FENCE
