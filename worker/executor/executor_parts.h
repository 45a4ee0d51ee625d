/* What the files of the executor share. The top of executor.c says which thread owns what, and
 * when. */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_PARTS_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/status.h"
#include "worker/executor/executor.h"
#include "worker/executor/executor_turns.h"

struct muster_pack_plan;   /* executor_packs.h */
struct muster_group_steps; /* executor_steps.h */
struct muster_moves;       /* executor_moves.h */

/* A step that is no message. */
static inline bool muster_step_is_local(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_COPY || step->kind == MUSTER_STEP_REDUCE ||
           muster_step_is_group(step);
}

/* Where a launch stands in one lane of the schedule. */
struct muster_lane_state {
    struct muster_operation *operation;
    size_t first, end;        /* its steps: [first, end) of the schedule */
    size_t start, next;       /* the present round: [start, next) */
    uint8_t turn;             /* index of the round's count; the other count is the next round's */
    atomic_size_t waiting[2]; /* messages posted and not done, plus the unit of the starter */
    atomic_bool local_work;   /* the owner has to do the local steps of the round */
    size_t groups;            /* the owner's: group steps of the round that are not done */
    bool has_local;           /* the round has local steps */
    atomic_bool held;         /* the round waits for what is fetched; the owner posts it */
    atomic_size_t final;      /* the steps before this one are done */
};

/* A step's message; unused where the step is local. */
struct muster_step_message {
    struct muster_transfer transfer; /* first: the fabric hands it back */
    const struct muster_step *step;
    struct muster_lane_state *lane;
    uint32_t ordinal; /* its number among the messages of its lane, peer and direction */
    uint8_t turn;     /* of its round */
    bool early;       /* it is posted with the round before its own */
    bool pending;     /* posted and not done */
    bool failed_copy; /* a copy of its data to or on a device failed */
};

struct muster_operation {
    struct muster_fabric *fabric; /* borrowed; NULL: the schedule has no messages */
    struct muster_schedule schedule;
    const uint32_t *ranks;                /* borrowed */
    struct muster_step_message *messages; /* [schedule.step_count] */
    struct muster_lane_state *lanes;      /* [schedule.lanes] */
    uint32_t *peers; /* [peer_count] the distinct peers of messages and group steps, global ranks */
    size_t peer_count;
    struct muster_pack_plan *packs; /* of an operation whose launches are compressed; or NULL */
    const struct muster_operation_group *group; /* borrowed; NULL: none performs it */
    struct muster_group_steps *steps; /* its group steps, if they are not all of it; or NULL */
    struct muster_moves *moves; /* of an operation that has had launches with moves; or NULL */
    uint8_t *methods;           /* [schedule.step_count] of the group's device; or NULL */
    unsigned method;            /* of the group's device */
    bool in_group;              /* the schedule is one group step, of all ranks */

    /* Of the present launch. */
    bool repeats;   /* the launch before was the same record: what depends on it is prepared */
    bool in_ranges; /* one of `ranges` is not NULL */
    bool on_device; /* one of `memories` is not NULL */
    const struct muster_launch *launch;
    struct muster_timeline *timeline; /* the fabric's; or NULL */
    char *buffers[3];                 /* by enum muster_buffer */
    /* Likewise: the ranges that the buffer consists of, or NULL. */
    const struct muster_range_list *ranges[3];
    /* Likewise: the allocation of a device that the buffer is in; NULL: memory of the host. */
    const struct muster_device_memory *memories[3];
    size_t element_size_bytes;
    bool failed_in_group; /* a group step has failed by itself: its text says why */
    atomic_size_t lanes_left;
    pthread_t ended_by;    /* the thread that has ended a lane last */
    bool *awake;           /* the owner has something to do: see wake_owner(); borrowed */
    atomic_bool failed;    /* a lane has failed */
    muster_status failure; /* why, if so */
    char reason[MUSTER_ERROR_MAX];
    char copy_reason[128]; /* why the first copy to or on a device failed; "": none did */

    /* Of an operation in flight: its turn in the memory of its group. */
    TAILQ_ENTRY(muster_operation) channel_order;
    int64_t spin_ns;       /* how long it may wait there in one poll */
    enum muster_turn turn; /* in its channel */
    uint32_t turn_suspect; /* who is to blame for its end there; UINT32_MAX: nobody */
    bool advanced;         /* there, since the last time */
    bool in_channel;       /* it has group steps to perform in its channel */
};

/* Binds the operation to a launch, of which nothing has begun. No other thread uses it before the
 * fabric's lock is taken to post its first messages. */
void muster_operation_prepare(struct muster_operation *operation,
                              const struct muster_launch *launch);

/* Withdraws the operation from the fabric and sets the error text. status is the owner's own
 * failure, or MUSTER_OK. */
MUSTER_CHECKED muster_status muster_operation_end_failed(struct muster_operation *operation,
                                                         muster_status status,
                                                         uint32_t *ret_suspect);

#endif
