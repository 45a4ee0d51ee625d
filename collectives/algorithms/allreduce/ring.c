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
 *
 * Where the input is kept, a partial sum stays in SCRATCH from its arrival until it has been sent:
 * one chunk on its way out and one on its way in, 2 S/P. Large chunks of the first phase therefore
 * go in k pieces, each in a round of its own. Each piece that has been sent makes room for the next
 * one that arrives, so that k + 1 pieces are enough: (1 + 1/k) S/P.
 */
#include "collectives/algorithms/generators.h"

enum {
    PIECE_ELEMENTS_MIN = 1 << 18, /* a further round costs little beside such a piece */
    PIECES_MAX = 16,
    PIECES_RANKS_MIN = 4, /* with three, no sum arrives while one is sent that is no result */
};

static uint32_t pieces_of(const struct muster_plan *plan)
{
    uint32_t ranks = plan->topology->ranks;
    return plan->keep_input && ranks >= PIECES_RANKS_MIN
               ? muster_segment_count(plan->count / ranks, PIECE_ELEMENTS_MIN, PIECES_MAX)
               : 1;
}

/* Part `index` of `count` parts of a round. */
struct ring_piece {
    uint32_t index, count;
};

static void add_piece(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span, uint32_t round,
                      bool backward, struct ring_piece piece)
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
    outgoing = muster_span_part(outgoing, piece.count, piece.index);
    incoming = muster_span_part(incoming, piece.count, piece.index);
    muster_builder_send(builder, backward ? before : after, round == 0 ? source : MUSTER_OUTPUT,
                        outgoing);
    if (round < size - 1) {
        muster_builder_recv_reduce(builder, from, source, incoming, MUSTER_OUTPUT, incoming.offset);
    } else {
        muster_builder_recv(builder, from, MUSTER_OUTPUT, incoming);
    }
}

void muster_ring_round(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span span, uint32_t round,
                       bool backward)
{
    add_piece(builder, group, source, span, round, backward, (struct ring_piece){.count = 1});
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

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = muster_group_all(plan);
    const struct muster_span whole = {.count = plan->count};
    uint32_t pieces = pieces_of(plan);
    if (pieces == 1) {
        muster_ring_part(builder, &all, MUSTER_INPUT, whole);
        return MUSTER_OK;
    }
    for (uint32_t round = 0; round < 2 * (all.size - 1); round++) {
        struct ring_piece piece = {.count = round < all.size - 1 ? pieces : 1};
        for (; piece.index < piece.count; piece.index++) {
            add_piece(builder, &all, MUSTER_INPUT, whole, round, false, piece);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    /* Larger chunks come first, so the rank that leaves out the last two chunks sends most. */
    uint64_t elements = muster_ring_part_elements(plan->count, ranks, (2 * ranks - 3) % ranks);
    uint32_t rounds =
        muster_ring_part_rounds(plan->count, ranks, 0) + (pieces_of(plan) - 1) * (ranks - 1);
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : rounds,
                                           .elements = elements,
                                           .reduced = elements / 2};
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = ret_formula->rounds, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_ring_generator = {
    .rounds_text = "2(P-1)",
    .elements_text = "2n(P-1)/P",
    .generate = generate,
    .formula = find_formula,
};
