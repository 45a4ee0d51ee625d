/*
 * The checker: proves that the schedules of all ranks together do the collective, or says why not.
 *
 * It proves: peers exist and are not oneself; spans are within their buffers; sender and receiver
 * agree on size and order; no two steps that may run at the same time race; no deadlock under
 * unbuffered sends; at the end every result element counts every rank exactly once (or is the right
 * block of the right rank) and was reduced in the same order on all ranks, so that it has the same
 * bits, and along the tree of the reduction order where the shapes have one; INPUT is never
 * written, except in place, and all this holds in place too; and a barrier lets nobody out before
 * everybody is in.
 *
 * Pure and sequential. Memory grows with all ranks' steps, with the different partial results, and
 * with ranks / 8 bytes for each of those that does not count ranks that follow each other.
 */
#ifndef MUSTER_COLLECTIVES_CHECK_CHECK_H
#define MUSTER_COLLECTIVES_CHECK_CHECK_H

#include "collectives/schedule/schedule.h"

enum { MUSTER_CHECK_TEXT_MAX = 256 };

struct muster_check_result {
    bool proven;
    char why[MUSTER_CHECK_TEXT_MAX]; /* if not proven: rank, lane, round, and what is wrong */
    uint32_t rounds;                 /* of the longest lane of any rank */
    uint64_t elements_sent_max;      /* by the rank that sends most */
    uint64_t messages_sent_max;
};

/* schedules[i] is rank i's, made for shapes[i]: all of one call. Where muster_plan.in_place counts,
 * `in_place` says which of the two is meant; elsewhere both are proven. MUSTER_FATAL: no memory. A
 * schedule that is wrong is a result, not an error. */
MUSTER_CHECKED muster_status muster_check(const struct muster_shape *shapes,
                                          const struct muster_schedule *schedules, uint32_t ranks,
                                          bool in_place, struct muster_check_result *ret_result);

#endif
