/*
 * A context: a group of ranks that run collectives together in one generation.
 *
 * It numbers the operations, chooses algorithms, caches operations with their schedules, and runs
 * them by the executor or in memory that the ranks share. Once an operation is cached, a call
 * allocates nothing, logs nothing and holds no lock for long.
 *
 * Threads: one blocking call at a time; further callers wait for their turn. Calls in flight have
 * no turns: any number at a time, from any thread.
 *
 * May use: executor, device, fabric, collectives, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_CONTEXT_CONTEXT_H
#define MUSTER_WORKER_CONTEXT_CONTEXT_H

#include "collectives/call/request.h"
#include "collectives/reduce/reduce.h"
#include "collectives/select/algorithm_override.h"
#include "collectives/select/select.h"
#include "collectives/select/tuning.h"
#include "worker/fabric/fabric.h"

struct muster_context;
struct muster_device;

struct muster_progress_engine; /* worker/executor/progress_engine.h */

struct muster_context_options {
    struct muster_fabric *fabric;          /* borrowed; has begun the generation */
    struct muster_progress_engine *engine; /* of the fabric, borrowed; NULL: no call of the context
                                              can be started, all block */
    uint64_t generation;
    uint32_t number;                        /* unique within the generation on each member */
    const char *name;                       /* "global", for errors; copied */
    const struct muster_topology *topology; /* of this group; copied */
    const uint32_t *ranks;                  /* [topology->ranks] their global ranks; copied */
    uint32_t rank;                          /* this member's rank in the topology */
    const uint32_t *callers; /* [topology->ranks] the rank by which callers know each of them; in
                                calls, results and texts only these occur; NULL: the same; copied */
    const struct muster_cost_model *model; /* same on all members; copied */
    const char *algorithm;                 /* as algorithm_override.h parses it; where it
                                              does not fit, and if NULL: chosen by cost */
    const uint32_t *member_orders; /* [topology->ranks] each member's `order` (muster.h), by which
                                       reproducible sums are ordered; callers' ranks break ties;
                                       NULL: by caller's rank; copied */
};

MUSTER_CHECKED muster_status muster_context_create(const struct muster_context_options *options,
                                                   struct muster_context **ret_context);
void muster_context_destroy(struct muster_context *context);

uint32_t muster_context_rank(const struct muster_context *context);
uint32_t muster_context_size(const struct muster_context *context);
uint32_t muster_context_number(const struct muster_context *context);

/* From now on algorithms are chosen by these figures. All ranks call this between the same
 * collectives. */
void muster_context_set_model(struct muster_context *context,
                              const struct muster_cost_model *model);

/* From now on the first calls of each size class find out which algorithm is the fastest
 * (autotuning), where none is named or overridden; `list` is what was found before. NULL: no
 * autotuning, as in a new context. All ranks call this between the same collectives. */
void muster_context_tune(struct muster_context *context, const struct muster_tuned_list *list);

/* What autotuning has found; *ret_list is unchanged in a context without autotuning. */
void muster_context_tuned(struct muster_context *context, struct muster_tuned_list *ret_list);

/* Sets up memory that the ranks share, or on several hosts those of each host, if their callers
 * number them as the topology does, and it is possible: then algorithms that use it are chosen
 * where they are the fastest. If it is not possible, nothing changes, and that is MUSTER_OK. Once,
 * before other threads use the context. Collective, with the statuses of muster_context_run(). */
MUSTER_CHECKED muster_status muster_context_share_memory(struct muster_context *context,
                                                         int64_t deadline_ns,
                                                         uint32_t *ret_suspect);
/* The same with the groups of another device than the host. */
MUSTER_CHECKED muster_status muster_context_open_group(struct muster_context *context,
                                                       const struct muster_device *device,
                                                       int64_t deadline_ns, uint32_t *ret_suspect);

/* True if no call is in flight: none was started, or all have been ended, or have finished after
 * they were detached. Any thread. */
bool muster_context_is_idle(struct muster_context *context);

/* Whether calls on memory of a device may be group steps of that device by now. */
bool muster_context_has_device_group(struct muster_context *context);

/* Operations finished since the context was created: the progress counter. Any thread. */
uint64_t muster_context_progress(const struct muster_context *context);

/* Runs a collective; blocks until this rank's part is done. Statuses are those of the collectives
 * in muster.h. All texts name global ranks.
 *
 * MUSTER_REJOIN: a link was lost, or the deadline passed; the text names the ranks that were waited
 * for, and *ret_suspect (ret_suspect may be NULL) is the global rank of the first of them. In all
 * other cases it is UINT32_MAX. The context cannot be used any more then: every further call
 * returns the same status and text.
 *
 * MUSTER_INVALID: the ranks disagree about the call. All of them get this status, except ranks
 * that only send (the root of a broadcast) and may have finished before; the context can run
 * further operations. A request that is wrong in itself gets this status here, before it has a
 * number. The other ranks do not learn of it: they wait until this rank makes the call that it
 * should have made, or until their deadline. */
MUSTER_CHECKED muster_status muster_context_run(struct muster_context *context,
                                                const struct muster_request *request,
                                                uint32_t *ret_suspect);

/* Calls in flight (started_calls.h) --------------------------------------------------------------
 */

struct muster_started_call;

