#!/usr/bin/env bash
# open_with_files: processes that a shell loop starts meet in a folder, on one host and on pretended ones whose
# ranks are mixed; and what they say about wrong arguments and members that do not fit.
set -eu
program=$MUSTER_BIN/open_with_files
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset MUSTER_RENDEZVOUS
fail() {
    echo "FAILED: $1"
    cat "$scratch"/out.* 2>/dev/null
    exit 1
}
# meet NAME SIZE HOSTS: so many processes, rank i on the host i modulo HOSTS; their lines, sorted, in out.NAME.
meet() {
    local folder=$scratch/$1 rank pids=() pid
    mkdir "$folder"
    for ((rank = 0; rank < $2; rank++)); do
        MUSTER_HOST=host$((rank % $3)) MUSTER_LISTEN=127.0.0.1 "$program" $rank "$2" "$folder" >"$folder.$rank" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || true
    done
    sort "$folder".[0-9]* >"$scratch/out.$1"
}
meet one 4 1
[ "$(cat "$scratch/out.one")" = "rank 0 of 4 (local 0 of 4): 1 + ... + 4 = 10
rank 1 of 4 (local 1 of 4): 1 + ... + 4 = 10
rank 2 of 4 (local 2 of 4): 1 + ... + 4 = 10
rank 3 of 4 (local 3 of 4): 1 + ... + 4 = 10" ] || fail "4 processes on one host"
meet two 5 2
[ "$(cat "$scratch/out.two")" = "rank 0 of 5 (local 0 of 3): 1 + ... + 5 = 15
rank 1 of 5 (local 0 of 2): 1 + ... + 5 = 15
rank 2 of 5 (local 1 of 3): 1 + ... + 5 = 15
rank 3 of 5 (local 1 of 2): 1 + ... + 5 = 15
rank 4 of 5 (local 2 of 3): 1 + ... + 5 = 15" ] || fail "5 processes on 2 hosts"
MUSTER_ALGORITHM=allreduce=swing meet algorithm 4 4
[ "$(grep -c '= 10$' "$scratch/out.algorithm")" = 4 ] || fail "4 processes on 4 hosts with an algorithm"

# refuse STATUS TEXT ARGUMENTS...: one line of errors with that text.
refuse() {
    local expected=$1 text=$2 status=0
    shift 2
    "$program" "$@" >"$scratch/out.refuse" 2>&1 || status=$?
    [ $status = "$expected" ] || fail "exit status $status for: $*"
    grep -qF -- "$text" "$scratch/out.refuse" || fail "no \"$text\" for: $*"
}
refuse 2 "usage: open_with_files RANK SIZE FOLDER"
refuse 2 '"two": must be a number' 0 two "$scratch"
refuse 1 "open_with: rank 3 of size 3" 3 3 "$scratch"
refuse 1 "none/0.part: No such file" 0 1 "$scratch/none"
refuse 1 "one/0: File exists" 0 4 "$scratch/one"
refuse 1 "the exchange function of rank 0 of 1 returned 1" 0 1 "$scratch/none"
echo "ok"
