/*
 * Halving-doubling allreduce: reduce-scatter by recursive halving, then allgather by recursive
 * doubling. 2 log2 P rounds, and about 2(P-1)/P of the data in all: few rounds and few bytes.
 *
 * The first partners are near ones, so that most bytes stay within a host if it has a power of two
 * of ranks. Where P is not a power of two, see binary_blocks.c.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.5.
 *
 * Four ranks; the data are quarters abcd, in brackets the part that a rank sends:
 *
 *   round 0    0 <-> 1    0 keeps ab (cd), 1 keeps cd (ab)    2 <-> 3 likewise
 *   round 1    0 <-> 2    0 keeps a (b), 2 keeps b (a)        1 <-> 3: 1 keeps c, 3 keeps d
 *   round 2    0 <-> 2    both have ab                        1 <-> 3: both have cd
 *   round 3    0 <-> 1    both have abcd                      2 <-> 3 likewise
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

static uint32_t same_number(uint32_t number, uint32_t levels)
{
    (void)levels;
    return number;
}

static uint32_t peer_of(uint32_t index, uint32_t level, uint32_t levels)
{
    (void)levels;
    return index ^ (UINT32_C(1) << level);
}

static const struct muster_butterfly hypercube = {
    .share_of = same_number, .index_of = same_number, .peer_of = peer_of};

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span whole)
{
    muster_binary_blocks_part(builder, group, &hypercube, source, whole);
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    return muster_binary_blocks_part_elements(&hypercube, count, size, index);
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    (void)count; /* empty messages are sent too */
    return muster_binary_blocks_part_rounds(&hypercube, size, index);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    muster_binary_blocks_formula(&hypercube, plan, ret_formula);
}

const struct muster_generator muster_halving_doubling_generator = {
    .rounds_text = "2 log2 P; other P: 2 floor(log2 P) + 1",
    .elements_text = "2n(P-1)/P; other P: up to 2n",
    .part = allreduce,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_halving_doubling = {
    .name = "halving_doubling",
    .steady = true,
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
