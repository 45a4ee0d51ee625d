#include "collectives/algorithms/hierarchical/exchange.h"

#include "collectives/algorithms/generators.h"

static const struct muster_exchange exchanges[MUSTER_EXCHANGE_END] = {
    [MUSTER_EXCHANGE_PAIRWISE] = {.name = "pairwise",
                                  .reduce_scatter = muster_pairwise_reduce_scatter,
                                  .allgather = muster_pairwise_allgather,
                                  .totals = muster_pairwise_totals},
    [MUSTER_EXCHANGE_BINOMIAL] = {.name = "binomial",
                                  .reduce_scatter = muster_binomial_reduce_scatter,
                                  .allgather = muster_binomial_allgather,
                                  .totals = muster_binomial_totals},
    [MUSTER_EXCHANGE_RING_TWO_PHASE] = {.name = "ring_two_phase",
                                        .reduce_scatter = muster_level_ring_reduce_scatter,
                                        .allgather = muster_level_ring_allgather,
                                        .totals = muster_level_ring_totals},
    [MUSTER_EXCHANGE_RING] = {.name = "ring",
                              .part = muster_ring_part,
                              .part_elements = muster_ring_part_elements,
                              .part_rounds = muster_ring_part_rounds},
    [MUSTER_EXCHANGE_BIDIRECTIONAL_RING] = {.name = "bidirectional_ring",
                                            .part = muster_bidirectional_ring_part,
                                            .part_elements =
                                                muster_bidirectional_ring_part_elements,
                                            .part_rounds = muster_bidirectional_ring_part_rounds},
    [MUSTER_EXCHANGE_HALVING_DOUBLING] = {.name = "halving_doubling",
                                          .part = muster_halving_doubling_part,
                                          .part_elements = muster_halving_doubling_part_elements,
                                          .part_rounds = muster_halving_doubling_part_rounds},
    [MUSTER_EXCHANGE_SWING] = {.name = "swing",
                               .part = muster_swing_part,
                               .part_elements = muster_swing_part_elements,
                               .part_rounds = muster_swing_part_rounds},
    [MUSTER_EXCHANGE_RECURSIVE_DOUBLING] = {.name = "recursive_doubling",
                                            .part = muster_recursive_doubling_part,
                                            .part_elements =
                                                muster_recursive_doubling_part_elements,
                                            .part_rounds = muster_recursive_doubling_part_rounds},
    [MUSTER_EXCHANGE_BCUBE] = {.name = "bcube",
                               .part = muster_bcube_part,
                               .part_elements = muster_bcube_part_elements,
                               .part_rounds = muster_bcube_part_rounds},
    [MUSTER_EXCHANGE_ALL_TO_ONE] = {.name = "all_to_one",
                                    .part = muster_all_to_one_part,
                                    .part_elements = muster_all_to_one_part_elements,
                                    .part_rounds = muster_all_to_one_part_rounds},
    [MUSTER_EXCHANGE_DOUBLE_TREE] = {.name = "double_tree",
                                     .part = muster_double_tree_part,
                                     .part_elements = muster_double_tree_part_elements,
                                     .part_rounds = muster_double_tree_part_rounds},
    [MUSTER_EXCHANGE_RING_CHUNKED] = {.name = "ring_chunked",
                                      .part = muster_ring_chunked_part,
                                      .part_elements = muster_ring_chunked_part_elements,
                                      .part_rounds = muster_ring_chunked_part_rounds},
};

const struct muster_exchange *muster_exchange_of(unsigned kind)
{
    return kind < MUSTER_EXCHANGE_END && exchanges[kind].name != NULL ? &exchanges[kind] : NULL;
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

/* About half of what is sent is received to be reduced. */
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