/* Starts a collective and returns at once. The buffers are the call's until it is ended; the
 * request and its lists are borrowed until this returns. All ranks start the same calls in the
 * same order. The time until the deadline of the request passes only while a thread waits for the
 * call. MUSTER_INVALID: the request is wrong in itself, or a buffer is memory of a device;
 * MUSTER_REJOIN, MUSTER_FATAL: a call in flight has failed before, and none can be started any
 * more. */
MUSTER_CHECKED muster_status muster_context_start(struct muster_context *context,
                                                  const struct muster_request *request,
                                                  struct muster_started_call **ret_call);

/* Makes a call that can be started any number of times: it is started, ended, and started again.
 * The buffers of the request must stay. Statuses as above. */
MUSTER_CHECKED muster_status muster_context_make_persistent(struct muster_context *context,
                                                            const struct muster_request *request,
                                                            struct muster_started_call **ret_call);
/* Starts a persistent call that is not in flight. Statuses as of muster_context_start(). */
MUSTER_CHECKED muster_status muster_started_call_start(struct muster_started_call *call);
/* Frees a persistent call that is not in flight. */
void muster_started_call_free(struct muster_started_call *call);

/* Whether it is done. */
bool muster_started_call_test(struct muster_started_call *call);

/* Blocks until it is done, or until the time of muster_clock_ns(). Returns whether it is done. */
bool muster_started_call_wait(struct muster_started_call *call, int64_t until_ns);

/* The same for one of several, all of the same communicator: blocks until one of them is done, and
 * returns its index; `count` if none was by that time. */
size_t muster_started_calls_wait_any(struct muster_started_call *const *calls, size_t count,
                                     int64_t until_ns);

/* Waits until it is done, which is bounded by the deadline of its request, and releases it unless
 * it is persistent. Status and suspect are those of muster_context_run(). */
MUSTER_CHECKED muster_status muster_started_call_end(struct muster_started_call *call,
                                                     uint32_t *ret_suspect);

/* Releases it, once it has finished by itself. Its buffers are the call's until then. */
void muster_started_call_detach(struct muster_started_call *call);

/* Point to point (point_to_point.h) --------------------------------------------------------------
 */

/* A send or a receive, as muster.h describes them. Ranks are those of the context. */
struct muster_message_call {
    enum muster_direction direction;
    const void *in; /* SEND */
    void *out;      /* RECEIVE */
    size_t count;   /* elements; RECEIVE: at most */
    muster_type type;
    uint32_t peer;    /* RECEIVE: or MUSTER_ANY_SOURCE */
    uint32_t tag;     /* RECEIVE: or MUSTER_ANY_TAG */
    int32_t priority; /* SEND: of its segments */
    uint32_t timeout_ms;
    uint64_t taken;              /* RECEIVE: the message of this number, from peer; 0: any */
    muster_message *ret_message; /* RECEIVE: is written when it has succeeded; or NULL */
};

/* Sends or receives; blocks. Any number of threads. MUSTER_INVALID: a bad argument, or the message
 * did not fit into the receive. MUSTER_REJOIN: a link was lost, a peer has left, or the deadline
 * passed; then no message can be sent or received in the context any more. *ret_suspect as in
 * muster_context_run(). */
MUSTER_CHECKED muster_status muster_context_message(struct muster_context *context,
                                                    const struct muster_message_call *what,
                                                    uint32_t *ret_suspect);

/* The same as a call in flight. The order of the starts is that of the messages. */
MUSTER_CHECKED muster_status muster_context_start_message(struct muster_context *context,
                                                          const struct muster_message_call *what,
                                                          struct muster_started_call **ret_call);

/* The same as a call that can be started any number of times (muster_started_call_start()). */
MUSTER_CHECKED muster_status muster_context_make_persistent_message(
    struct muster_context *context, const struct muster_message_call *what,
    struct muster_started_call **ret_call);

struct muster_message_probe {
    uint32_t source; /* or MUSTER_ANY_SOURCE */
    uint32_t tag;    /* or MUSTER_ANY_TAG */
    bool takes;      /* the message leaves the matching, and gets a number */
    uint32_t timeout_ms;
};

/* Waits until a message of this source and tag waits for a receive, at most so long; 0: does not
 * block. Statuses are those of muster_context_message(), but that the limit ends nothing. */
MUSTER_CHECKED muster_status muster_context_probe(struct muster_context *context,
                                                  const struct muster_message_probe *what,
                                                  bool *ret_found, muster_message *ret_message,
                                                  uint32_t *ret_suspect);

/* Queries ----------------------------------------------------------------------------------------
 */

/* The number of the algorithm that the request would run with; during autotuning, without it. */
MUSTER_CHECKED muster_status muster_context_algorithm(struct muster_context *context,
                                                      const struct muster_request *request,
                                                      size_t *ret_algorithm);

/* Whether that algorithm is final: autotuning is over for such requests, or does not concern them.
 */
MUSTER_CHECKED muster_status muster_context_is_tuned(struct muster_context *context,
                                                     const struct muster_request *request,
                                                     bool *ret_tuned);

/* The time that the cost model predicts. Of an alltoallv a rank knows only its own blocks, and
 * assumes that the others have blocks of the same sizes. */
MUSTER_CHECKED muster_status muster_context_predict(struct muster_context *context,
                                                    const struct muster_request *request,
                                                    double *ret_us);

#endif
