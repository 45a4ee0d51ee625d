#!/usr/bin/env bash
# `muster plan` prints and proves schedules, and refuses impossible requests in one line.
set -u
muster=$MUSTER_BIN/muster
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect STATUS PATTERN ARGUMENTS...: the exit status, and a line of output that matches the pattern.
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
    [ -z "$("$muster" plan "$@" 2>/dev/null)" ] || fail "plan $*: it prints on standard output"
    [ "$("$muster" plan "$@" 2>&1 | wc -l)" = 1 ] || fail "plan $*: more than one line"
}

expect 0 'proven: allreduce hierarchical, P = 8 on 2 hosts (4,4)' \
    allreduce --ranks 8 --hosts 2 --algorithm hierarchical --check
expect 0 'proven: .* P = 8 on 3 hosts (3,1,4)' allreduce --hosts 3,1,4 --check
expect 0 'proven: .* P = 8 on 3 hosts (3,1,4) in 2 racks (2,1)' \
    allreduce --hosts 3,1,4 --racks 2 --check
expect 0 'in 2 racks (1,2)' allreduce --hosts 3,1,4 --racks 1,2 --check
expect 0 'rounds 6, the busiest rank sends 1.500 x count' \
    allreduce --ranks 4 --algorithm ring --check
expect 0 '"proven":true,"why":"","rounds":6,"elements_sent_max":12,' \
    allreduce --ranks 4 --algorithm ring --check --json
expect 0 'proven: barrier dissemination' barrier --ranks 9 --check
expect 0 'proven: allreduce .*, count 12, rounds ' allreduce --ranks 3 --count 12 --check
expect 0 'proven: reduce_scatter .*, 3 elements in blocks, ' reduce_scatter --ranks 2 --blocks 1,2 --check
expect 0 'proven: alltoallv .*, 3 elements in blocks, ' alltoallv --ranks 2 --blocks 1,2 --check
expect 0 'proven: .*, in place, ' allreduce --ranks 2 --in-place --check
# Group steps, where the ranks of a host share memory.
expect 0 'proven: allreduce host_memory, .* rounds 1, ' \
    allreduce --ranks 4 --algorithm host_memory --shared-memory --check
expect 0 '^  group allreduce  *a  *a$' allreduce --ranks 2 --algorithm host_memory --shared-memory
expect 0 '"kind":"group_allreduce","count":4,"scope":"host"' \
    allreduce --ranks 2 --algorithm host_memory --shared-memory --steps --json
expect 0 'host_memory  *0.3. us  <- chosen' allreduce --ranks 2 --shared-memory --simulate
expect 0 'group_allreduce over host of 4: input\[0..) to output\[0..)' \
    allreduce --ranks 2 --shared-memory --rank 1
expect 0 "gets the sum of its group" allreduce --ranks 2 --algorithm host_memory --shared-memory --svg -
expect 0 'Exit status: 0 done' --help
expect 0 '^allreduce  *ring_chunked  *two rings' --list
expect 0 "^allreduce  *ring  *.*; also: NCCL's Ring, RING\$" --list
expect 0 "^allreduce  *ring_whole  *.*; also: Gloo's allreduce_ring\$" --list
expect 0 '"name": *"allreduce_ring"' --list --json
expect 0 '^allreduce  *double_tree  .*[[]keep-input: scratch[]]' --list
expect 0 '^broadcast  *binomial  .*[[]finish-together: closing round[]]$' --list
expect 0 '"algorithm": *"ring",.*"keep_input": *"scratch","finish_together": *""' --list --json

# Promises: partial results go through scratch, and no rank finishes before all have started.
expect 0 'recv_reduce  from 3    scratch' allreduce --ranks 4 --algorithm ring --keep-input --rank 0
expect 0 'round 0   recv_reduce  from 3    output' allreduce --ranks 4 --algorithm ring --rank 0
expect 0 '^proven: allreduce ring, P = 4 on 1 host, count 8, in place, input kept, rounds 6' \
    allreduce --ranks 4 --algorithm ring --keep-input --check
expect 0 '^proven: broadcast one_to_all, .*, root 0, finishing together, rounds 3' \
    broadcast --ranks 5 --algorithm one_to_all --finish-together --check
expect 0 '"keep_input": *true,"finish_together": *true,"proven": *true' \
    reduce --ranks 5 --keep-input --finish-together --check --json
expect 0 'finishing together' broadcast --ranks 4 --finish-together --simulate
expect 0 'proven: allreduce ring_chunked, ' allreduce --ranks 4 --algorithm allreduce_ring_chunked --check
expect 0 '^| allreduce | `ring` | 2(P-1) |' --formulas

# The drawing: which rank sends which chunk to which rank, and the result.
expect 0 '^begins with  *abcd    abcd    abcd    abcd$' allreduce --ranks 4 --algorithm ring
expect 0 '^  sends  *a->1    b->2    c->3    d->0$' allreduce --ranks 4 --algorithm ring
expect 0 '^  adds  *d<-3    a<-0    b<-1    c<-2$' allreduce --ranks 4 --algorithm ring
expect 0 '^  receives  *d<-3' allreduce --ranks 4 --algorithm ring
expect 0 '| host 0  *| host 1' allreduce --ranks 4 --hosts 2 --algorithm ring
expect 0 '^  sends    lane 1 ' allreduce --ranks 4 --algorithm ring_chunked
expect 0 '^ends with  *abc  *abc  *abc$' allgather --ranks 3 --algorithm ring
expect 0 '()->1  *()->2' barrier --ranks 3

