#!/usr/bin/env bash
# The commands of rendezvous/README.md work as they stand there, and say what they should.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../..}
. "$source/tests/rendezvous/musterd.sh"
serve --store memory
commands=$(sed -n '/^```sh$/,/^```$/p' "$source/rendezvous/README.md" | grep -v '^```' |
    sed "s/127.0.0.1:7070/127.0.0.1:$port/")
bash -eu -c "$commands" >"$folder/said" 2>&1 || fail "the commands fail: $(cat "$folder/said")"
for part in '"rank":0' '"rank":1' '"revoked":false' '"value":"aGVsbG8="' '"phase":"JOB_PHASE_FORMING"' \
    'done here' '"jobs":\[{"name":"demo"'; do
    grep -q -- "$part" "$folder/said" || fail "nothing said $part: $(cat "$folder/said")"
done

# And its table of options is the program's.
"$musterd" --help >"$folder/help"
while read -r option; do
    grep -q -- "$option" "$folder/help" || fail "musterd --help has no $option"
done < <(sed -nE 's/^\| `(--[a-z-]+) .*/\1/p' "$source/rendezvous/README.md")
stop 0
echo "PASS"
