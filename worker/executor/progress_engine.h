/*
 * The progress engine: operations in flight, and the thread that makes them progress while their
 * callers compute or wait. There is one engine for each fabric. Its thread starts with the first
 * operation in flight and sleeps while there is none; or it keeps watch from the start, so that
 * what peers tell this member is passed on while its callers compute.
 *
 * An operation in flight belongs to the engine from start until it is done. The engine's thread
 * does its local steps, waits for its messages, and finishes it.
 *
 * Locks, outermost first: the engine's mutex, the fabric's lock. No function of the caller is
 * called with either.
 *
 * Threads: any thread may call any function here, except destroy.
 *
 * May use: executor.h, fabric, base. May not know: contexts, sessions.
 */
#ifndef MUSTER_WORKER_EXECUTOR_PROGRESS_ENGINE_H
#define MUSTER_WORKER_EXECUTOR_PROGRESS_ENGINE_H

#include <sys/queue.h>

#include "worker/base/status.h"
#include "worker/executor/executor.h"

struct muster_progress_engine;
struct muster_in_flight;

/* Called once by the engine's thread, when the operation has ended with this status, whose text is
 * that of muster_last_error(). Returns the status of the call; it may do local work and set another
 * text. */
typedef muster_status (*muster_completion_function)(struct muster_in_flight *in_flight,
                                                    muster_status status);

struct muster_in_flight {
    /* Filled by the caller; must stay until the operation is done. */
    struct muster_operation *operation; /* borrowed; no other launch of it is under way. NULL: the
                                           call has no schedule, and is ended by its flag */
    const bool *finished; /* without an operation: set under the fabric's lock, before the flag of
                             the engine (muster_progress_engine_flag()) */
    struct muster_launch launch; /* without an operation: its key and its deadline */
    /* A second operation, by messages, which is run when the first one has succeeded, before
     * `complete`; borrowed likewise. NULL: there is none. */
    struct muster_operation *then;
    struct muster_launch then_launch;
    muster_completion_function complete;
    /* How long threads may wait for it altogether, at most: the time during which no thread waits
     * does not count, so that a caller may compute for as long as it likes. After that it ends as
     * at a deadline. launch.deadline_ns is MUSTER_NEVER. */
    int64_t limit_ns;

    /* Written by the engine; read by the caller when it is done. */
    muster_status status;
    uint32_t suspect; /* as in muster_context_run() */
    char text[MUSTER_ERROR_MAX];

    /* Private to the engine. */
    bool started, done;
    bool in_then;          /* the first operation has succeeded */
    uint32_t waiting;      /* threads */
    int64_t waiting_since; /* while there are any */
    int64_t waited_ns;     /* before that */
    TAILQ_ENTRY(muster_in_flight) order;
};

/* fabric is borrowed for the engine's life. */
MUSTER_CHECKED muster_status muster_progress_engine_create(
    struct muster_fabric *fabric, struct muster_progress_engine **ret_engine);
/* Waits until all operations are done, which is bounded by their limits. Accepts NULL. */
void muster_progress_engine_destroy(struct muster_progress_engine *engine);

/* From now on the thread drives the fabric every 10 ms when there is no operation. MUSTER_FATAL: no
 * thread can be started. */
MUSTER_CHECKED muster_status
muster_progress_engine_keep_watch(struct muster_progress_engine *engine);

/* Does not block. MUSTER_FATAL: no thread can be started, and the operation is not in flight. */
MUSTER_CHECKED muster_status muster_progress_engine_start(struct muster_progress_engine *engine,
                                                          struct muster_in_flight *in_flight);

/* The flag that makes the engine look at its operations. */
bool *muster_progress_engine_flag(struct muster_progress_engine *engine);

/* From now on the operation's limit counts, although no thread waits for it. */
void muster_progress_engine_count_time(struct muster_progress_engine *engine,
                                       struct muster_in_flight *in_flight);

/* Whether it is done. */
bool muster_progress_engine_test(struct muster_progress_engine *engine,
                                 const struct muster_in_flight *in_flight);

/* Blocks until it is done, or until the time of muster_clock_ns(), which gives up waiting and not
 * the operation. Returns whether it is done. */
bool muster_progress_engine_wait(struct muster_progress_engine *engine,
                                 struct muster_in_flight *in_flight, int64_t until_ns);

/* Blocks until one of them is done, and returns its index; `count` if none was by that time. */
size_t muster_progress_engine_wait_any(struct muster_progress_engine *engine,
                                       struct muster_in_flight *const *in_flight, size_t count,
                                       int64_t until_ns);

/* Blocks until no operation is in flight, or until that time. Returns whether none is. */
bool muster_progress_engine_wait_all(struct muster_progress_engine *engine, int64_t until_ns);

#endif
