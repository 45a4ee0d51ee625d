/*
 * Ring allreduce in two phases: reduce-scatter around the ring, then allgather around it. P chunks,
 * 2(P-1) rounds; every rank sends about 2(P-1)/P of the data, the least that is possible.
 *
 * Source: P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of
 * workstations. Journal of Parallel and Distributed Computing 69 (2009).
 *
 * Four ranks; a digit is a chunk, and each rank sends to the next:
 *
 *   round           0        1        2     |   3        4        5
 *   rank 0 sends    0        3        2     |   1        0        3
 *   rank 1 sends    1        0        3     |   2        1        0
 *   rank 2 sends    2        1        0     |   3        2        1
 *   rank 3 sends    3        2        1     |   0        3        2
 *                   the receiver reduces    |   the receiver keeps
 *
 * After round 2, rank r has the sum of chunk r+1. Each chunk is reduced at one rank after the
 * other, in one order, and then copied, so all ranks end with the same bits.
 */
#include "collectives/algorithms/generators.h"

void muster_ring_round(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span span, uint32_t round,
                       bool backward)
{
    uint32_t size = group->size;
    /* Backward it is the same ring, with the members numbered from the other end. */
    uint64_t place = backward ? size - 1 - group->index : group->index;
    uint32_t after = muster_group_rank(group, (uint64_t)group->index + 1);
    uint32_t before = muster_group_rank(group, (uint64_t)group->index + size - 1);
    /* 2 x size is added so that it is never negative. */
    uint64_t out = (place + 2 * (uint64_t)size - round) % size;
    struct muster_span outgoing = muster_span_part(span, size, out);
    struct muster_span incoming = muster_span_part(span, size, (out + size - 1) % size);
    uint32_t from = backward ? after : before;
    muster_builder_send(builder, backward ? before : after, round == 0 ? source : MUSTER_OUTPUT,
                        outgoing);
    if (round < size - 1) {
        muster_builder_recv_reduce(builder, from, source, incoming, MUSTER_OUTPUT, incoming.offset);
    } else {
        muster_builder_recv(builder, from, MUSTER_OUTPUT, incoming);
    }
}

void muster_ring_part(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    if (group->size == 1) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
        return;
    }
    for (uint32_t round = 0; round < 2 * (group->size - 1); round++) {
        muster_ring_round(builder, group, source, span, round, false);
        muster_builder_next_round(builder);
    }
}

/* In each phase a member sends all chunks but one: index+1 in the first, index+2 in the second. */
uint64_t muster_ring_part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    if (size == 1) {
        return 0;
    }
    struct muster_span span = {.count = count};
    return 2 * count - muster_span_part(span, size, ((uint64_t)index + 1) % size).count -
           muster_span_part(span, size, ((uint64_t)index + 2) % size).count;
}

uint32_t muster_ring_part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    (void)count; /* empty messages are sent too */
    (void)index; /* all ranks of a ring have the same rounds */
    return 2 * (size - 1);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    /* Larger chunks come first, so the rank that leaves out the last two chunks sends most. */
    uint64_t elements = muster_ring_part_elements(plan->count, ranks, (2 * ranks - 3) % ranks);
    *ret_formula = (struct muster_formula){
        .rounds = ranks == 1 ? plan->count > 0 : muster_ring_part_rounds(plan->count, ranks, 0),
        .elements = elements,
        .reduced = elements / 2};
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = ret_formula->rounds, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_ring_generator = {
    .rounds_text = "2(P-1)",
    .elements_text = "2n(P-1)/P",
    .part = muster_ring_part,
    .formula = find_formula,
};
