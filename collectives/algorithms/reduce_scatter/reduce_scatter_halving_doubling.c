/*
 * Halving-doubling reduce-scatter: recursive halving of the data with partners at doubling
 * distance, near ones first, so that most elements travel the shortest way. All messages are
 * contiguous, because the halves are those of the buffer. So a rank ends with the block whose
 * number is its own with the bits reversed, and one more round sends the blocks to their ranks.
 * log2 P + 1 rounds; each rank sends at most P blocks.
 *
 * Where P is not a power of two, each of the first 2(P - 2^k) ranks of even number first sends all
 * its data to the next rank, and receives only its block at the end.
 *
 * Source: P. Sack, W. Gropp: Faster topology-aware collective algorithms through non-minimal
 * communication. PPoPP 2012, section 3 (the order of the partners, and the reordering by bit
 * reversal); other numbers of ranks as in R. Thakur, R. Rabenseifner, W. Gropp (see
 * allgather_ring.c), section 4.5.
 *
 * Four ranks; digits are blocks, in brackets those that a rank sends:
 *
 *   round 0    0 <-> 1    0 keeps 01 (23), 1 keeps 23 (01)    2 <-> 3 likewise
 *   round 1    0 <-> 2    0 keeps 0 (1), 2 keeps 1 (0)        1 <-> 3: 1 keeps 2, 3 keeps 3
 *   round 2    1 <-> 2    1 sends 2, 2 sends 1
 */
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

/* The partial sums that a rank has: the blocks of places [first, first + many). */
struct share {
    const struct muster_blocks *blocks;
    const struct muster_places *places;
    uint32_t first, many;
    enum muster_buffer buffer; /* that holds them */
    uint64_t base;             /* the element of INPUT that element 0 of the buffer stands for */
};

/* Where the blocks of places [first, first + many) are in the share's buffer. */
static struct muster_span within(const struct share *share, uint32_t first, uint32_t many)
{
    struct muster_span span = muster_places_range(share->places, share->blocks, first, many);
    span.offset -= share->base;
    return span;
}

/* Sends one half of the share, and reduces what is received with the other half. The result may be
 * stored elsewhere: in OUTPUT if it is the rank's own block alone (`arrives`), or in scratch. */
static void halve(struct muster_builder *builder, struct share *share, uint32_t peer, uint32_t kept,
                  bool arrives)
{
    uint32_t half = share->many / 2;
    uint32_t first = share->first + kept * half;
    struct muster_span mine = within(share, first, half);
    muster_builder_send(builder, peer, share->buffer,
                        within(share, share->first + (1 - kept) * half, half));
    enum muster_buffer target = arrives ? MUSTER_OUTPUT : MUSTER_SCRATCH;
    uint64_t at = mine.offset;
    if (arrives || share->buffer == MUSTER_INPUT) {
        share->base += mine.offset; /* the kept half starts there */
        at = 0;
    }
    if (!arrives && share->buffer == MUSTER_INPUT) {
        (void)muster_builder_reserve(builder, mine.count); /* the only scratch, so it begins at 0 */
    }
    muster_builder_recv_reduce(builder, peer, share->buffer, mine, target, at);
    muster_builder_next_round(builder);
    share->first = first;
    share->many = half;
    share->buffer = target;
}

/* Sends the blocks of the share, which is that of one place, to their ranks. */
static void send_blocks(struct muster_builder *builder, const struct share *share, uint32_t rank)
{
    uint32_t end = muster_places_first(share->places, share->first + 1);
    for (uint32_t owner = muster_places_first(share->places, share->first); owner < end; owner++) {
        struct muster_span span = muster_blocks_at(share->blocks, owner);
        span.offset -= share->base;
        if (owner == rank) {
            muster_builder_copy(builder, share->buffer, span, MUSTER_OUTPUT, 0);
        } else {
            muster_builder_send(builder, owner, share->buffer, span);
        }
    }
}

