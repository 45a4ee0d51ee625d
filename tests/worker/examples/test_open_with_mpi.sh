#!/usr/bin/env bash
# A communicator among the processes of mpirun (open_with_mpi.c), where there is an MPI.
set -eu
for tool in mpicc mpirun; do
    if ! command -v $tool >/dev/null; then
        echo "SKIP: there is no $tool"
        exit 77
    fi
done
build=$(dirname "$MUSTER_BIN")
library=$(find "$build" -name libmuster.so -print -quit)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if nm "$library" | grep -qE '__(asan|tsan)_init'; then
    echo "SKIP: MPI's programs cannot load a library with a sanitizer"
    exit 77
fi
mpicc -std=c17 -Wall -Wextra -Werror -I"$build/include" "$(dirname "$0")/open_with_mpi.c" -o "$scratch/open_with_mpi" \
    -L"$(dirname "$library")" -lmuster -Wl,-rpath,"$(dirname "$library")"
unset MUSTER_RENDEZVOUS
for size in 1 2 5; do
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MUSTER_LISTEN=127.0.0.1 timeout 120 mpirun --oversubscribe \
        -n $size "$scratch/open_with_mpi" >"$scratch/out" 2>&1 || {
        cat "$scratch/out"
        exit 1
    }
    for ((rank = 0; rank < size; rank++)); do
        grep -qx "rank $rank of $size: the same as MPI" "$scratch/out" || {
            echo "FAILED: no line of rank $rank of $size"
            cat "$scratch/out"
            exit 1
        }
    done
done
echo "ok"
