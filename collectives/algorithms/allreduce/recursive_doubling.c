/*
 * Recursive doubling allreduce: in round k partners at distance 2^k exchange all their data, and
 * both reduce it. It has the fewest rounds, but sends the whole data in each: for small calls.
 *
 * Where P is not a power of two, the ranks beyond one are folded in (see generators.h).
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.5.
 *
 * Four ranks:
 *
 *   round 0    0 <-> 1    2 <-> 3
 *   round 1    0 <-> 2    1 <-> 3
 *
 * Both partners reduce the same two values, and the kernels give the same bits for either order, so
 * all ranks end with the same bits. While a message is reduced on arrival, the rank's own data is
 * still being sent, so the results of the rounds alternate between two areas of scratch. The last
 * result goes to OUTPUT.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

/* The number of exchanges. */
static uint32_t exchanges_of(uint32_t size)
{
    return muster_log2_down(size);
}

static struct muster_fold fold_of(uint32_t size)
{
    return muster_fold_of(size, UINT32_C(1) << exchanges_of(size));
}

static bool has_extra(const struct muster_fold *fold, uint32_t index)
{
    return muster_fold_place(fold, index) < fold->extras;
}

/* A member with an extra first reduces the extra's data with its own, and sends it the result at
 * the end. */
static void exchange(struct muster_builder *builder, const struct muster_group *group,
                     const struct muster_fold *fold, enum muster_buffer source,
                     struct muster_span span)
{
    uint32_t exchanges = exchanges_of(group->size);
    uint32_t place = muster_fold_place(fold, group->index);
    uint32_t extra = muster_group_rank(group, (uint64_t)group->index + group->size - 1);
    bool folds = has_extra(fold, group->index);
    /* The second area is needed for three exchanges and more, and for the data of an extra. */
    uint64_t first = muster_builder_reserve(builder, span.count);
    uint64_t second = first;
    if (exchanges > 2 || folds) {
        second = muster_builder_reserve(builder, span.count);
    }
    struct muster_span held = span;
    if (folds) {
        muster_builder_recv_reduce(builder, extra, source, span, MUSTER_SCRATCH, second);
        muster_builder_next_round(builder);
        source = MUSTER_SCRATCH;
        held.offset = second;
    }
    for (uint32_t round = 0; round < exchanges; round++) {
        uint32_t other = muster_fold_index(fold, place ^ (UINT32_C(1) << round));
        uint32_t peer = muster_group_rank(group, other);
        /* In place OUTPUT is INPUT, which must not change while it is being sent. */
        bool last = round == exchanges - 1 && source == MUSTER_SCRATCH;
        enum muster_buffer target = last ? MUSTER_OUTPUT : MUSTER_SCRATCH;
        uint64_t at = last ? span.offset : round % 2 == 0 ? first : second;
        muster_builder_send(builder, peer, source, held);
        muster_builder_recv_reduce(builder, peer, source, held, target, at);
        muster_builder_next_round(builder);
        source = target;
        held.offset = at;
    }
    muster_builder_copy(builder, source, held, MUSTER_OUTPUT, span.offset);
    muster_builder_next_round(builder);
    if (folds) {
        muster_builder_send(builder, extra, MUSTER_OUTPUT, span);
    }
}

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    struct muster_fold fold = fold_of(group->size);
    if (group->size == 1) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
    } else if (muster_fold_is_extra(&fold, group->index)) {
        muster_fold_extra(builder, group, source, span);
    } else {
        exchange(builder, group, &fold, source, span);
    }
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    struct muster_fold fold = fold_of(size);
    if (muster_fold_is_extra(&fold, index)) {
        return count;
    }
    return (exchanges_of(size) + (has_extra(&fold, index) ? 1 : 0)) * count;
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    struct muster_fold fold = fold_of(size);
    if (muster_fold_is_extra(&fold, index)) {
        return 2;
    }
    uint32_t exchanges = exchanges_of(size);
    /* A single exchange leaves its result in scratch, and it is copied. With an extra, the first
     * sum is in scratch before, so the exchange can write to OUTPUT. */
    uint32_t copies = exchanges == 1 && count > 0 ? 1 : 0;
    return exchanges + (has_extra(&fold, index) ? 2 : copies);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    struct muster_fold fold = fold_of(ranks);
    uint32_t busiest = muster_fold_index(&fold, 0);
    uint64_t elements = part_elements(plan->count, ranks, busiest);
    *ret_formula = (struct muster_formula){
        .rounds = ranks == 1 ? plan->count > 0 : part_rounds(plan->count, ranks, busiest),
        .elements = elements,
        .reduced = elements};
    for (uint32_t round = 0; round < exchanges_of(ranks); round++) {
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << round, 1, plan->count);
    }
    uint32_t folds = fold.extras > 0 ? 2 : 0;
    muster_formula_add(ret_formula, plan->topology, 1, folds, folds * plan->count);
}

const struct muster_generator muster_recursive_doubling_generator = {
    .rounds_text = "log2 P; other P: floor(log2 P) + 2; P = 2: 2",
    .elements_text = "n log2 P; other P: n (floor(log2 P) + 1)",
    .part = allreduce,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_recursive_doubling = {
    .name = "recursive_doubling",
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
