#!/usr/bin/env bash
# The example work_queue: every piece is done once, and all workers have a part.
set -eu
output=$(mktemp)
trap 'rm -f "$output"' EXIT
unset MUSTER_RENDEZVOUS
"$MUSTER_BIN/muster" run -n 4 -- "$MUSTER_BIN/work_queue" 200 >"$output"
if [ "$(grep -c "of 200 pieces, whose sum is 20100$" "$output")" != 4 ] || grep -q "did 0 of" "$output"; then
    echo "FAILED: not 200 pieces by 4 workers:"
    cat "$output"
    exit 1
fi
