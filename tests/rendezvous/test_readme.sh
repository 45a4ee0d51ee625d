#!/usr/bin/env bash
# The commands of rendezvous/README.md work as they stand there, and print what they should.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"
serve --store memory
commands=$(sed -n '/^```sh$/,/^```$/p' "$source/rendezvous/README.md" | grep -v '^```' |
    sed "s/127.0.0.1:7070/127.0.0.1:$port/")
bash -eu -c "$commands
wait" >"$folder/printed" 2>&1 || fail "the commands fail: $(cat "$folder/printed")"
for part in '"rank":0' '"rank":1' '"revoked":true' '"value":"aGVsbG8="' '"phase":"JOB_PHASE_FORMING"' \
    'done here' '"jobs":\[{"name":"demo"'; do
    grep -q -- "$part" "$folder/printed" || fail "no $part in: $(cat "$folder/printed")"
done
stop 0
echo "PASS"
