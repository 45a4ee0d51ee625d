/*
 * Binomial tree broadcast: in each round every rank that has the data sends it to one that does
 * not. ceil(log2 P) rounds; the root sends in each of them.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), on broadcast.
 *
 * Four ranks, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 ------> 2
 *   round 1    0 -> 1    2 -> 3
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/level.h"

void muster_broadcast_binomial_part(struct muster_builder *builder,
                                    const struct muster_group *group, uint32_t root,
                                    enum muster_buffer source, struct muster_span span)
{
    uint32_t size = group->size;
    uint32_t place = (group->index + size - root) % size;
    /* The lowest set bit of the place is the round in which the data arrives; the bits below it are
     * the rounds in which it is sent on. */
    uint32_t below = muster_log2_up(size);
    if (place > 0) {
        below = (uint32_t)__builtin_ctz(place);
        uint64_t parent = place - (UINT32_C(1) << below);
        muster_builder_recv(builder, muster_group_rank(group, parent + root), MUSTER_OUTPUT, span);
        muster_builder_next_round(builder);
    }
    while (below-- > 0) {
        uint64_t child = place + (UINT64_C(1) << below);
        if (child < size) {
            muster_builder_send(builder, muster_group_rank(group, child + root), source, span);
            muster_builder_next_round(builder);
        }
    }
}

struct muster_step_totals muster_broadcast_binomial_totals(uint64_t count, uint32_t size,
                                                           uint32_t place)
{
    uint32_t children = muster_binomial_children(size, place);
    return (struct muster_step_totals){.rounds = children + (place > 0 ? 1 : 0),
                                       .elements = children * count};
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = {.size = plan->topology->ranks, .index = plan->rank};
    const struct muster_span span = {.count = plan->count};
    bool is_root = plan->rank == plan->root;
    if (is_root) {
        muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_OUTPUT, 0);
    }
    muster_broadcast_binomial_part(builder, &all, plan->root,
                                   is_root ? MUSTER_INPUT : MUSTER_OUTPUT, span);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : rounds,
                                           .elements = rounds * plan->count};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = rounds, .elements = ret_formula->elements},
                        ret_formula);
}

const struct muster_generator muster_broadcast_binomial_generator = {
    .rounds_text = "ceil(log2 P)",
    .elements_text = "n ceil(log2 P)",
    .generate = generate,
    .formula = find_formula,
};
