/*
 * A context: a group of ranks that run collectives together in one generation.
 *
 * It numbers the operations, chooses algorithms, keeps their schedules, and has one executor. The
 * way from a call to the wire takes no allocation, no lock of the context for long, and no log once
 * the schedule is cached.
 *
 * Threads: one collective at a time (a second caller waits for the first).
 *
 * May use: executor, fabric, collectives, base. May not know: the session, the service.
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

struct muster_context_options {
    struct muster_fabric *fabric; /* borrowed; has begun the generation */
    uint64_t generation;
    uint32_t number;                        /* unique within the generation on each member */
    const char *name;                       /* "global", for errors; copied */
    const struct muster_topology *topology; /* of this group; copied */
    const uint32_t *ranks;                  /* [topology->ranks] their global ranks; copied */
    uint32_t rank;                          /* this member's rank in the group */
    const struct muster_cost_model *model;  /* same on all members; copied */
    const char *algorithm;  /* forced, as muster_algorithm_override_parse() takes it; where it
                               does not fit, and if NULL: chosen by cost */
    const uint32_t *orders; /* [topology->ranks] the logical numbers of those who
                               contribute, ranks break ties; NULL: the ranks;
                               copied */
};

MUSTER_CHECKED muster_status muster_context_create(const struct muster_context_options *options,
                                                   struct muster_context **ret_context);
void muster_context_destroy(struct muster_context *context);

uint32_t muster_context_rank(const struct muster_context *context);
uint32_t muster_context_size(const struct muster_context *context);

/* From now on algorithms are chosen by these figures. All members do it between the same calls. */
void muster_context_set_model(struct muster_context *context,
                              const struct muster_cost_model *model);

/* From now on it finds out by the first calls of each kind which algorithm is the fastest, where
 * none is named or forced; it has found out this much. NULL: it does not (as in a new context). All
 * members do it between the same calls. Times that a model predicts are then only where it begins.
 */
void muster_context_tune(struct muster_context *context, const struct muster_tuned_list *list);

/* What it has found out; *ret_list stays as it is if it was never told to. */
void muster_context_tuned(struct muster_context *context, struct muster_tuned_list *ret_list);

/* Brings the members to memory that they share, if they are all on one host and this can be done:
 * algorithms that use it are then chosen where they are the fastest. If it cannot be done nothing
 * changes, and that is MUSTER_OK. Once, before other threads use the context; collective, with the
 * statuses of muster_context_run(). */
MUSTER_CHECKED muster_status muster_context_share_memory(struct muster_context *context,
                                                         int64_t deadline_ns,
                                                         uint32_t *ret_suspect);

/* Operations finished since the context was made: the progress counter. Any thread. */
uint64_t muster_context_progress(const struct muster_context *context);

/* Runs it. Statuses are those of muster.h's collectives. When the deadline passes the text names
 * the ranks it waited for, and the status is MUSTER_REJOIN; ret_suspect (may be NULL) then gets the
 * global rank of the first of them, and UINT32_MAX in all other cases. A lost link also sets it.
 * Texts name global ranks.
 *
 * Where the members disagree all get MUSTER_INVALID, and the context goes on to serve the next
 * operation; members that only had to send (a broadcast's root) may have been done before. A
 * request that is wrong in itself is refused here before it gets a number: the others do not hear
 * of it and wait, until this member makes the call it should have made or their deadline passes.
 * After MUSTER_REJOIN the context is of no more use; each call repeats the status and the text. */
MUSTER_CHECKED muster_status muster_context_run(struct muster_context *context,
                                                const struct muster_request *request,
                                                uint32_t *ret_suspect);

/* Number of the algorithm that a request would run with; in a trial, if it did not count there. */
MUSTER_CHECKED muster_status muster_context_algorithm(struct muster_context *context,
                                                      const struct muster_request *request,
                                                      size_t *ret_algorithm);

/* Whether it is known which algorithm that will be from now on: calls without a name may find out
 * for a while. */
MUSTER_CHECKED muster_status muster_context_is_settled(struct muster_context *context,
                                                       const struct muster_request *request,
                                                       bool *ret_settled);

/* How long it would take by the cost model. Of an alltoallv a member knows only its own blocks, and
 * takes it that those of the others are like them. */
MUSTER_CHECKED muster_status muster_context_predict(struct muster_context *context,
                                                    const struct muster_request *request,
                                                    double *ret_us);

#endif
