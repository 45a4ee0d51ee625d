/*
 * Reproducible reduce: along a binomial tree that is the tree of the reduction order, to the first
 * rank of that order, which sends the result to the root. ceil(log2 P) rounds, and one more if the
 * root is not the first rank.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.4; the order as in
 * ordered.h.
 *
 * Four ranks, numbered in the reduction order; the root is the third of them:
 *
 *   round    0              1          2
 *            1 --> 0        2 --> 0    0 --> 2
 *            3 --> 2
 */
#include "collectives/algorithms/generators.h"

/* Receives and sends partial sums. The first one that is received moves the sum from INPUT to
 * `room`. Returns the buffer that has it. */
static enum muster_buffer collect(const struct muster_plan *plan, struct muster_builder *builder,
                                  const struct muster_group *group, enum muster_buffer room)
{
    const struct muster_span all = {.count = plan->count};
    enum muster_buffer held = MUSTER_INPUT;
    for (uint32_t bit = 1; bit < group->size; bit *= 2) {
        if ((group->index & bit) != 0) {
            muster_builder_send(builder, muster_group_rank(group, group->index - bit), held, all);
            muster_builder_next_round(builder);
            break;
        }
        if (bit < group->size - group->index) {
            muster_builder_recv_reduce(builder, muster_group_rank(group, group->index + bit), held,
                                       all, room, 0);
            muster_builder_next_round(builder);
            held = room;
        }
    }
    return held;
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group group = muster_group_all(plan);
    const struct muster_span all = {.count = plan->count};
    uint32_t first = muster_group_rank(&group, 0);
    bool is_root = plan->rank == plan->root;
    bool in_output = is_root && plan->rank == first;
    bool receives = group.index % 2 == 0 && group.index + 1 < group.size;
    if (receives && !in_output) {
        (void)muster_builder_reserve(builder, plan->count);
    }
    enum muster_buffer held =
        collect(plan, builder, &group, in_output ? MUSTER_OUTPUT : MUSTER_SCRATCH);
    if (in_output && held == MUSTER_INPUT) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    } else if (plan->rank == first && !is_root) {
        muster_builder_send(builder, plan->root, held, all);
    } else if (is_root && plan->rank != first) {
        muster_builder_recv(builder, first, MUSTER_OUTPUT, all);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    uint32_t first = plan->reduction_order != NULL ? plan->reduction_order[0] : 0;
    uint32_t more = plan->root != first ? 1 : 0;
    uint32_t copies = ranks == 1 && plan->count > 0 ? 1 : 0;
    *ret_formula = (struct muster_formula){.rounds = rounds + more + copies,
                                           .elements = ranks > 1 ? plan->count : 0,
                                           .reduced = rounds * plan->count};
    for (uint32_t round = 0; round < rounds; round++) {
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << round, 1, plan->count);
    }
    muster_formula_add(ret_formula, plan->topology, UINT64_MAX, more, more * plan->count);
}

const struct muster_generator muster_ordered_binomial_generator = {
    .rounds_text = "ceil(log2 P); root not first: 1 more",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
