/* The table of exchanges, and the steps at one level. */
#include "collectives/algorithms/hierarchical/exchange.h"

#include "collectives/algorithms/generators.h"

/* Each is defined by its own file: level_*.c, or the allreduce's. */
extern const struct muster_exchange muster_exchange_all_to_one;
extern const struct muster_exchange muster_exchange_bcube;
extern const struct muster_exchange muster_exchange_bidirectional_ring;
extern const struct muster_exchange muster_exchange_binomial;
extern const struct muster_exchange muster_exchange_double_tree;
extern const struct muster_exchange muster_exchange_group;
extern const struct muster_exchange muster_exchange_halving_doubling;
extern const struct muster_exchange muster_exchange_pairwise;
extern const struct muster_exchange muster_exchange_recursive_doubling;
extern const struct muster_exchange muster_exchange_ring;
extern const struct muster_exchange muster_exchange_ring_chunked;
extern const struct muster_exchange muster_exchange_ring_whole;
extern const struct muster_exchange muster_exchange_swing;

static const struct muster_exchange *const exchanges[MUSTER_EXCHANGE_END] = {
    [MUSTER_EXCHANGE_PAIRWISE] = &muster_exchange_pairwise,
    [MUSTER_EXCHANGE_BINOMIAL] = &muster_exchange_binomial,
    [MUSTER_EXCHANGE_RING] = &muster_exchange_ring,
    [MUSTER_EXCHANGE_RING_WHOLE] = &muster_exchange_ring_whole,
    [MUSTER_EXCHANGE_BIDIRECTIONAL_RING] = &muster_exchange_bidirectional_ring,
    [MUSTER_EXCHANGE_HALVING_DOUBLING] = &muster_exchange_halving_doubling,
    [MUSTER_EXCHANGE_SWING] = &muster_exchange_swing,
    [MUSTER_EXCHANGE_RECURSIVE_DOUBLING] = &muster_exchange_recursive_doubling,
    [MUSTER_EXCHANGE_BCUBE] = &muster_exchange_bcube,
    [MUSTER_EXCHANGE_ALL_TO_ONE] = &muster_exchange_all_to_one,
    [MUSTER_EXCHANGE_DOUBLE_TREE] = &muster_exchange_double_tree,
    [MUSTER_EXCHANGE_RING_CHUNKED] = &muster_exchange_ring_chunked,
    [MUSTER_EXCHANGE_GROUP] = &muster_exchange_group,
};

const struct muster_exchange *muster_exchange_of(unsigned kind)
{
    return kind < MUSTER_EXCHANGE_END ? exchanges[kind] : NULL;
}

enum muster_buffer muster_exchange_begin(struct muster_builder *builder,
                                         const struct muster_exchange *exchange,
                                         const struct muster_level *level,
                                         enum muster_buffer source)
{
    enum muster_buffer held = source;
    if (exchange->part == NULL) {
        held = exchange->reduce_scatter(builder, level, source);
    } else if (level->group.size > 1) {
        exchange->part(builder, &level->group, source, level->span);
        held = MUSTER_OUTPUT;
    }
    muster_builder_next_round(builder);
    return held;
}

void muster_exchange_end(struct muster_builder *builder, const struct muster_exchange *exchange,
                         const struct muster_level *level)
{
    if (exchange->part == NULL) {
        exchange->allgather(builder, level);
    } else {
        muster_pairwise_allgather(builder, level);
    }
    muster_builder_next_round(builder);
}

/* About as much is reduced as half of what is sent. */
static struct muster_step_totals totals_of_part(const struct muster_exchange *exchange,
                                                const struct muster_level *level)
{
    uint32_t size = level->group.size;
    uint32_t index = level->group.index;
    uint64_t elements = exchange->part_elements(level->span.count, size, index);
    return (struct muster_step_totals){.rounds =
                                           exchange->part_rounds(level->span.count, size, index),
                                       .elements = elements,
                                       .reduced = elements / 2};
}

struct muster_step_totals muster_exchange_totals(const struct muster_exchange *exchange,
                                                 const struct muster_level *level)
{
    if (exchange->part == NULL) {
        return exchange->totals(level);
    }
    if (level->group.size == 1) {
        return (struct muster_step_totals){0};
    }
    struct muster_step_totals totals = totals_of_part(exchange, level);
    const struct muster_step_totals back = muster_pairwise_allgather_totals(level);
    totals.rounds += back.rounds;
    totals.elements += back.elements;
    return totals;
}

void muster_exchange_allreduce(struct muster_builder *builder,
                               const struct muster_exchange *exchange,
                               const struct muster_level *level, enum muster_buffer source)
{
    if (exchange->part != NULL) {
        exchange->part(builder, &level->group, source, level->span);
    } else {
        (void)exchange->reduce_scatter(builder, level, source);
        muster_builder_next_round(builder);
        exchange->allgather(builder, level);
    }
    muster_builder_next_round(builder);
}

struct muster_step_totals muster_exchange_allreduce_totals(const struct muster_exchange *exchange,
                                                           const struct muster_level *level)
{
    return exchange->part != NULL ? totals_of_part(exchange, level) : exchange->totals(level);
}
