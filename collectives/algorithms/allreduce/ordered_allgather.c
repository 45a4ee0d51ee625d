/*
 * Reproducible allreduce for small calls: every rank collects all inputs, as in Bruck's allgather,
 * and reduces them along the tree of the reduction order. ceil(log2 P) rounds of messages, and P-1
 * times the data.
 *
 * Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for
 * all-to-all communications in multiport message-passing systems. IEEE TPDS 8 (1997); the order as
 * in ordered.h.
 *
 * Four members, numbered in the reduction order; the inputs and sums that member 0 has:
 *
 *   round    0          1              2            3
 *            0 1        0 1 2 3        0+1 2+3      (0+1)+(2+3)
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/ordered.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Bruck's allgather: slot number i of scratch receives the input of the member i places further on.
 */
static void gather(const struct muster_plan *plan, struct muster_builder *builder,
                   const struct muster_group *group, uint64_t slots)
{
    const struct muster_span all = {.count = plan->count};
    muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_SCRATCH, slots);
    for (uint32_t have = 1; have < group->size; have *= 2) {
        uint32_t more = have < group->size - have ? have : group->size - have;
        uint32_t to = muster_group_rank(group, (uint64_t)group->index + group->size - have);
        uint32_t from = muster_group_rank(group, (uint64_t)group->index + have);
        struct muster_span sent = {.offset = slots, .count = more * plan->count};
        struct muster_span received = {.offset = slots + have * plan->count,
                                       .count = more * plan->count};
        muster_builder_send(builder, to, have == 1 ? MUSTER_INPUT : MUSTER_SCRATCH,
                            have == 1 ? all : sent);
        muster_builder_recv(builder, from, MUSTER_SCRATCH, received);
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group group = muster_group_all(plan);
    const struct muster_span all = {.count = plan->count};
    if (group.size == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    AUTO_FREE struct muster_partial_sum *nodes = calloc(group.size, sizeof *nodes);
    if (nodes == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " ranks",
                                group.size);
    }
    uint64_t slots = 0;
    for (uint32_t place = 0; place < group.size; place++) {
        uint64_t at = muster_builder_reserve(builder, plan->count);
        uint32_t member = (uint32_t)(((uint64_t)group.index + place) % group.size);
        slots = place == 0 ? at : slots;
        nodes[member] =
            (struct muster_partial_sum){.first = member, .buffer = MUSTER_SCRATCH, .at = at};
    }
    gather(plan, builder, &group, slots);
    uint32_t count = group.size;
    (void)muster_ordered_merge(builder, group.size, plan->count, nodes, &count);
    muster_builder_copy(builder, MUSTER_SCRATCH,
                        (struct muster_span){.offset = nodes[0].at, .count = plan->count},
                        MUSTER_OUTPUT, 0);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t messages = muster_log2_up(ranks);
    uint64_t elements = plan->count * (ranks - 1);
    *ret_formula =
        (struct muster_formula){.rounds = messages + (plan->count > 0 ? messages + 1 : 0),
                                .elements = elements,
                                .reduced = elements};
    for (uint32_t round = 0; round < messages; round++) {
        uint64_t have = UINT64_C(1) << round;
        uint64_t more = have < ranks - have ? have : ranks - have;
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << round, 1,
                           more * plan->count);
    }
}

const struct muster_generator muster_ordered_allgather_generator = {
    .rounds_text = "2 ceil(log2 P) + 1",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
