/*
 * The builder: what generators write schedules with.
 *
 * It has a current lane and round; each call adds one step there. Failures stick: after the first
 * one nothing is added, and muster_builder_finish() returns it, so that generators need not check.
 *
 * An empty message is a message (it synchronises, and lets two ranks see that their counts differ),
 * so SEND and RECV of nothing are kept. Local steps of nothing are left out.
 */
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H
#define MUSTER_COLLECTIVES_SCHEDULE_BUILDER_H

#include "collectives/call/call_plan.h"
#include "collectives/schedule/schedule.h"

enum {
    MUSTER_LANES_MAX = 16,
    MUSTER_STEPS_MAX = 1 << 26, /* of one schedule */
};

struct muster_builder {
    struct muster_schedule schedule;
    size_t capacity; /* steps that fit in schedule.steps */
    muster_status status;
    uint16_t lane;
    uint32_t
        rounds[MUSTER_LANES_MAX]; /* of each lane: those that have steps, the current one too */
    bool open[MUSTER_LANES_MAX];  /* the last round of the lane still takes steps */
};

/* Ranks that run a part of a collective among themselves, so that generators compose. */
struct muster_group {
    const uint32_t *ranks; /* [size] their ranks in the context; NULL: 0..size-1 */
    uint32_t offset;       /* that is added to each of those */
    uint32_t size;
    uint32_t index; /* this rank's place among them */
};

/* The rank in the context of the group's member number index, modulo size. */
uint32_t muster_group_rank(const struct muster_group *group, uint64_t index);

/* All ranks of the plan, in its reduction order if it has one. */
struct muster_group muster_group_all(const struct muster_plan *plan);

void muster_builder_init(const struct muster_plan *plan, struct muster_builder *ret_builder);

/* Later steps go to this lane, after those that it has. */
void muster_builder_set_lane(struct muster_builder *builder, uint16_t lane);

/* Later steps of this lane wait for all before. Rounds without steps do not come to be. */
void muster_builder_next_round(struct muster_builder *builder);

/* Offset in SCRATCH of `count` elements that nobody else has. */
uint64_t muster_builder_reserve(struct muster_builder *builder, uint64_t count);

void muster_builder_send(struct muster_builder *builder, uint32_t peer, enum muster_buffer source,
                         struct muster_span span);
void muster_builder_recv(struct muster_builder *builder, uint32_t peer, enum muster_buffer target,
                         struct muster_span span);

/* target[at..] = source[span] op what comes; most often at is span.offset. */
void muster_builder_recv_reduce(struct muster_builder *builder, uint32_t peer,
                                enum muster_buffer source, struct muster_span span,
                                enum muster_buffer target, uint64_t at);
void muster_builder_copy(struct muster_builder *builder, enum muster_buffer source,
                         struct muster_span span, enum muster_buffer target, uint64_t at);
void muster_builder_reduce(struct muster_builder *builder, enum muster_buffer source,
                           struct muster_span span, enum muster_buffer target, uint64_t at);

/* Orders the steps and hands the schedule over; or says what went wrong. Either way the builder
 * holds nothing afterwards. MUSTER_FATAL: no memory, or the generator is wrong (the text says
 * where). */
MUSTER_CHECKED muster_status muster_builder_finish(struct muster_builder *builder,
                                                   struct muster_schedule *ret_schedule);

#endif
