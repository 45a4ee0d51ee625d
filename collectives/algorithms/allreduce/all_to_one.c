/*
 * Allreduce by one rank: every rank sends its data to rank 0, which reduces all of it and sends the
 * result back. This is the baseline for all other algorithms.
 *
 * Rank 0 receives from up to four ranks at a time, so that messages overlap. It keeps a partial sum
 * for each of the four, the first in OUTPUT and three in scratch, and reduces these sums at the
 * end. For large data, where bandwidth matters more than latency, it receives from one rank after
 * the other and needs no scratch. Then rank 0 sends to all ranks at once.
 *
 * Source: the linear reduce and broadcast that MPI libraries fall back to, as in Open MPI's
 * coll/basic.
 *
 * Four ranks:
 *
 *   round 0    0 <- 1, 0 <- 2, 0 <- 3
 *   round 1    0 reduces its partial sums
 *   round 2    0 -> 1, 0 -> 2, 0 -> 3
 *
 * All data is reduced at rank 0 and then copied, so all ranks end with the same bits.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

enum {
    SUMS_MAX = 4,
    OVERLAPPED_MAX = 16384, /* elements: only up to this size are several received at once */
};

static uint32_t sums_of(uint64_t count, uint32_t size)
{
    uint32_t most = count <= OVERLAPPED_MAX ? SUMS_MAX : 1;
    return size - 1 < most ? size - 1 : most;
}

struct sum {
    enum muster_buffer buffer;
    struct muster_span span;
};

/* From as many ranks at a time as there are partial sums. The first message of all is reduced with
 * rank 0's own data. */
static void receive_all(struct muster_builder *builder, const struct muster_group *group,
                        enum muster_buffer source, const struct sum *sums, uint32_t count)
{
    for (uint32_t index = 1; index < group->size; index++) {
        const struct sum *sum = &sums[(index - 1) % count];
        uint32_t peer = muster_group_rank(group, index);
        if (index == 1) {
            muster_builder_recv_reduce(builder, peer, source, sum->span, sum->buffer,
                                       sum->span.offset);
        } else if (index <= count) {
            muster_builder_recv(builder, peer, sum->buffer, sum->span);
        } else {
            muster_builder_recv_reduce(builder, peer, sum->buffer, sum->span, sum->buffer,
                                       sum->span.offset);
        }
        if (index % count == 0) {
            muster_builder_next_round(builder);
        }
    }
    muster_builder_next_round(builder);
}

/* Leaves the whole sum in the first one. */
static void reduce_sums(struct muster_builder *builder, const struct sum *sums, uint32_t count)
{
    for (uint32_t distance = 1; distance < count; distance *= 2) {
        for (uint32_t i = 0; i + distance < count; i += 2 * distance) {
            muster_builder_reduce(builder, sums[i + distance].buffer, sums[i + distance].span,
                                  sums[i].buffer, sums[i].span.offset);
        }
        muster_builder_next_round(builder);
    }
}

/* Rank 0's part: receive, reduce, send the result. */
static void serve(struct muster_builder *builder, const struct muster_group *group,
                  enum muster_buffer source, struct muster_span span)
{
    struct sum sums[SUMS_MAX] = {{.buffer = MUSTER_OUTPUT, .span = span}};
    uint32_t count = sums_of(span.count, group->size);
    for (uint32_t i = 1; i < count; i++) {
        uint64_t at = muster_builder_reserve(builder, span.count);
        sums[i] =
            (struct sum){.buffer = MUSTER_SCRATCH, .span = {.offset = at, .count = span.count}};
    }
    receive_all(builder, group, source, sums, count);
    reduce_sums(builder, sums, count);
    for (uint32_t index = 1; index < group->size; index++) {
        muster_builder_send(builder, muster_group_rank(group, index), MUSTER_OUTPUT, span);
    }
}

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    if (group->size == 1) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
    } else if (group->index == 0) {
        serve(builder, group, source, span);
    } else {
        uint32_t server = muster_group_rank(group, 0);
        muster_builder_send(builder, server, source, span);
        muster_builder_next_round(builder);
        muster_builder_recv(builder, server, MUSTER_OUTPUT, span);
    }
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    return size == 1 ? 0 : index == 0 ? count * (size - 1) : count;
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    if (size == 1 || index > 0) {
        return size == 1 ? 0 : 2;
    }
    uint32_t sums = sums_of(count, size);
    uint32_t receiving = (size - 2) / sums + 1;
    return receiving + (count > 0 ? muster_log2_up(sums) : 0) + 1;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    *ret_formula = (struct muster_formula){.rounds = plan->count > 0};
    if (ranks == 1) {
        return;
    }
    uint64_t elements = part_elements(plan->count, ranks, 0);
    ret_formula->rounds = part_rounds(plan->count, ranks, 0);
    ret_formula->elements = elements;
    ret_formula->reduced = elements;
    /* All messages go through rank 0's port, in both directions. */
    struct muster_path path = {.messages = ranks, .elements = 2 * elements};
    muster_formula_flat(plan->topology, path, ret_formula);
}

const struct muster_generator muster_all_to_one_generator = {
    .rounds_text = "P; n <= 16384: ceil((P-1)/4) + 3, P = 2: 2, P = 3: 3",
    .elements_text = "n(P-1)",
    .part = allreduce,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_all_to_one = {
    .name = "all_to_one",
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
