/*
 * The walk: executes the schedules of all ranks together, without data and without buffering. A
 * message passes when its send and its receive are both posted; a round ends when all its steps are
 * done. A group step is done when all ranks of the group have come to it, and have done those that
 * come before it. It is sequential, and always in the same order. A visitor, the checker for
 * example, is called for each step.
 *
 * Which steps can complete does not depend on the order in which messages pass. So if the walk gets
 * stuck, every execution does.
 */
#ifndef MUSTER_COLLECTIVES_CHECK_WALK_H
#define MUSTER_COLLECTIVES_CHECK_WALK_H

#include "collectives/schedule/schedule.h"

struct muster_walk {
    const struct muster_schedule *schedules; /* [ranks], borrowed */
    uint32_t ranks;
    size_t *first_step;  /* [ranks + 1] each rank's first step; steps of all ranks are numbered */
    size_t *matches;     /* [steps] the step at the message's other end; SIZE_MAX: a local step */
    size_t *first_group; /* [ranks + 1] each rank's first entry of group_steps */
    size_t *group_steps; /* each rank's group steps, in the order in which it performs them */
    size_t *first_lane;  /* [ranks + 1] each rank's first lane; lanes of all ranks are numbered */
};

/* A step of a rank; lane_number counts the lanes of all ranks. */
struct muster_walk_step {
    uint32_t rank;
    size_t lane_number;
    const struct muster_step *step;
};

/* Called during the walk. A status other than MUSTER_OK ends it. */
struct muster_walk_visitor {
    void *user;
    muster_status (*visit_local)(void *user, const struct muster_walk_step *local);
    muster_status (*visit_message)(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive);
    /* The members of the group, in order, with their steps. */
    muster_status (*visit_group)(void *user, const struct muster_walk_step *members,
                                 uint32_t count);
    muster_status (*visit_round_end)(void *user, uint32_t rank, size_t lane_number);
};

/* Matches sends with receives. The schedules must be well formed (ordered, lanes and peers in
 * range). MUSTER_INVALID: a message without a receive or the reverse, or two ends that differ in
 * size; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_walk_init(const struct muster_schedule *schedules,
                                              uint32_t ranks, struct muster_walk *ret_walk);
void muster_walk_finish(struct muster_walk *walk);

/* Walks to the end. MUSTER_INVALID: deadlock (the text names a waiting rank and its peer), or the
 * visitor's; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_walk_run(const struct muster_walk *walk,
                                             const struct muster_walk_visitor *visitor);

#endif
