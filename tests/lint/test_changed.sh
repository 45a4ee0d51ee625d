#!/usr/bin/env bash
# changed.py, which says for tests/run --changed what a change can break: neither too little nor everything.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
command -v python3 >/dev/null || { echo "SKIP: python3 is not installed"; exit 77; }
build=${MUSTER_BIN:-build/release/bin}
build=${build%/bin}
fail() { echo "FAIL: $*"; exit 1; }

# after FILE...: sets names to the tests that a change to these files can break.
after() {
    changed=$*
    names=" $(python3 tests/changed.py "$build" "$@" | xargs) "
}
breaks() {
    local name
    for name in "$@"; do
        case $names in *" $name "*) ;; *) fail "a change to $changed breaks $name, and it is not named:$names" ;; esac
    done
}
spares() {
    local name
    for name in "$@"; do
        case $names in *" $name "*) fail "a change to $changed cannot break $name, and it is named" ;; esac
    done
}

after worker/base/status.c # in every program
breaks worker/base/status worker/session/join rendezvous/musterd e2e/chaos lint/tidy
after worker/base/status.h
breaks worker/base/status elastic/messages/messages
after elastic/membership/membership.c # through libraries, and through musterd, which a test starts
breaks elastic/membership/random rendezvous/service/jobs worker/session/join e2e/recovery lint/layers
spares worker/fabric/tcp/tcp_dial collectives/check/mutants worker/base/cores
after worker/cli/timeline/timeline_svg.c # one command
breaks worker/cli/timeline
spares collectives/check/mutants worker/session/join
after tests/worker/base/test_cores.c # one program
breaks worker/base/cores lint/format
spares worker/base/status
after tests/rendezvous/musterd.sh # read by scripts beside it
breaks rendezvous/musterd rendezvous/full_disk
spares elastic/membership/random
after README.md # words
breaks lint/house
spares worker/base/cores worker/session/join
after worker/base/gone.c # deleted
breaks worker/base/status lint/layers
spares collectives/check/mutants
after README.md tests/CMakeLists.txt # how everything is built
[ "$names" = " * " ] || fail "a change to tests/CMakeLists.txt breaks only$names"
! python3 tests/changed.py "$build/nothing" README.md 2>/dev/null || fail "a folder that is no build is one"
echo "a change names the tests that it can break"
