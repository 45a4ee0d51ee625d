/*
 * What the files of this folder give to the table, and to each other.
 *
 * A `generate` adds one rank's steps; a `formula` says what they must add up to. A `part` runs an
 * allreduce among the ranks of a group on one span: it reads `source` (INPUT or OUTPUT) and leaves
 * the result in OUTPUT, at the same place. Its `part_elements` and `part_rounds` are what the
 * member number `index` of a group sends and takes.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_GENERATORS_H
#define MUSTER_COLLECTIVES_ALGORITHMS_GENERATORS_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/schedule/builder.h"

struct muster_step_totals; /* level.h */

/* ring_two_phase.c */
void muster_ring_two_phase_part(struct muster_builder *builder, const struct muster_group *group,
                                enum muster_buffer source, struct muster_span span);
uint64_t muster_ring_two_phase_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_ring_two_phase_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* One of 2(size - 1) rounds; the caller begins the next. Backward: to the previous member. */
void muster_ring_two_phase_round(struct muster_builder *builder, const struct muster_group *group,
                                 enum muster_buffer source, struct muster_span span, uint32_t round,
                                 bool backward);

/* ring.c */
void muster_ring_part(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span);
uint64_t muster_ring_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_ring_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* ring_chunked.c */
void muster_ring_chunked_part(struct muster_builder *builder, const struct muster_group *group,
                              enum muster_buffer source, struct muster_span span);
uint64_t muster_ring_chunked_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_ring_chunked_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* A ring for each half of the span, in the same rounds; opposite: the second one goes backward. */
void muster_ring_halves_part(struct muster_builder *builder, const struct muster_group *group,
                             enum muster_buffer source, struct muster_span span, bool opposite);

/* bidirectional_ring.c */
void muster_bidirectional_ring_part(struct muster_builder *builder,
                                    const struct muster_group *group, enum muster_buffer source,
                                    struct muster_span span);
uint64_t muster_bidirectional_ring_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_bidirectional_ring_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* halving_doubling.c */
void muster_halving_doubling_part(struct muster_builder *builder, const struct muster_group *group,
                                  enum muster_buffer source, struct muster_span whole);
uint64_t muster_halving_doubling_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_halving_doubling_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* swing.c */
void muster_swing_part(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span whole);
uint64_t muster_swing_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_swing_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* binary_blocks.c */

/* Who exchanges halves with whom in a block of 2^levels ranks. Bit `level` of a share's number says
 * which half is kept at that level; partners agree on the bits below and differ in that one. */
struct muster_butterfly {
    uint32_t (*share_of)(uint32_t index, uint32_t levels);
    uint32_t (*index_of)(uint32_t share, uint32_t levels); /* its inverse */
    uint32_t (*peer_of)(uint32_t index, uint32_t level, uint32_t levels);
};

void muster_binary_blocks_part(struct muster_builder *builder, const struct muster_group *group,
                               const struct muster_butterfly *butterfly, enum muster_buffer source,
                               struct muster_span whole);