# Steps: of one rank, of all ranks if asked for, and of all ranks if a drawing would be too wide.
expect 0 '^a  *of 1 rank  *lane 0 round 0   send         to   1    input\[0..2)' \
    allreduce --ranks 4 --algorithm ring --rank 0
expect 0 'recv         from 2' broadcast --ranks 5 --root 2 --rank 4
[ "$("$muster" plan allreduce --ranks 6 --check | wc -l)" = 1 ] || fail "--check is one line"
[ "$("$muster" plan allreduce --ranks 6 --rank 3 | grep -c '^rank')" = 1 ] || fail "--rank lists one rank"
[ "$("$muster" plan allreduce --ranks 6 --steps | grep -c '^rank')" = 6 ] || fail "--steps lists all ranks"
[ "$("$muster" plan allreduce --ranks 100 | grep -c '^rank')" = 100 ] || fail "a drawing that is too wide is listed"

# Times.
expect 0 '^predicted: ring  *[0-9.]* us$' allreduce --ranks 4 --algorithm ring --simulate
expect 0 '^time 0, until [0-9.]* us$' allreduce --ranks 4 --algorithm ring --simulate
[ "$("$muster" plan allreduce --ranks 4 --simulate | grep -c '^predicted: .*<- chosen$')" = 1 ] ||
    fail "the chosen algorithm is marked once"
expect 0 '^predicted: halving_doubling' allreduce --ranks 2000 --algorithm halving_doubling --simulate
[ "$("$muster" plan allreduce --ranks 4 --hosts 2 --table | grep -o 's\*' | wc -l)" = 13 ] ||
    fail "one algorithm is marked for each size"
[ "$("$muster" plan broadcast --ranks 4 --table | grep -c '^binomial ')" = 1 ] ||
    fail "--table has a line for each algorithm"
[ "$("$muster" plan broadcast --ranks 4 --table --json | grep -c '"chosen":true}$')" = 13 ] ||
    fail "--table --json marks the fastest"
expect 0 '^{"rank":0,"lane":0,"round":0,"kind":"send","count":2,"peer":1,"source":"input","offset":0}$' \
    allreduce --ranks 4 --algorithm ring --rank 0 --json
expect 0 '"at":0,"start_us":0.0,"end_us":[0-9.]*}$' broadcast --ranks 2 --json --simulate
expect 0 '^{"collective":"barrier","algorithm":"dissemination",' --list --json
expect 0 '"algorithm":"halving_doubling","ranks":2000,.*"predicted_us":' \
    allreduce --ranks 2000 --algorithm halving_doubling --simulate --json

# Every algorithm that --list names can be proven.
while read -r collective algorithm _; do
    expect 0 '^proven' "$collective" --hosts 3,1,2 --algorithm "$algorithm" --check
done < <("$muster" plan --list)

refuse 'needs at least 2 hosts' allreduce --ranks 4 --algorithm hierarchical
refuse 'allreduce has no algorithm "tree"; it has ring' allreduce --ranks 4 --algorithm tree
refuse 'allreduce has no algorithm "broadcast_one_to_all"; it has ring' \
    allreduce --ranks 4 --algorithm broadcast_one_to_all
refuse 'no collective is called "all_reduce"' all_reduce --ranks 4
refuse 'a collective is missing' --ranks 4
refuse 'the number of ranks is missing' allreduce
refuse '"0" is not a number from 1 to 1048576' allreduce --ranks 0
refuse '"1048577" is not a number' allreduce --ranks 1048577
refuse '1025 ranks: .* at most 1024' allreduce --ranks 1025 --algorithm recursive_doubling
refuse '"" is not a number' allreduce --hosts 3,,1
refuse 'do not agree' allreduce --ranks 5 --hosts 3,1
refuse '2 ranks cannot be spread over 3 hosts' allreduce --ranks 2 --hosts 3
refuse 'ranks' allreduce --hosts 1000000,1000000
refuse '2 hosts cannot fill 3 racks' allreduce --ranks 4 --hosts 2 --racks 3
refuse '"x" is not a number' allreduce --ranks 4 --hosts 2 --racks x
refuse '^muster: --racks: ' allreduce --ranks 4 --hosts 2 --racks 1,2
refuse '"3" is not a number from 0 to 2' broadcast --ranks 3 --root 3
refuse 'allreduce has no root' allreduce --ranks 3 --root 1
refuse '"-1" is not a number of elements' allreduce --ranks 3 --count -1
refuse 'over the limit' allreduce --ranks 3 --count 18446744073709551615
refuse 'barrier has no count' barrier --ranks 3 --count 5
refuse 'has no blocks of different sizes' allreduce --ranks 2 --blocks 1,2
refuse '1 blocks, but 2 ranks need one each' reduce_scatter --ranks 2 --blocks 1
refuse 'more blocks than the 2 ranks' reduce_scatter --ranks 2 --blocks 1,2,3
refuse 'over the limit' reduce_scatter --ranks 2 --blocks 1,18446744073709551615
refuse 'barrier has no single count' barrier --ranks 3 --table
refuse 'is not a number from 0 to 3' allreduce --ranks 4 --rank 4

if [ -w /dev/full ]; then
    "$muster" plan allreduce --ranks 64 >/dev/full 2>/dev/null
    [ $? = 1 ] || fail "a full disk is not noticed"
fi
exit $failed
