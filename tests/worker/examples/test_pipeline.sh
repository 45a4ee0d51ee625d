#!/usr/bin/env bash
# The example pipeline: one stage and four give the same result, over shared memory and TCP, and so do
# the three that are left when the last of four kills itself in the middle.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset MUSTER_RENDEZVOUS
fail() {
    echo "FAILED: $1"
    cat "$scratch"/*
    exit 1
}
# run NAME STAGES OPTIONS... -- ARGUMENTS...: the job's output goes to the file NAME.
run() {
    local name=$1 stages=$2
    shift 2
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    "$MUSTER_BIN/muster" run -n "$stages" "${options[@]}" -- "$MUSTER_BIN/pipeline" "$@" \
        >"$scratch/$name" 2>"$scratch/$name.errors" || fail "$name: exit status $?"
    digest=$(sed -n 's/.*steps, digest //p' "$scratch/$name")
    [ -n "$digest" ] || fail "$name: no digest"
}
run alone 1 -- 40
expected=$digest
run shm 4 -- 40
[ "$digest" = "$expected" ] || fail "shared memory: $digest, not $expected"
export MUSTER_SHARED_MEMORY=0
run tcp 3 -- 40
[ "$digest" = "$expected" ] || fail "TCP: $digest, not $expected"
for memory in 0 1; do
    export MUSTER_SHARED_MEMORY=$memory
    run death$memory 4 --min 2 -- 40 20
    [ "$digest" = "$expected" ] || fail "after a death: $digest, not $expected"
    grep -q "3 stages go on from step 20" "$scratch/death$memory" || fail "the others do not go on from step 20"
done