uint64_t muster_binary_blocks_part_elements(const struct muster_butterfly *butterfly,
                                            uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_binary_blocks_part_rounds(const struct muster_butterfly *butterfly, uint32_t size,
                                          uint32_t index);
void muster_binary_blocks_formula(const struct muster_butterfly *butterfly,
                                  const struct muster_plan *plan,
                                  struct muster_formula *ret_formula);

/* recursive_doubling.c */
void muster_recursive_doubling_part(struct muster_builder *builder,
                                    const struct muster_group *group, enum muster_buffer source,
                                    struct muster_span span);
uint64_t muster_recursive_doubling_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_recursive_doubling_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* bcube.c */
void muster_bcube_part(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span span);
uint64_t muster_bcube_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_bcube_part_rounds(uint64_t count, uint32_t size, uint32_t index);

bool muster_bcube_fits(const struct muster_plan *plan, char *ret_why, size_t size);
extern const struct muster_variants muster_bcube_variants;

/* double_tree.c */
void muster_double_tree_part(struct muster_builder *builder, const struct muster_group *group,
                             enum muster_buffer source, struct muster_span span);
uint64_t muster_double_tree_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_double_tree_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* all_to_one.c */
void muster_all_to_one_part(struct muster_builder *builder, const struct muster_group *group,
                            enum muster_buffer source, struct muster_span span);
uint64_t muster_all_to_one_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_all_to_one_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* fold.c: where an algorithm takes only certain numbers of members, the others are extras. Each of
 * the first 2 x extras members of even number is one: it gives its data to the next member, which
 * reduces it with its own before the others begin, and gets the result back at the end. */
struct muster_fold {
    uint32_t size;   /* members of the group */
    uint32_t kept;   /* those that go on; at least half of them */
    uint32_t extras; /* those that do not */
};

struct muster_fold muster_fold_of(uint32_t size, uint32_t kept);
bool muster_fold_is_extra(const struct muster_fold *fold, uint32_t index);

/* A member's place among those kept, and the member at a place. Places below `extras` take one. */
uint32_t muster_fold_place(const struct muster_fold *fold, uint32_t index);
uint32_t muster_fold_index(const struct muster_fold *fold, uint32_t place);

/* All that an extra does. */
void muster_fold_give(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span);

/* hierarchical.c */
bool muster_hierarchical_fits(const struct muster_plan *plan, char *ret_why, size_t size);

/* ordered_pairwise.c: allreduce and reduce_scatter */

/* ordered_hierarchical.c; it fits where hierarchical does */

/* ordered_allgather.c */

/* ordered_binomial.c */

/* allgather_ring.c */

/* allgather_recursive_doubling.c */

/* allgather_bruck.c */

/* allgather_pat.c */

/* reduce_scatter_halving_doubling.c */

/* reduce_scatter_pat.c */

/* allgather_hierarchical.c, reduce_scatter_hierarchical.c; they fit where hierarchical does */

/* alltoall_bruck.c */

/* alltoall_pairwise.c */

/* pairwise_exchange.c */

/* reduce_scatter_ring.c */

/* Broadcasts, reduces and barriers as parts among the ranks of a group, `root` being a member's
 * index: the root reads `source`, all others get the span in OUTPUT. Step totals are those of the
 * member at a place, counted from the root. */

/* broadcast_binomial.c */
void muster_broadcast_binomial_part(struct muster_builder *builder,
                                    const struct muster_group *group, uint32_t root,
                                    enum muster_buffer source, struct muster_span span);
struct muster_step_totals muster_broadcast_binomial_totals(uint64_t count, uint32_t size,
                                                           uint32_t place);

/* broadcast_pipelined.c */
void muster_broadcast_pipelined_part(struct muster_builder *builder,
                                     const struct muster_group *group, uint32_t root,
                                     enum muster_buffer source, struct muster_span span);
struct muster_step_totals muster_broadcast_pipelined_totals(uint64_t count, uint32_t size,
                                                            uint32_t place);

/* barrier_dissemination.c */
void muster_barrier_dissemination_part(struct muster_builder *builder,
                                       const struct muster_group *group);

/* broadcast_one_to_all.c */

/* broadcast_scatter_allgather.c */

/* broadcast_scatter_doubling.c */

/* reduce_binomial.c: a part reads `source` and keeps sums in `sum`, from its start on (of SCRATCH
 * it reserves what it needs, if it reads INPUT). Returns where the member's sum is. */
enum muster_buffer muster_reduce_binomial_part(struct muster_builder *builder,
                                               const struct muster_group *group, uint32_t root,
                                               enum muster_buffer source, struct muster_span span,
                                               enum muster_buffer sum);
struct muster_step_totals muster_reduce_binomial_totals(uint64_t count, uint32_t size,
                                                        uint32_t place);

/* reduce_linear.c */

/* gather_binomial.c: also gatherv */

/* gather_linear.c: also gatherv */

/* scatter_binomial.c */

/* scatter_linear.c */

/* broadcast_hierarchical.c, reduce_hierarchical.c, barrier_hierarchical.c, gather_hierarchical.c,
 * scatter_hierarchical.c; they fit where hierarchical does */

/* barrier_all_to_all.c */

/* barrier_all_to_one.c */

/* formula.c: the ways through the job, for large ones only (see algorithm.h). */

/* Adds a path between hosts, its elements those of a host's uplink, which so many hosts of a rack
 * go at the same time: between racks, if there is more than one. */
void muster_formula_between(struct muster_formula *formula, const struct muster_topology *topology,
                            struct muster_path path, uint64_t hosts);

/* All of the path goes between hosts, one rank at a time, if there is more than one host; else
 * within the one. */
void muster_formula_flat(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula);

/* The path goes from each rank to the next, all of them passing on at once: there are as few ways
 * between hosts as hosts, and the slowest way must carry everything. */
void muster_formula_ring(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula);

/* Adds messages one after the other with so many elements in all, among so many neighbouring ranks
 * (with partners at distance 1, 2, 4, ...: among 2, 4, 8, ...). Where these are more than the
 * largest host has, all ranks of a host send at the same time, and so on for racks. */
void muster_formula_add(struct muster_formula *formula, const struct muster_topology *topology,
                        uint64_t reach, uint64_t messages, uint64_t elements);

/* Adds one message to every other rank, with so many elements in all of them. */
void muster_formula_exchange(const struct muster_topology *topology, uint64_t elements,
                             struct muster_formula *ret_formula);

/* The smallest k with 2^k >= value; value >= 1. */
static inline uint32_t muster_log2_up(uint32_t value)
{
    return value <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(value - 1);
}

/* The largest k with 2^k <= value; value >= 1. */
static inline uint32_t muster_log2_down(uint32_t value)
{
    return 31 - (uint32_t)__builtin_clz(value);
}

/* Of the node at this place in a binomial tree of so many: at place + 1, + 2, + 4, ... */
static inline uint32_t muster_binomial_children(uint32_t size, uint32_t place)
{
    uint32_t most = place == 0 ? 32 : (uint32_t)__builtin_ctz(place);
    uint32_t room = muster_log2_up(size - place);
    return most < room ? most : room;
}

/* The lowest so many bits in the opposite order. */
static inline uint32_t muster_reverse_bits(uint32_t value, uint32_t bits)
{
    uint32_t reversed = 0;
    for (uint32_t bit = 0; bit < bits; bit++) {
        reversed = reversed << 1 | (value >> bit & 1);
    }
    return reversed;
}

#endif