/* All steps of a rank that acts for a place. */
static void act(struct muster_builder *builder, struct share *share, uint32_t rank)
{
    const struct muster_places *places = share->places;
    uint32_t place = muster_places_find(places, rank);
    uint32_t reversed = muster_reverse_bits(place, places->levels);
    bool pair = place < places->extras;
    if (pair) {
        struct muster_span all = within(share, 0, share->many);
        (void)muster_builder_reserve(builder, all.count); /* the only scratch, so it begins at 0 */
        muster_builder_recv_reduce(builder, rank - 1, MUSTER_INPUT, all, MUSTER_SCRATCH, 0);
        muster_builder_next_round(builder);
        share->buffer = MUSTER_SCRATCH;
    }
    for (uint32_t level = 0; level < places->levels; level++) {
        bool last = level + 1 == places->levels;
        uint32_t peer = muster_places_rank(places, place ^ (UINT32_C(1) << level));
        halve(builder, share, peer, place >> level & 1, last && reversed == place && !pair);
    }
    if (share->buffer == MUSTER_OUTPUT) {
        return; /* the rank's block is at its place */
    }
    send_blocks(builder, share, rank);
    if (reversed != place) {
        muster_builder_recv(
            builder, muster_places_rank(places, reversed), MUSTER_OUTPUT,
            (struct muster_span){.count = muster_blocks_at(share->blocks, rank).count});
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_places places = muster_places_of(blocks.ranks);
    struct share share = {.blocks = &blocks,
                          .places = &places,
                          .many = UINT32_C(1) << places.levels,
                          .buffer = MUSTER_INPUT};
    uint32_t rank = plan->rank;
    struct muster_span place = {.count = muster_blocks_at(&blocks, rank).count};
    if (!muster_places_is_extra(&places, rank)) {
        act(builder, &share, rank);
        return MUSTER_OK;
    }
    muster_builder_send(builder, rank + 1, MUSTER_INPUT, within(&share, 0, share.many));
    muster_builder_next_round(builder);
    uint32_t holder = muster_reverse_bits(muster_places_find(&places, rank), places.levels);
    muster_builder_recv(builder, muster_places_rank(&places, holder), MUSTER_OUTPUT, place);
    return MUSTER_OK;
}

/* Elements that the rank at this place sends: all but one block while halving, and then that block.
 */
static uint64_t elements_at(const struct muster_blocks *blocks, const struct muster_places *places,
                            uint32_t place)
{
    uint32_t reversed = muster_reverse_bits(place, places->levels);
    uint64_t held = muster_places_range(places, blocks, reversed, 1).count;
    uint64_t elements = muster_blocks_total(blocks) - held;
    uint32_t rank = muster_places_rank(places, place);
    bool keeps = reversed == place;
    return elements + held - (keeps ? muster_blocks_at(blocks, rank).count : 0);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_places places = muster_places_of(blocks.ranks);
    uint64_t total = muster_blocks_total(&blocks);
    uint32_t folds = places.extras > 0 ? 1 : 0;
    uint32_t last = blocks.ranks > 2 ? 1 : 0;
    *ret_formula = (struct muster_formula){.rounds = folds + places.levels + last,
                                           .elements = folds > 0 ? total : 0,
                                           .reduced = total - total / blocks.ranks + folds * total};
    if (blocks.ranks == 1) {
        ret_formula->rounds = total > 0 ? 1 : 0;
    }
    for (uint32_t place = 0; place < UINT32_C(1) << places.levels; place++) {
        uint64_t elements = elements_at(&blocks, &places, place);
        ret_formula->elements = elements > ret_formula->elements ? elements : ret_formula->elements;
    }
    for (uint32_t level = 0; level < places.levels; level++) {
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << level, 1,
                           total >> (level + 1));
    }
    muster_formula_add(ret_formula, plan->topology, 1, folds, folds * total);
    muster_formula_add(ret_formula, plan->topology, UINT64_MAX, last,
                       last * (total / blocks.ranks));
}

const struct muster_generator muster_reduce_scatter_halving_doubling_generator = {
    .rounds_text = "log2 P + 1; other P: floor(log2 P) + 2; P = 2: 1",
    .elements_text = "nP; P = 2: n",
    .generate = generate,
    .formula = find_formula,
};
