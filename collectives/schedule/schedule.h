/*
 * A schedule: what one rank does in one collective, as plain data without pointers.
 *
 * Meaning. A schedule is a list of steps, ordered by lane and, within a lane, by round. All steps
 * of one round of one lane are posted together and may finish in any order; the next round of that
 * lane starts when all have finished. Lanes never wait for each other. Sends are not assumed to be
 * buffered: a send may last until its matching receive is posted. A receive may be posted one round
 * early if no step of that round touches its elements. Between one sender and one receiver the n-th
 * send of a lane matches the n-th receive of that lane (n is the message's ordinal).
 *
 * Steps that may run at the same time (same round, or different lanes) never touch the same
 * elements of a buffer, unless both only read them.
 *
 * A group step is a collective of several ranks that a device performs as one, in memory that the
 * ranks share for example. It is done when all ranks of the group have come to it and it is carried
 * out. The n-th group step of a group on one rank is the same one as the n-th on the others. A rank
 * performs its group steps one after the other: by round, and within a round by lane.
 */
#ifndef MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_H
#define MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_H

#include "collectives/call/shape.h"

#include <stdio.h>

/* The call's buffers; shape.h defines what they hold. In place, INPUT and OUTPUT share memory: one
 * may be a part of the other. A schedule must be right either way, so it never reads INPUT after
 * writing the same elements of OUTPUT. Only where muster_plan.in_place matters there are two
 * schedules. SCRATCH belongs to the executor. */
enum muster_buffer {
    MUSTER_INPUT = 0,
    MUSTER_OUTPUT = 1,
    MUSTER_SCRATCH = 2,
};

/* "input", "output", "scratch"; "unknown" for values out of range. */
const char *muster_buffer_name(unsigned buffer);

enum muster_step_kind {
    MUSTER_STEP_SEND = 1,        /* source[span] -> peer */
    MUSTER_STEP_RECV = 2,        /* target[at..] = what the peer sent */
    MUSTER_STEP_RECV_REDUCE = 3, /* target[at..] = source[span] op what the peer sent */
    MUSTER_STEP_COPY = 4,        /* target[at..] = source[span]; nothing if both are the same */
    MUSTER_STEP_REDUCE = 5,      /* target[at..] = target[at..] op source[span] */

    /* Group steps; group_step.h says what each of them reads and writes. */
    MUSTER_STEP_GROUP_ALLREDUCE = 6,
    MUSTER_STEP_GROUP_REDUCE_SCATTER = 7,
    MUSTER_STEP_GROUP_ALLGATHER = 8,
    MUSTER_STEP_GROUP_REDUCE = 9,
    MUSTER_STEP_GROUP_BROADCAST = 10,
    MUSTER_STEP_GROUP_BARRIER = 11,
};

/* The group of a group step. */
enum muster_step_scope {
    MUSTER_STEP_OVER_HOST = 0,  /* the ranks of this rank's host */
    MUSTER_STEP_OVER_CROSS = 1, /* the ranks of the same local rank, one a host */
    MUSTER_STEP_OVER_ALL = 2,
    MUSTER_STEP_SCOPES = 3,
};

/* Ranks first, first + stride, and so on: `count` of them. */
struct muster_step_group {
    uint32_t first, count, stride; /* count 0: there is no such group, as where hosts differ */
};

struct muster_step {
    uint8_t kind;   /* enum muster_step_kind */
    uint8_t source; /* enum muster_buffer; unused by RECV */
    uint8_t target; /* enum muster_buffer; unused by SEND */
    uint8_t scope;  /* enum muster_step_scope; of group steps */
    uint16_t lane;
    uint8_t blocks;          /* 1: the shares of a group step are blocks of the call; else 0 */
    uint8_t together;        /* 1: no member is done with a group step before all have come to it,
                                whether it needs them or not; else 0 */
    uint32_t round;          /* within the lane, without gaps */
    uint32_t peer;           /* rank in the context; the root of a group step; unused by others */
    struct muster_span span; /* in source; RECV: the count that arrives, with offset == at; the
                                count of a group step is that of all shares together */
    uint64_t at;             /* offset in target; unused by SEND */
};

struct muster_schedule {
    uint32_t rank;
    uint32_t ranks;
    uint64_t input_count;   /* elements of INPUT */
    uint64_t output_count;  /* elements of OUTPUT */
    uint64_t scratch_count; /* elements of SCRATCH that it needs */
    uint32_t lanes;         /* lanes are 0..lanes-1, each with at least one round */
    struct muster_step_group groups[MUSTER_STEP_SCOPES]; /* that this rank is in */
    size_t step_count;
    struct muster_step *steps; /* owned; ordered by (lane, round) */
};

/* Elements of one of the schedule's buffers; 0 for values out of range. */
uint64_t muster_buffer_count(const struct muster_schedule *schedule, unsigned buffer);

/* Accepts NULL and zeroed storage. */
void muster_schedule_finish(struct muster_schedule *schedule);

/* Totals of this rank's steps. */
struct muster_schedule_totals {
    uint32_t rounds; /* of the longest lane */
    uint64_t messages_sent, elements_sent;
    uint64_t messages_received, elements_received;
    uint64_t elements_reduced; /* by messages and local steps */
    uint64_t group_steps;
};
struct muster_schedule_totals muster_schedule_total(const struct muster_schedule *schedule);

/* True if the step is a receive that may be posted one round early: no step of its lane's round
 * before touches its elements, and it is the first receive from its peer in its own round. The
 * sender then learns early that it may send. It is false for all receives that come more than
 * MUSTER_EARLY_STEPS_MAX steps after the beginning of the round before, which bounds the search. */
enum { MUSTER_EARLY_STEPS_MAX = 64 };
bool muster_schedule_receives_early(const struct muster_schedule *schedule, size_t step);

/* One line for each step, for readers: "lane 0 round 2  recv_reduce  from 3  output[0..128)". */
void muster_step_print(const struct muster_step *step, FILE *out);
void muster_schedule_print(const struct muster_schedule *schedule, FILE *out);

#endif
