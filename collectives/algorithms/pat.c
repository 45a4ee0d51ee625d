/* Parallel aggregated trees: nodes, rounds, messages and their areas in SCRATCH (pat.h). */
#include "collectives/algorithms/pat.h"

#include "collectives/algorithms/generators.h"

struct muster_pat muster_pat_of(const struct muster_plan *plan, const struct muster_blocks *blocks)
{
    struct muster_pat pat = {.blocks = *blocks,
                             .rank = plan->rank,
                             .ranks = blocks->ranks,
                             .levels = muster_log2_up(blocks->ranks)};
    uint64_t largest = muster_blocks_largest(blocks);
    uint32_t aggregated = 0; /* log2 of the blocks in one message */
    while (aggregated + 1 < pat.levels &&
           largest <= MUSTER_PAT_MESSAGE_ELEMENTS >> (aggregated + 1)) {
        aggregated++;
    }
    pat.linear = pat.levels - aggregated;
    return pat;
}

bool muster_pat_is_aggregated(const struct muster_pat *pat)
{
    return pat->linear < pat->levels;
}

uint32_t muster_pat_rounds(const struct muster_pat *pat)
{
    uint64_t nodes = UINT64_C(1) << pat->linear;
    uint32_t steps = (uint32_t)(nodes < pat->ranks ? nodes : pat->ranks) - 1;
    return pat->levels - pat->linear + steps;
}

uint32_t muster_pat_root(const struct muster_pat *pat, uint32_t index)
{
    return muster_reverse_bits(index, pat->levels);
}

struct muster_span muster_pat_block(const struct muster_pat *pat, uint32_t node)
{
    return muster_blocks_at(&pat->blocks, (uint64_t)pat->rank + pat->ranks - node);
}

uint32_t muster_pat_nodes(const struct muster_pat *pat, uint32_t node, uint32_t first, uint32_t end)
{
    uint32_t nodes = 0;
    for (uint32_t i = first; i < end; i++) {
        nodes += muster_pat_root(pat, i) + node < pat->ranks ? 1 : 0;
    }
    return nodes;
}

uint64_t muster_pat_elements(const struct muster_pat *pat, uint32_t node, uint32_t first,
                             uint32_t end)
{
    uint64_t elements = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t mine = muster_pat_root(pat, i) + node;
        elements += mine < pat->ranks ? muster_pat_block(pat, mine).count : 0;
    }
    return elements;
}

static uint32_t all_roots(const struct muster_pat *pat)
{
    return UINT32_C(1) << (pat->levels - pat->linear);
}

static uint64_t area_of(const struct muster_pat *pat, uint32_t node)
{
    return pat->base[node == 0 ? pat->linear : (uint32_t)__builtin_ctz(node)];
}

struct muster_pat_round muster_pat_round(const struct muster_pat *pat, uint32_t number)
{
    uint32_t aggregated = pat->levels - pat->linear;
    struct muster_pat_round round = {.from_at = area_of(pat, 0)};
    if (number <
        aggregated) { /* to new roots, whose blocks are stored behind those of the others */
        round.to = UINT32_C(1) << (pat->levels - 1 - number);
        round.roots = UINT32_C(1) << number;
        round.to_at = round.from_at + muster_pat_elements(pat, 0, 0, round.roots);
    } else {
        round.to = number - aggregated + 1;
        round.from = round.to & (round.to - 1);
        round.roots = all_roots(pat);
        round.from_at = area_of(pat, round.from);
        round.to_at = area_of(pat, round.to);
    }
    while (round.skipped < round.roots) {
        uint32_t root = muster_pat_root(pat, round.skipped);
        if (root + round.from < pat->ranks && root + round.to >= pat->ranks) {
            break;
        }
        round.skipped++;
    }
    return round;
}

bool muster_pat_message(const struct muster_pat *pat, const struct muster_pat_round *round,
                        uint32_t number, struct muster_pat_message *ret_message)
{
    uint32_t first = number == 0 ? 0 : round->skipped + 1;
    uint32_t end = number == 0 ? round->skipped : round->roots;
    if (muster_pat_nodes(pat, round->to, first, end) == 0) {
        return false;
    }
    uint32_t distance = round->to - round->from;
    *ret_message = (struct muster_pat_message){
        .end = end,
        .from = {.offset = round->from_at + muster_pat_elements(pat, round->from, 0, first),
                 .count = muster_pat_elements(pat, round->from, first, end)},
        .to = {.offset = round->to_at + muster_pat_elements(pat, round->to, 0, first),
               .count = muster_pat_elements(pat, round->to, first, end)},
        .child = (pat->rank + distance) % pat->ranks,
        .parent = (pat->rank + pat->ranks - distance) % pat->ranks,
    };
    return true;
}

void muster_pat_reserve(struct muster_pat *pat, struct muster_builder *builder)
{
    uint32_t roots = all_roots(pat);
    pat->base[pat->linear] = muster_builder_reserve(builder, muster_pat_elements(pat, 0, 0, roots));
    for (uint32_t level = 0; level < pat->linear; level++) {
        uint64_t most = 0;
        uint32_t step = UINT32_C(1) << level;
        for (uint32_t node = step; node < UINT32_C(1) << pat->linear; node += 2 * step) {
            uint64_t elements = muster_pat_elements(pat, node, 0, roots);
            most = elements > most ? elements : most;
        }
        pat->base[level] = muster_builder_reserve(builder, most);
    }
}

void muster_pat_formula(const struct muster_pat *pat, const struct muster_topology *topology,
                        struct muster_formula *ret_formula)
{
    uint64_t each = muster_blocks_total(&pat->blocks) / pat->ranks;
    for (uint32_t level = 0; level < pat->levels; level++) {
        uint64_t distance = UINT64_C(1) << level;
        uint64_t blocks = (pat->ranks - distance + 2 * distance - 1) / (2 * distance);
        uint64_t messages = level < pat->linear ? UINT64_C(1) << (pat->linear - 1 - level) : 1;
        muster_formula_add(ret_formula, topology, UINT64_C(2) << level,
                           messages < blocks ? messages : blocks, blocks * each);
    }
}
