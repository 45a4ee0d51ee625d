/*
 * Input kept: a promise that a schedule can make, and how any schedule comes to make it.
 *
 * The promise: a step that writes OUTPUT writes there what the collective requires at the end, and
 * nothing else; in a reduction that is an element to which every rank has contributed. In an
 * alltoall(v) and a pairwise_exchange, whose OUTPUT in place is all of INPUT although each element
 * needs one other rank only, no step writes OUTPUT before all ranks have started. So in place, as
 * long as one rank has not started, no rank's input has changed; and later each element is either
 * what it was or the result. Out of place INPUT is never written, so there the promise is idle.
 *
 * The change: an element of OUTPUT that the schedule writes several times is written to SCRATCH
 * instead, except for the last time, and read from there until then. It needs no other rank: the
 * messages stay as they are. Scratch is used again by later rounds; the parts of one step's span
 * stay together. Where a step needs elements from both sides in one span, or where the last write
 * is a REDUCE, which has one place for its operand and its result, those elements stay in SCRATCH,
 * and one more round of the lane copies them to OUTPUT at the end.
 *
 * A group step (group_step.h) is like other steps: what its rank reads in OUTPUT may have gone to
 * SCRATCH, and what it writes there is written to SCRATCH unless it is the last write.
 *
 * Scratch, for S elements on P ranks: S/2 for halving-doubling, and for recursive doubling nothing
 * beyond what it has anyway. For a ring one chunk is sent while the next one arrives, so a step
 * that sends a whole chunk needs 2 S/P (S/P for three ranks, nothing for two; and one small chunk
 * more, so that receives can be posted early). The schedule `ring` cuts large chunks into k pieces
 * for that reason, and needs (1 + 1/k) S/P. S/P exactly would need a step whose arriving bytes take
 * the place of those that it has sent already.
 */
#ifndef MUSTER_COLLECTIVES_SCHEDULE_KEEP_INPUT_H
#define MUSTER_COLLECTIVES_SCHEDULE_KEEP_INPUT_H

#include "collectives/schedule/schedule.h"

/* Changes one rank's schedule of the shape's call, which is right, so that it keeps its input.
 * all_last: all of OUTPUT is written in the last rounds of the lanes, by copies. Pure.
 * MUSTER_FATAL: no memory; the schedule is then as it was. */
MUSTER_CHECKED muster_status muster_schedule_keep_input(const struct muster_shape *shape,
                                                        struct muster_schedule *schedule,
                                                        bool all_last);

#endif
