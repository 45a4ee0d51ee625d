/*
 * The engine of a scope in one generation: takes named tensors from any thread, agrees with the
 * other ranks (agree/), and performs them in the scope's engine context.
 *
 * One thread at a time drives: it makes the steps that the agreement names. A thread that waits for
 * a tensor without a limit drives if nobody else does, so that the tensor's end need not be handed
 * over to it. Otherwise the engine's own thread does. It is woken when a step is due and nobody is
 * there to make it, and sleeps without a time limit otherwise.
 *
 * Threads: any. Locks: the engine's mutex comes after those of the session; no operation, and no
 * function of the user, runs with it held.
 *
 * May use: context, collectives, base, agree. May not know: sessions.
 */
#ifndef MUSTER_WORKER_ENGINE_ENGINE_H
#define MUSTER_WORKER_ENGINE_ENGINE_H

#include "collectives/call/request.h"
#include "worker/base/status.h"

struct muster_engine;
struct muster_timeline;

/* How an engine reaches its context, which belongs to the caller. Called by the thread that drives,
 * one at a time; each blocks. */
struct muster_engine_context {
    /* The collective, with the statuses of muster_context_run(). It may not begin any more once the
     * generation ends. */
    muster_status (*run)(void *owner, const struct muster_request *request);
    /* What all ranks do before the first collective. */
    muster_status (*prepare)(void *owner);
    void *owner; /* borrowed for the engine's life */
};

struct muster_engine_options {
    struct muster_engine_context context;
    uint32_t rank, ranks;
    uint32_t timeout_ms;              /* of each collective */
    bool reproducible;                /* every tensor is */
    struct muster_timeline *timeline; /* of the session; or NULL */
};

/* MUSTER_FATAL: no memory, no thread, too many engines. */
MUSTER_CHECKED muster_status muster_engine_create(const struct muster_engine_options *options,
                                                  struct muster_engine **ret_engine);

/* Ends all tensors with this status and text, and accepts no more. Does not block: an operation
 * that is under way ends as its context says. Under any lock of the session. */
void muster_engine_end(struct muster_engine *engine, muster_status status, const char *text);
/* The same, waits until no thread drives, and ends the engine's thread. Handles keep their
 * statuses. */
void muster_engine_stop(struct muster_engine *engine, muster_status status, const char *text);
/* Waits until nothing is pending, or until that time; then returns false. */
bool muster_engine_wait_all(struct muster_engine *engine, int64_t until_ns);
/* Of an engine that was stopped: its handles are errors from now on. Accepts NULL. */
void muster_engine_destroy(struct muster_engine *engine);
/* Whether handles are left that were not consumed. */
bool muster_engine_has_handles(struct muster_engine *engine);
/* Whether it has ended, by itself too: an operation has failed. */
bool muster_engine_has_ended(struct muster_engine *engine);

/* muster_submit_group(); a single tensor is a group of one without flags. `tensors` are complete
 * structs of this library's size. ret_operations may be NULL where all have a function `done`. */
MUSTER_CHECKED muster_status muster_engine_submit(struct muster_engine *engine,
                                                  const muster_tensor *tensors, size_t count,
                                                  uint32_t flags, muster_operation *ret_operations);

/* Fills all fields but the size. */
void muster_engine_read_counters(struct muster_engine *engine, muster_engine_counters *ret);

/* Handles ----------------------------------------------------------------------------------------
 */

/* Whether a handle is one of an engine's. */
static inline bool muster_engine_owns(muster_operation operation)
{
    return operation >> 63 != 0;
}

/* As muster_wait() and muster_test() until the time; *ret_done: the handle is consumed, and the
 * status is the tensor's. MUSTER_INVALID, not done: no tensor has this handle. */
MUSTER_CHECKED muster_status muster_engine_wait(muster_operation operation, int64_t until_ns,
                                                bool *ret_done);
/* As muster_wait_any(); all handles are of one engine. */
MUSTER_CHECKED muster_status muster_engine_wait_any(const muster_operation *operations,
                                                    size_t count, size_t *ret_index);
MUSTER_CHECKED muster_status muster_engine_detach(muster_operation operation);

#endif
