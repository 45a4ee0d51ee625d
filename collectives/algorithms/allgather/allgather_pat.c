/*
 * PAT allgather(v): every block goes down a binomial tree of its own, to far ranks first, while it
 * is the only one to send; small blocks between the same two ranks share a message. It has from
 * log2 P rounds, if all blocks of a round fit into one message, to P-1, if each has its own. Each
 * rank sends P-1 blocks.
 *
 * Source: S. Jeaugey (see pat.h).
 *
 * Four ranks, small blocks; digits are blocks:
 *
 *   round 0    0 -> 2: 0     1 -> 3: 1     2 -> 0: 2     3 -> 1: 3
 *   round 1    0 -> 1: 02    1 -> 2: 13    2 -> 3: 20    3 -> 0: 31
 *
 * Large ones:
 *
 *   round 0    0 -> 1: 0     1 -> 2: 1     2 -> 3: 2     3 -> 0: 3
 *   round 1    0 -> 2: 0     1 -> 3: 1     2 -> 0: 2     3 -> 1: 3
 *   round 2    0 -> 1: 2     1 -> 2: 3     2 -> 3: 0     3 -> 0: 1
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/pat.h"

static void move(const struct muster_pat *pat, struct muster_builder *builder,
                 const struct muster_pat_round *round)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct muster_pat_message message;
        if (!muster_pat_message(pat, round, i, &message)) {
            continue;
        }
        /* At first its copy is still being made. */
        bool own = round->from == 0 && message.end == 1;
        if (own) {
            message.from.offset = 0;
        }
        muster_builder_send(builder, message.child, own ? MUSTER_INPUT : MUSTER_SCRATCH,
                            message.from);
        muster_builder_recv(builder, message.parent, MUSTER_SCRATCH, message.to);
    }
}

/* True if some message has this rank's own block together with others. */
static bool aggregates_own(const struct muster_pat *pat)
{
    for (uint32_t number = 0; number < muster_pat_rounds(pat); number++) {
        struct muster_pat_round round = muster_pat_round(pat, number);
        if (round.from == 0 && round.roots > 1 && round.skipped != 1) {
            return true;
        }
    }
    return false;
}

/* Copies what this round received to OUTPUT. */
static void unpack(const struct muster_pat *pat, struct muster_builder *builder,
                   const struct muster_pat_round *round)
{
    struct muster_span here = {.offset = round->to_at};
    for (uint32_t i = 0; i < round->roots; i++) {
        uint32_t node = muster_pat_root(pat, i) + round->to;
        if (node < pat->ranks) {
            struct muster_span place = muster_pat_block(pat, node);
            here.count = place.count;
            muster_builder_copy(builder, MUSTER_SCRATCH, here, MUSTER_OUTPUT, place.offset);
            here.offset += here.count;
        }
    }
}

/* Messages go from SCRATCH to SCRATCH; what a round received is unpacked during the next round. */
static void generate_aggregated(struct muster_pat *pat, struct muster_builder *builder,
                                struct muster_span mine)
{
    muster_pat_reserve(pat, builder);
    if (aggregates_own(pat)) {
        muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_SCRATCH, pat->base[pat->linear]);
    }
    struct muster_pat_round before = {0};
    for (uint32_t number = 0; number < muster_pat_rounds(pat); number++) {
        struct muster_pat_round round = muster_pat_round(pat, number);
        move(pat, builder, &round);
        unpack(pat, builder, &before);
        muster_builder_next_round(builder);
        before = round;
    }
    unpack(pat, builder, &before);
}

/* Each block in a message of its own, from OUTPUT to OUTPUT. */
static void generate_single(const struct muster_pat *pat, struct muster_builder *builder,
                            struct muster_span mine)
{
    for (uint32_t to = 1; to < pat->ranks; to++) {
        uint32_t from = to & (to - 1);
        uint32_t child = (pat->rank + (to - from)) % pat->ranks;
        uint32_t parent = (pat->rank + pat->ranks - (to - from)) % pat->ranks;
        if (from == 0) {
            muster_builder_send(builder, child, MUSTER_INPUT, mine);
        } else {
            muster_builder_send(builder, child, MUSTER_OUTPUT, muster_pat_block(pat, from));
        }
        muster_builder_recv(builder, parent, MUSTER_OUTPUT, muster_pat_block(pat, to));
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    struct muster_pat pat = muster_pat_of(plan, &blocks);
    struct muster_span place = muster_pat_block(&pat, 0);
    struct muster_span mine = {.count = place.count};
    muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, place.offset);
    if (muster_pat_is_aggregated(&pat)) {
        generate_aggregated(&pat, builder, mine);
    } else {
        generate_single(&pat, builder, mine);
    }
    return MUSTER_OK;
}

/* Elements that this rank sends: each block from every node that has nodes below it. */
static uint64_t elements_at(const struct muster_pat *pat)
{
    uint64_t elements = 0;
    for (uint32_t to = 1; to < pat->ranks; to++) {
        elements += muster_pat_block(pat, to & (to - 1)).count;
    }
    return elements;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    struct muster_pat pat = muster_pat_of(plan, &blocks);
    uint64_t total = muster_blocks_total(&blocks);
    uint32_t copies = total > 0 && (blocks.ranks == 1 || muster_pat_is_aggregated(&pat)) ? 1 : 0;
    *ret_formula = (struct muster_formula){.rounds = muster_pat_rounds(&pat) + copies};
    for (pat.rank = 0; pat.rank < muster_blocks_different(&blocks); pat.rank++) {
        uint64_t elements = elements_at(&pat);
        ret_formula->elements = elements > ret_formula->elements ? elements : ret_formula->elements;
    }
    muster_pat_formula(&pat, plan->topology, ret_formula);
}

const struct muster_generator muster_allgather_pat_generator = {
    .rounds_text = "A + P/2^A - 1, A = log2 of the blocks in a message; A > 0: 1 more",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
