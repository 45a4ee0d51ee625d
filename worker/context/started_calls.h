/*
 * Calls in flight: a call that is started, makes progress in the progress engine's thread, and is
 * ended by its caller, in any order and from any thread. Any number may be in flight in a context.
 *
 * They have operations, scratch and numbers of their own, and where the ranks share memory a part
 * of it: they neither wait for the blocking calls of the context nor delay them. All ranks start
 * the same calls in the same order; a rank that blocks in a call which another one starts waits
 * until its deadline. Group steps take turns in this order (executor_turns.h).
 *
 * An operation and its scratch are used again by later calls with the same key (request.h).
 *
 * Private to the context, but for what context.h declares. May use: executor, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_STARTED_CALLS_H
#define MUSTER_WORKER_CONTEXT_STARTED_CALLS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "collectives/select/tuning.h"
#include "worker/context/algorithm_choice.h"
#include "worker/context/context.h"
#include "worker/context/ranges.h"
#include "worker/executor/executor_group.h"
#include "worker/executor/progress_engine.h"

TAILQ_HEAD(muster_started_call_list, muster_started_call);

/* The calls in flight of a context. */
struct muster_started_calls {
    struct muster_progress_engine *engine; /* borrowed; NULL: no call can be started */
    pthread_mutex_t mutex;                 /* guards what follows */
    struct muster_choices choices;
    struct muster_tuning tuned;            /* what was given; none is tried here */
    struct muster_request_key *key;        /* room for the key of any request */
    struct muster_call_ranges ranges;      /* of the call that is being started */
    uint64_t sequence;                     /* of the last call */
    struct muster_operation_group group;   /* performs group steps; without a state: none does */
    struct muster_group_turns turns;       /* of the group; the engine's */
    struct muster_group_channels channels; /* likewise, on several hosts */
    struct muster_started_call_list idle;  /* most recently used first */
    uint32_t idle_count;
    uint64_t figures; /* how often algorithms have come to be chosen otherwise: a call with an
                         operation from before is not used again, since other ranks may have ended
                         theirs before that */
    struct muster_started_call_list active; /* started and not ended */

    /* A call may wait for a device with the mutex, so that the engine takes this one only. */
    pthread_mutex_t failure_mutex; /* guards what follows */
    muster_status broken;          /* why no call can be made any more; MUSTER_OK: they can */
    char broken_text[MUSTER_ERROR_MAX];
    atomic_bool has_broken; /* of any thread */
};

/* The status and text of a call in flight that has failed before, so that the ranks' numbers, or
 * what a stream has left, can no longer be relied on. Quick where there is none. */
MUSTER_CHECKED muster_status muster_started_calls_check(struct muster_started_calls *calls);

/* The record is zeroed; its key is taken. */
void muster_started_calls_init(struct muster_started_calls *calls,
                               struct muster_progress_engine *engine,
                               const struct muster_choices *choices,
                               struct muster_request_key *key);
/* Waits until all calls are done, which is bounded by their deadlines. */
void muster_started_calls_finish(struct muster_started_calls *calls);

/* From now on algorithms are chosen by these figures. */
void muster_started_calls_set_model(struct muster_started_calls *calls,
                                    const struct muster_cost_model *model);

/* From now on algorithms are those of this list where it has any; NULL: nowhere. What blocking
 * calls find out after that is not used: members may start a call before or after that is decided.
 */
void muster_started_calls_tune(struct muster_started_calls *calls,
                               const struct muster_tuned_list *list);

/* From now on the group performs group steps, in a part of the ranks' memory that is for calls in
 * flight: on one host, and on several, with so many states of MUSTER_GROUP_CHANNELS channels.
 * No call is in flight. */
void muster_started_calls_share(struct muster_started_calls *calls,
                                const struct muster_operation_group *group);
void muster_started_calls_share_hosts(struct muster_started_calls *calls,
                                      const struct muster_operation_group *group,
                                      void *const *states);

#endif
