/*
 * The builder, with which generators write schedules.
 *
 * It has a current lane and round; each call adds one step there. After the first failure nothing
 * more is added, and muster_builder_finish() returns that failure, so that generators need not
 * check each call.
 *
 * Empty messages are kept: they synchronise, and let two ranks detect that their counts differ.
 * Empty local steps are left out.
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
    struct muster_shape shape; /* of the plan's call; borrows its bounds */
    size_t capacity;           /* of schedule.steps */
    muster_status status;
    uint16_t lane;
    uint16_t first_lane;               /* muster_builder_set_lane() counts from it */
    uint32_t rounds[MUSTER_LANES_MAX]; /* rounds of each lane so far, those that have steps */
    bool open[MUSTER_LANES_MAX];       /* further steps go to the lane's last round */
};

/* A group: ranks that run a part of a collective among themselves, so that generators compose. */
struct muster_group {
    const uint32_t *ranks; /* [size] their ranks in the context; NULL: 0..size-1 */
    uint32_t offset;       /* added to each of those */
    uint32_t size;
    uint32_t index; /* of this rank in the group */
};

/* The rank in the context of member number `index`, modulo the size. */
uint32_t muster_group_rank(const struct muster_group *group, uint64_t index);

/* All ranks of the plan, in its reduction order if it has one. */
struct muster_group muster_group_all(const struct muster_plan *plan);

void muster_builder_init(const struct muster_plan *plan, struct muster_builder *ret_builder);

/* Later steps go to this lane, counted from builder->first_lane, behind those that it has. */
void muster_builder_set_lane(struct muster_builder *builder, uint16_t lane);

/* Later steps of this lane wait for all earlier ones. A round without steps does not exist. */
void muster_builder_next_round(struct muster_builder *builder);

/* Reserves `count` elements of SCRATCH, and returns their offset. */
uint64_t muster_builder_reserve(struct muster_builder *builder, uint64_t count);

void muster_builder_send(struct muster_builder *builder, uint32_t peer, enum muster_buffer source,
                         struct muster_span span);
void muster_builder_recv(struct muster_builder *builder, uint32_t peer, enum muster_buffer target,
                         struct muster_span span);

/* target[at..] = source[span] op what is received; most often `at` is span.offset. */
void muster_builder_recv_reduce(struct muster_builder *builder, uint32_t peer,
                                enum muster_buffer source, struct muster_span span,
                                enum muster_buffer target, uint64_t at);
void muster_builder_copy(struct muster_builder *builder, enum muster_buffer source,
                         struct muster_span span, enum muster_buffer target, uint64_t at);
void muster_builder_reduce(struct muster_builder *builder, enum muster_buffer source,
                           struct muster_span span, enum muster_buffer target, uint64_t at);

/* A group step, as group_step.h describes its kinds. root: a rank in the context. */
struct muster_group_call {
    enum muster_step_kind kind;
    enum muster_step_scope scope;
    uint32_t root;
    enum muster_buffer source, target;
    struct muster_span span;
    uint64_t at;
    bool blocks;   /* the shares are blocks of the call, in place of equal parts */
    bool together; /* no member is done before all have come */
};
void muster_builder_group(struct muster_builder *builder, const struct muster_group_call *call);

/* Orders the steps and moves the schedule to the caller, or returns the first failure. Either way
 * the builder owns nothing afterwards. MUSTER_FATAL: no memory, or an error of the generator (the
 * text names rank, lane and round). */
MUSTER_CHECKED muster_status muster_builder_finish(struct muster_builder *builder,
                                                   struct muster_schedule *ret_schedule);

#endif
