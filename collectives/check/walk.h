/*
 * The walk: goes through the schedules of all ranks together as an execution would, with no buffers
 * between them: a message passes when its send and its receive are both posted, a round ends when
 * all its steps are done. Sequential and always in the same order. The checker looks on.
 *
 * What can happen does not depend on the order in which messages pass, so a walk that gets stuck
 * proves that every execution does.
 */
#ifndef MUSTER_COLLECTIVES_CHECK_WALK_H
#define MUSTER_COLLECTIVES_CHECK_WALK_H

#include "collectives/schedule/schedule.h"

struct muster_walk {
    const struct muster_schedule *schedules; /* [ranks], borrowed */
    uint32_t ranks;
    size_t
        *first_step; /* [ranks + 1] number of each rank's first step, counting all ranks' steps */
    size_t *matches; /* [steps] number of the other end's step; SIZE_MAX where there is none */
    size_t *first_lane; /* [ranks + 1] the same for lanes */
};

/* A step of a rank; lane_number counts the lanes of all ranks. */
struct muster_walk_step {
    uint32_t rank;
    size_t lane_number;
    const struct muster_step *step;
};

/* What the onlooker is told. Each may end the walk by a status other than MUSTER_OK. */
struct muster_walk_visitor {
    void *user;
    muster_status (*visit_local)(void *user, const struct muster_walk_step *local);
    muster_status (*visit_message)(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive);
    muster_status (*visit_round_end)(void *user, uint32_t rank, size_t lane_number);
};

/* Matches sends with receives. The schedules must be well formed (ordered, lanes and peers in
 * range). MUSTER_INVALID: a message without a receive or the reverse, or two ends that differ in
 * size; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_walk_init(const struct muster_schedule *schedules,
                                              uint32_t ranks, struct muster_walk *ret_walk);
void muster_walk_finish(struct muster_walk *walk);

/* Goes all the way. MUSTER_INVALID: deadlock (the text names a rank that waits, and for whom), or
 * the visitor's own; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_walk_run(const struct muster_walk *walk,
                                             const struct muster_walk_visitor *visitor);

#endif
