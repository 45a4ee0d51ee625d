/*
 * Binomial tree reduce: the broadcast's tree backward. In each round half of the ranks that still
 * hold a partial sum send theirs to another. ceil(log2 P) rounds; partial sums are kept in SCRATCH,
 * the root's in OUTPUT.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c).
 *
 * Four ranks, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 <- 1    2 <- 3
 *   round 1    0 <------ 2
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/level.h"

enum muster_buffer muster_reduce_binomial_part(struct muster_builder *builder,
                                               const struct muster_group *group, uint32_t root,
                                               enum muster_buffer source, struct muster_span span,
                                               enum muster_buffer sum)
{
    uint32_t size = group->size;
    uint32_t place = (group->index + size - root) % size;
    /* The lowest set bit of the place is the round in which its sum is sent; the bits below it are
     * the rounds in which it receives. */
    uint32_t children = muster_binomial_children(size, place);
    for (uint32_t bit = 0; bit < children; bit++) {
        uint64_t child = place + (UINT64_C(1) << bit);
        if (source == MUSTER_INPUT && sum == MUSTER_SCRATCH) {
            (void)muster_builder_reserve(builder, span.count);
        }
        muster_builder_recv_reduce(builder, muster_group_rank(group, child + root), source, span,
                                   sum, 0);
        muster_builder_next_round(builder);
        source = sum;
    }
    if (place > 0) {
        uint64_t parent = place & (place - 1);
        muster_builder_send(builder, muster_group_rank(group, parent + root), source, span);
        muster_builder_next_round(builder);
    }
    return source;
}

struct muster_step_totals muster_reduce_binomial_totals(uint64_t count, uint32_t size,
                                                        uint32_t place)
{
    uint32_t children = muster_binomial_children(size, place);
    return (struct muster_step_totals){.rounds = children + (place > 0 ? 1 : 0),
                                       .elements = place > 0 ? count : 0,
                                       .reduced = children * count};
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = {.size = plan->topology->ranks, .index = plan->rank};
    const struct muster_span span = {.count = plan->count};
    bool is_root = plan->rank == plan->root;
    if (all.size == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    (void)muster_reduce_binomial_part(builder, &all, plan->root, MUSTER_INPUT, span,
                                      is_root ? MUSTER_OUTPUT : MUSTER_SCRATCH);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : rounds,
                                           .elements = ranks == 1 ? 0 : plan->count,
                                           .reduced = rounds * plan->count};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = rounds, .elements = rounds * plan->count},
                        ret_formula);
}

const struct muster_generator muster_reduce_binomial_generator = {
    .rounds_text = "ceil(log2 P)",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
