/*
 * What generators share.
 *
 * A group is some ranks that run a part of a collective among themselves; its members are counted
 * from 0. A part adds the steps of one member. Where a part has a root, the root reads `source`,
 * and all others get the span in OUTPUT; a member's place is its index counted from the root. An
 * allreduce that runs in a group is a muster_exchange (hierarchical/exchange.h).
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_GENERATORS_H
#define MUSTER_COLLECTIVES_ALGORITHMS_GENERATORS_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/schedule/builder.h"

struct muster_step_totals; /* level.h */

/* variant.c: a variant that is one number; parses "base=8". MUSTER_INVALID: another key, or out of
 * range. */
MUSTER_CHECKED muster_status muster_variant_parse(const char *text, const char *key, uint32_t least,
                                                  uint32_t most, uint32_t *ret_number);

/* whole_group.c: whether the plan's ranks are on one host and share memory; and then the call as
 * one group step of the host. */
bool muster_whole_group_fits(const struct muster_plan *plan);
void muster_whole_group_generate(const struct muster_plan *plan, struct muster_builder *builder);

enum muster_step_kind muster_whole_group_kind(enum muster_collective collective);

/* whole_device.c: whether the plan's device can perform its call; and the schedules of rows with
 * .on_device: all ranks at once; and within hosts, across them, within hosts. */
bool muster_device_plan_fits(const struct muster_plan *plan);
void muster_device_group_generate(const struct muster_plan *plan, struct muster_builder *builder);

/* ring.c: an allreduce of the span, from `source` (INPUT or OUTPUT) to OUTPUT; and what the member
 * number `index` sends, and in how many rounds. */
void muster_ring_part(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span);
uint64_t muster_ring_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_ring_part_rounds(uint64_t count, uint32_t size, uint32_t index);

/* One of its 2(size - 1) rounds; the caller begins the next. Backward: to the previous member. */
void muster_ring_round(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span span, uint32_t round,
                       bool backward);

/* ring_chunked.c: a ring for each half of the span, in the same rounds; opposite: the second ring
 * goes backward. */
void muster_ring_halves_part(struct muster_builder *builder, const struct muster_group *group,
                             enum muster_buffer source, struct muster_span span, bool opposite);

/* binary_blocks.c: halving and doubling among any number of ranks. A butterfly says which members
 * of a block of 2^levels exchange halves. Bit `level` of a share's number says which half is kept
 * at that level; partners have the same bits below it, and differ in that one. */
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

/* fold.c: folding, where an algorithm takes only certain numbers of members. The members beyond
 * such a number are extras. Among the first 2 x extras members, those of even index are the extras.
 * An extra sends its data to the next member, which reduces it with its own before the others
 * begin, and receives the result from it at the end. */
struct muster_fold {
    uint32_t size;   /* members of the group */
    uint32_t active; /* the members that run the algorithm; at least half of all */
    uint32_t extras; /* the other members */
};

struct muster_fold muster_fold_of(uint32_t size, uint32_t active);
bool muster_fold_is_extra(const struct muster_fold *fold, uint32_t index);

/* A member's place among the active ones, and the index of the member at a place. The members at
 * places below `extras` each have an extra. */
uint32_t muster_fold_place(const struct muster_fold *fold, uint32_t index);
uint32_t muster_fold_index(const struct muster_fold *fold, uint32_t place);

/* All steps of an extra. */
void muster_fold_extra(struct muster_builder *builder, const struct muster_group *group,
                       enum muster_buffer source, struct muster_span span);

/* broadcast_binomial.c */
void muster_broadcast_binomial_part(struct muster_builder *builder,
                                    const struct muster_group *group, uint32_t root,
                                    enum muster_buffer source, struct muster_span span);
struct muster_step_totals muster_broadcast_binomial_totals(uint64_t count, uint32_t size,
                                                           uint32_t place);

/* reduce_binomial.c: the member reads its data in `source` and keeps its partial sum in `sum`, from
 * the buffer's start on. If it reads INPUT and `sum` is SCRATCH, it reserves the room. Returns the
 * buffer that has its sum at the end. */
enum muster_buffer muster_reduce_binomial_part(struct muster_builder *builder,
                                               const struct muster_group *group, uint32_t root,
                                               enum muster_buffer source, struct muster_span span,
                                               enum muster_buffer sum);
struct muster_step_totals muster_reduce_binomial_totals(uint64_t count, uint32_t size,
                                                        uint32_t place);

/* barrier_dissemination.c */
void muster_barrier_dissemination_part(struct muster_builder *builder,
                                       const struct muster_group *group);

/* hierarchical.c: what a plan must fulfil for the algorithms called hierarchical. */
bool muster_hierarchical_fits(const struct muster_plan *plan, char *ret_why, size_t size);

/* bcube.c */
bool muster_bcube_fits(const struct muster_plan *plan, char *ret_why, size_t size);
extern const struct muster_variants muster_bcube_variants;

/* pairwise_exchange.c: a plan's variant is its number of steps; 0 stands for as many as can be. */
bool muster_pairwise_exchange_fits(const struct muster_plan *plan, char *ret_why, size_t size);
extern const struct muster_variants muster_pairwise_exchange_variants;

/* formula.c: estimates of the critical path (algorithm.h), for large jobs only. */

/* Adds a path between hosts; with several racks, between racks. Its elements are those of one
 * host's uplink, and so many hosts of a rack send at the same time. */
void muster_formula_between(struct muster_formula *formula, const struct muster_topology *topology,
                            struct muster_path path, uint64_t hosts);

/* The whole path goes between hosts, and one rank of a host sends at a time; on one host it goes
 * within it. */
void muster_formula_flat(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula);

/* The path goes from each rank to the next, and all ranks send at the same time. Only as many of
 * its links are between hosts as there are hosts, and the slowest link carries all elements. */
void muster_formula_ring(const struct muster_topology *topology, struct muster_path path,
                         struct muster_formula *ret_formula);

/* Adds messages that follow each other, with so many elements in all. Their partners are within
 * `reach` neighbouring ranks: partners at distance 1, 2, 4, ... are within 2, 4, 8, ... ranks. If a
 * host has fewer, the messages go between hosts, and all ranks of a host send at the same time;
 * likewise for racks. */
void muster_formula_add(struct muster_formula *formula, const struct muster_topology *topology,
                        uint64_t reach, uint64_t messages, uint64_t elements);

/* Adds one message to every other rank, with so many elements in all of them together. */
void muster_formula_exchange(const struct muster_topology *topology, uint64_t elements,
                             struct muster_formula *ret_formula);

/* Segments into which an algorithm cuts its data: of count_min elements or more, `most` at most. */
static inline uint32_t muster_segment_count(uint64_t count, uint64_t count_min, uint32_t most)
{
    uint64_t segments = count / count_min;
    return segments < 1 ? 1 : segments > most ? most : (uint32_t)segments;
}

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

/* How many children the node at this place has in a binomial tree of `size` nodes. They are at
 * place + 1, + 2, + 4, ... */
static inline uint32_t muster_binomial_children(uint32_t size, uint32_t place)
{
    uint32_t most = place == 0 ? 32 : (uint32_t)__builtin_ctz(place);
    uint32_t room = muster_log2_up(size - place);
    return most < room ? most : room;
}

/* The lowest `bits` bits of the value in opposite order. */
static inline uint32_t muster_reverse_bits(uint32_t value, uint32_t bits)
{
    uint32_t reversed = 0;
    for (uint32_t bit = 0; bit < bits; bit++) {
        reversed = reversed << 1 | (value >> bit & 1);
    }
    return reversed;
}

#endif
