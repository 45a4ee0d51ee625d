#!/usr/bin/env bash
# The commands of rendezvous/horovod/README.md work as they stand there, and print what they should.
set -eu
source=${MUSTER_SOURCE:-$(dirname "$0")/../../..}
. "$source/tests/rendezvous/musterd.sh"
serve --store memory
commands=$(sed -n '/^```sh$/,/^```$/p' "$source/rendezvous/horovod/README.md" | grep -v '^```' |
    sed "s/127.0.0.1:7070/127.0.0.1:$port/")
[ -n "$commands" ] || fail "the README has no commands"
bash -eu -c "$commands" >"$folder/printed" 2>&1 || fail "the commands fail: $(cat "$folder/printed")"
diff - "$folder/printed" <<'END' || fail "this was printed"
round 1 formed
a:0 0,4,0,2,0,2 new
a:1 1,4,1,2,0,2 new
b:0 2,4,0,2,1,2 new
b:1 3,4,1,2,1,2 new
round 1 formed
a:0 0,4,0,2,0,2 new
a:1 1,4,1,2,0,2 new
b:0 2,4,0,2,1,2 new
b:1 3,4,1,2,1,2 exited
END
stop 0
echo "PASS"
