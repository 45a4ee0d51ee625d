#!/usr/bin/env bash
# model_grid, end to end: a grid of process sets finds the weights with any number of workers, and while
# workers come and die.
set -eu
muster=$MUSTER_BIN/muster
grid=$MUSTER_BIN/model_grid
for needed in "$muster" "$grid" "$MUSTER_BIN/musterd"; do
    [ -x "$needed" ] || { echo "SKIP: there is no $(basename "$needed")"; exit 77; }
done

scratch=$(mktemp -d)
launcher=
clean_up() {
    if [ -n "$launcher" ]; then
        kill -TERM "$launcher" 2>/dev/null || true
        wait "$launcher" 2>/dev/null || true
    fi
    rm -rf "$scratch"
}
trap clean_up EXIT
fail() {
    echo "FAILED: $1"
    cat "$scratch"/*.log
    exit 1
}
weights='weights: 1.000 2.000 3.000 4.000 5.000 6.000 7.000 8.000'

for size in 1 3 4; do
    timeout 100 "$muster" run -n $size --no-prefix -- "$grid" >"$scratch/same$size.log" 2>&1 ||
        fail "$size workers: exit status $?"
    grep -qx "$weights" "$scratch/same$size.log" || fail "$size workers find other weights"
done
grep -qx '4 workers are a grid of 2 x 2' "$scratch/same4.log" || fail "no grid of 4"
grep -qx '3 workers are a grid of 3 x 1' "$scratch/same3.log" || fail "no grid of 3"

# Kill one of four, and grow to six.
log=$scratch/elastic.log
"$muster" run -n 4 --min 1 --max 6 --no-prefix --job grid --token-file "$scratch/token" -- "$grid" 3000 >"$log" 2>&1 &
launcher=$!
await_grid() {
    for _ in $(seq 1200); do
        ! grep -q "workers are a grid of $1" "$log" || return 0
        kill -0 $launcher 2>/dev/null || fail "the job ended before it was a grid of $1"
        sleep 0.05
    done
    fail "the job was never a grid of $1"
}
await_grid "2 x 2"
url=$(grep -oE 'http://[0-9.]+:[0-9]+' "$log" | head -n 1)
kill -KILL "$(pgrep -P $launcher -x model_grid | head -n 1)"
await_grid "3 x 1"
"$muster" job resize grid 6 --rendezvous "$url" --token-file "$scratch/token" >/dev/null
await_grid "3 x 2"
wait $launcher || fail "exit status $?"
launcher=
grep -qx "$weights" "$log" || fail "other weights after a death and newcomers"
grep -E 'grid|weights' "$log"
