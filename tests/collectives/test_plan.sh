#!/usr/bin/env bash
# `muster plan` prints and proves schedules, and refuses impossible requests in one line.
set -u
muster=$MUSTER_BIN/muster
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect STATUS PATTERN ARGUMENTS...: the exit status, and a line of output like the pattern.
expect() {
    local status=$1 pattern=$2
    shift 2
    local said code
    said=$("$muster" plan "$@" 2>&1)
    code=$?
    [ "$code" = "$status" ] || fail "plan $*: exit status $code instead of $status: $said"
    grep -q -e "$pattern" <<<"$said" || fail "plan $*: no \"$pattern\" in: $said"
}

# refuse PATTERN ARGUMENTS...: exit status 2, one line, nothing on standard output.
refuse() {
    local pattern=$1
    shift
    expect 2 "$pattern" "$@"
    [ -z "$("$muster" plan "$@" 2>/dev/null)" ] || fail "plan $*: it prints a plan all the same"
    [ "$("$muster" plan "$@" 2>&1 | wc -l)" = 1 ] || fail "plan $*: more than one line"
}

expect 0 'proven: allreduce hierarchical, P = 8 on 2 hosts (4,4)' \
    allreduce --ranks 8 --hosts 2 --algorithm hierarchical --check
expect 0 'proven: .* P = 8 on 3 hosts (3,1,4)' allreduce --hosts 3,1,4 --check
expect 0 'rounds 6, the busiest rank sends 1.500 x count' \
    allreduce --ranks 4 --algorithm ring_two_phase --check
expect 0 '^lane 0 round 0   send         to   1    input\[0..1)' \
    allreduce --ranks 4 --algorithm ring_two_phase
expect 0 'recv         from 2' broadcast --ranks 5 --root 2 --rank 4
expect 0 'proven: barrier dissemination' barrier --ranks 9 --check
expect 0 'Exit status: 0 done' --help
expect 0 '^allreduce  *ring_chunked  *two rings' --list

[ "$("$muster" plan allreduce --ranks 6 --check | wc -l)" = 1 ] || fail "--check is one line"
[ "$("$muster" plan allreduce --ranks 6 --rank 3 | grep -c '^rank')" = 1 ] || fail "--rank is one"
[ "$("$muster" plan allreduce --ranks 6 | grep -c '^rank')" = 6 ] || fail "all ranks are printed"

# Whatever --list names can be proven.
while read -r collective algorithm _; do
    expect 0 '^proven' "$collective" --hosts 3,1,2 --algorithm "$algorithm" --check
done < <("$muster" plan --list)

refuse 'needs at least 2 hosts' allreduce --ranks 4 --algorithm hierarchical
refuse 'no algorithm "tree": there are ring' allreduce --ranks 4 --algorithm tree
refuse 'no collective is called "all_reduce"' all_reduce --ranks 4
refuse 'a collective is missing' --ranks 4
refuse 'how many ranks' allreduce
refuse '"0" is not a number from 1 to 1024' allreduce --ranks 0
refuse '"1025" is not a number' allreduce --ranks 1025
refuse '"" is not a number' allreduce --hosts 3,,1
refuse 'do not agree' allreduce --ranks 5 --hosts 3,1
refuse '2 ranks cannot be spread over 3 hosts' allreduce --ranks 2 --hosts 3
refuse 'at most 1024' allreduce --hosts 1000,1000
refuse '"3" is not a number from 0 to 2' broadcast --ranks 3 --root 3
refuse 'allreduce has no root' allreduce --ranks 3 --root 1
refuse '"-1" is not a number of elements' allreduce --ranks 3 --count -1
refuse 'over the limit' allreduce --ranks 3 --count 18446744073709551615
refuse 'barrier has no count' barrier --ranks 3 --count 5
refuse 'is not a number from 0 to 3' allreduce --ranks 4 --rank 4

if [ -w /dev/full ]; then
    "$muster" plan allreduce --ranks 64 >/dev/full 2>/dev/null
    [ $? = 1 ] || fail "a full disk is not noticed"
fi
exit $failed
