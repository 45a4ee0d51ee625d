/*
 * The checker: proves that the schedules of all ranks together do the collective, or says why not.
 *
 * It proves:
 * - Peers exist and are other ranks; spans are within their buffers.
 * - Sender and receiver agree on size and order.
 * - Steps that may run at the same time do not race.
 * - There is no deadlock, even if no send is buffered.
 * - At the end every result element counts every rank exactly once, or is the right block of the
 *   right rank. In an allreduce it was reduced in the same order on all ranks, so that all get the
 *   same bits. With a reduction order it was reduced along the tree of that order.
 * - INPUT is never written, except in place; and all of this holds in place too.
 * - No rank leaves a barrier before all ranks have entered it.
 *
 * And, where it is asked for, the promises of schedules:
 * - Input kept, as collectives/schedule/keep_input.h defines it.
 * - Nobody finishes before all have started.
 *
 * Pure and sequential. Memory grows with all ranks' steps and with the number of different partial
 * results; a partial result that does not count consecutive ranks takes ranks / 8 bytes more.
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

enum muster_check_promise {
    MUSTER_CHECK_INPUT_KEPT = 1,
    MUSTER_CHECK_FINISH_TOGETHER = 2,
};

/* schedules[i] is that of rank i, made for shapes[i]; all are of one call. Where
 * muster_plan.in_place matters, `in_place` says for which of the two the schedules were made;
 * elsewhere both cases are proven. MUSTER_FATAL: no memory. A wrong schedule is a result, not an
 * error. */
MUSTER_CHECKED muster_status muster_check(const struct muster_shape *shapes,
                                          const struct muster_schedule *schedules, uint32_t ranks,
                                          bool in_place, struct muster_check_result *ret_result);

/* Proves these promises, too: of enum muster_check_promise, as a set of bits. That an alltoall(v)
 * or a pairwise_exchange keeps its input is proven of schedules for calls in place only. */
MUSTER_CHECKED muster_status muster_check_promises(const struct muster_shape *shapes,
                                                   const struct muster_schedule *schedules,
                                                   uint32_t ranks, bool in_place, unsigned promises,
                                                   struct muster_check_result *ret_result);

#endif
