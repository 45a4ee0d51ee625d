/*
 * Swing allreduce: halving and doubling as in halving_doubling.c, but with partners that are closer
 * and on alternating sides. In round s the partner of an even rank is r(s) ranks further on, and
 * that of an odd rank r(s) ranks before it, where r(s) = 1, -1, 3, -5, 11, ... =
 * (1 - (-2)^(s+1)) / 3. On rings and tori messages cross fewer links than with distances 1, 2, 4,
 * 8, ...
 *
 * Source: D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: Short-cutting rings for higher
 * bandwidth allreduce. NSDI 2024. Where P is not a power of two, see binary_blocks.c.
 *
 * Four ranks; the data are quarters abcd, in brackets the part that a rank sends:
 *
 *   round 0    0 <-> 1    0 keeps ab (cd), 1 keeps cd (ab)    2 <-> 3: 2 keeps cd, 3 keeps ab
 *   round 1    0 <-> 3    0 keeps a (b), 3 keeps b (a)        1 <-> 2: 1 keeps d, 2 keeps c
 *   round 2    0 <-> 3    both have ab                        1 <-> 2: both have cd
 *   round 3    0 <-> 1    both have abcd                      2 <-> 3 likewise
 *
 * Which half a rank keeps. The ranks that are still connected to a rank from round s on must hold
 * the same part of the data as it. From there on, every partner of an even rank e is e + r(s)
 * modulo 2^(s+1), as r(s+1) = r(s) + (-2)^(s+1). So these ranks have e modulo 2^(s+1) in common, if
 * r(s) is subtracted from odd ranks first. Each round doubles the modulus and so decides one bit of
 * the share's number. The bit of the last round is whether the rank is odd.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

/* r(s), modulo 2^32. */
static uint32_t distance_at(uint32_t round)
{
    int64_t power = INT64_C(2) << round; /* 2^(s+1); round < 32 */
    return (uint32_t)((1 - (round % 2 == 0 ? -power : power)) / 3);
}

static uint32_t low_bits(uint32_t value, uint32_t bits)
{
    return value & ((UINT32_C(1) << bits) - 1); /* bits < 32: half of 2^32 ranks at most */
}

static uint32_t share_of(uint32_t index, uint32_t levels)
{
    if (levels == 0) {
        return 0;
    }
    uint32_t odd = index % 2;
    uint32_t even = low_bits(odd == 1 ? index - distance_at(levels - 1) : index, levels);
    return even / 2 + (odd << (levels - 1));
}

static uint32_t index_of(uint32_t share, uint32_t levels)
{
    if (levels == 0) {
        return 0;
    }
    uint32_t even = 2 * low_bits(share, levels - 1);
    bool odd = share >> (levels - 1) == 1;
    return low_bits(odd ? even + distance_at(levels - 1) : even, levels);
}

static uint32_t peer_of(uint32_t index, uint32_t level, uint32_t levels)
{
    uint32_t distance = distance_at(level);
    return low_bits(index % 2 == 0 ? index + distance : index - distance, levels);
}

static const struct muster_butterfly swing = {
    .share_of = share_of, .index_of = index_of, .peer_of = peer_of};

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span whole)
{
    muster_binary_blocks_part(builder, group, &swing, source, whole);
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    return muster_binary_blocks_part_elements(&swing, count, size, index);
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    (void)count; /* empty messages are sent too */
    return muster_binary_blocks_part_rounds(&swing, size, index);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    muster_binary_blocks_formula(&swing, plan, ret_formula);
}

const struct muster_generator muster_swing_generator = {
    .rounds_text = "2 log2 P; other P: 2 floor(log2 P) + 1",
    .elements_text = "2n(P-1)/P; other P: up to 2n",
    .part = allreduce,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_swing = {
    .name = "swing",
    .steady = true,
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
