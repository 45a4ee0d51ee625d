/*
 * Group steps: collectives of a group of ranks that a device performs as one. A group has m
 * members, in the order of ranks; n is the step's count, and is cut into m shares, one a member:
 * equal parts (muster_span_part()), or blocks of the call.
 *
 *   kind             this rank reads of source[span.offset..]    it writes to target[at..]
 *   allreduce        n                                           n: the reduction
 *   reduce_scatter   n                                           its share of the reduction
 *   allgather        its share                                   n: the shares of all
 *   reduce           n                                           n at the root: the reduction
 *   broadcast        n at the root                               n: the root's
 *   barrier          nothing                                     nothing
 *
 * Reductions are along the tree of check/terms.h over the members: over all ranks in the call's
 * reduction order if there is one, else in the order of ranks. In place, the two ranges begin at
 * the same element; of a reduce_scatter the target, and of an allgather the source, is the rank's
 * own share of the other one.
 */
#ifndef MUSTER_COLLECTIVES_SCHEDULE_GROUP_STEP_H
#define MUSTER_COLLECTIVES_SCHEDULE_GROUP_STEP_H

#include "collectives/schedule/schedule.h"

static inline bool muster_step_is_message(const struct muster_step *step)
{
    return step->kind >= MUSTER_STEP_SEND && step->kind <= MUSTER_STEP_RECV_REDUCE;
}

static inline bool muster_step_is_group(const struct muster_step *step)
{
    return step->kind >= MUSTER_STEP_GROUP_ALLREDUCE && step->kind <= MUSTER_STEP_GROUP_BARRIER;
}

/* "send", "group_allreduce"; "host", "cross", "all"; "unknown" for values out of range. */
const char *muster_step_kind_name(unsigned kind);
const char *muster_step_scope_name(unsigned scope);

/* True of reduce and broadcast. */
bool muster_step_has_root(const struct muster_step *step);

/* The rank of member number `index`; and the reverse, `count` if the rank is no member. */
uint32_t muster_step_group_rank(const struct muster_step_group *group, uint32_t index);
uint32_t muster_step_group_index(const struct muster_step_group *group, uint32_t rank);

/* The share of member number `index` in the step's n elements. shape is that of the call, of any
 * rank, and is used only if the shares are blocks. */
struct muster_span muster_step_share(const struct muster_shape *shape,
                                     const struct muster_step_group *group,
                                     const struct muster_step *step, uint32_t index);

/* What a step of any kind reads and writes on its rank: elements of source and of target. */
struct muster_step_ranges {
    bool reads, writes;
    struct muster_span source, target;
};
struct muster_step_ranges muster_step_ranges(const struct muster_shape *shape,
                                             const struct muster_schedule *schedule,
                                             const struct muster_step *step);

#endif
