/*
 * Recursive doubling allreduce: in round k partners at distance 2^k exchange all they have and both
 * reduce it. Fewest rounds, but the whole data in each: for small calls.
 *
 * Where P is not a power of two, each of the first 2(P - 2^k) even ranks first gives its data to
 * its neighbour, and gets the result back at the end.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.5.
 *
 * Four ranks:
 *
 *   round 0    0 <-> 1    2 <-> 3
 *   round 1    0 <-> 2    1 <-> 3
 *
 * Both partners reduce the same two values, and the kernels give the same bits for either order, so
 * all ranks end with the same bits. As the data is still being sent while what comes is reduced,
 * the results of the rounds alternate between two areas of scratch; the last goes to OUTPUT.
 */
#include "collectives/algorithms/generators.h"

struct doubling {
    uint32_t rounds; /* exchanges */
    uint32_t extras; /* ranks that take no part in them */
};

static struct doubling doubling_of(uint32_t ranks)
{
    uint32_t rounds = muster_log2_down(ranks);
    return (struct doubling){.rounds = rounds, .extras = ranks - (UINT32_C(1) << rounds)};
}

/* The rank that has this place among those that exchange. */
static uint32_t rank_at(const struct doubling *doubling, uint32_t place)
{
    return place < doubling->extras ? 2 * place + 1 : place + doubling->extras;
}

/* One that only gives its data and takes the result. */
static void generate_extra(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct muster_span all = {.count = plan->count};
    muster_builder_send(builder, plan->rank + 1, MUSTER_INPUT, all);
    muster_builder_next_round(builder);
    muster_builder_recv(builder, plan->rank + 1, MUSTER_OUTPUT, all);
}

static void exchange(const struct muster_plan *plan, struct muster_builder *builder,
                     const struct doubling *doubling, uint32_t place)
{
    struct muster_span all = {.count = plan->count};
    /* The first area; the second is needed from three exchanges on, or for what an extra gives. */
    uint64_t first = muster_builder_reserve(builder, plan->count);
    bool folds = place < doubling->extras;
    uint64_t second = first;
    if (doubling->rounds > 2 || folds) {
        second = muster_builder_reserve(builder, plan->count);
    }
    enum muster_buffer source = MUSTER_INPUT;
    struct muster_span held = all;
    if (folds) {
        muster_builder_recv_reduce(builder, plan->rank - 1, MUSTER_INPUT, all, MUSTER_SCRATCH,
                                   second);
        muster_builder_next_round(builder);
        source = MUSTER_SCRATCH;
        held.offset = second;
    }
    for (uint32_t round = 0; round < doubling->rounds; round++) {
        uint32_t peer = rank_at(doubling, place ^ (UINT32_C(1) << round));
        /* In place OUTPUT is INPUT, which must not change while it is sent. */
        bool last = round == doubling->rounds - 1 && source != MUSTER_INPUT;
        enum muster_buffer target = last ? MUSTER_OUTPUT : MUSTER_SCRATCH;
        uint64_t at = last ? 0 : round % 2 == 0 ? first : second;
        muster_builder_send(builder, peer, source, held);
        muster_builder_recv_reduce(builder, peer, source, held, target, at);
        muster_builder_next_round(builder);
        source = target;
        held.offset = at;
    }
    muster_builder_copy(builder, source, held, MUSTER_OUTPUT, 0);
    muster_builder_next_round(builder);
    if (folds) {
        muster_builder_send(builder, plan->rank - 1, MUSTER_OUTPUT, all);
    }
}

muster_status muster_recursive_doubling_generate(const struct muster_plan *plan,
                                                 struct muster_builder *builder)
{
    struct doubling doubling = doubling_of(plan->topology->ranks);
    uint32_t folded = 2 * doubling.extras;
    if (plan->topology->ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, (struct muster_span){.count = plan->count},
                            MUSTER_OUTPUT, 0);
    } else if (plan->rank < folded && plan->rank % 2 == 0) {
        generate_extra(plan, builder);
    } else {
        uint32_t place = plan->rank < folded ? plan->rank / 2 : plan->rank - doubling.extras;
        exchange(plan, builder, &doubling, place);
    }
    return MUSTER_OK;
}

void muster_recursive_doubling_formula(const struct muster_plan *plan,
                                       struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    struct doubling doubling = doubling_of(ranks);
    uint32_t folds = doubling.extras > 0 ? 2 : 0;
    /* With one exchange the result waits in scratch; a rank that folds in an extra has it there
     * from the start. */
    uint32_t copies = ranks <= 2 && plan->count > 0 ? 1 : 0;
    *ret_formula =
        (struct muster_formula){.rounds = doubling.rounds + folds + copies,
                                .elements = (doubling.rounds + (folds > 0 ? 1 : 0)) * plan->count,
                                .reduced = (doubling.rounds + (folds > 0 ? 1 : 0)) * plan->count};
    uint32_t near = muster_formula_near_rounds(plan->topology);
    for (uint32_t round = 0; round < doubling.rounds; round++) {
        muster_formula_add(ret_formula, plan->topology, round < near, 1, plan->count);
    }
    muster_formula_add(ret_formula, plan->topology, true, folds, folds * plan->count);
}
