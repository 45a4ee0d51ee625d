/*
 * A context from within: what its files share.
 *
 *   context.c               members and turns; queries about the context
 *   find_operation.c        from a request to its operation, cached or new
 *   caller_order.c          ranks as the callers number them, where hosts are mixed
 *   algorithm_choice.c      which algorithm, where none is named
 *   compression_choice.c    whether a call is compressed
 *   cached_operations.c     the cache
 *   launch.c                runs an operation on the buffers of a request
 *   local_work.c            what a rank does alone before and after that
 *   buffer_counts.c         how many buffers there are on all ranks, for averages
 *   repeated_call.c         small calls that are the one before once more
 *   scratch.c               memory that a launch needs, kept for the next one
 *   turns.c                 one call at a time, in the order of their callers
 *   ranges.c                calls on several ranges
 *   staged_ranges.c         those of them that are memory of a device
 *   device_staging.c        buffers that are memory of a device
 *   device_room.c           pinned memory and queues for them
 *   device_merge.c          several of them that the device reduces to one before the call
 *   memory_setup.c          opens groups of a device, by collectives of the context
 *   context_memory.c        and closes them
 *   shared_memory_setup.c   that of all ranks, which performs whole calls
 *   host_memory_setup.c     that of each host
 *   device_group.c          a group of a device, for data in its memory: opened in the background
 *   quiet_exchange.c        the collectives by which the ranks agree on that meanwhile
 *   host_steps.c            how the group steps of a call on several hosts are performed
 *   autotune.c              calls that try algorithms
 *   started_calls.c         calls in flight
 *   started_operation.c     their operations
 *   started_device.c        their launches, on memory of the host or of a device
 *   point_to_point.c        messages, matched by message_matching.c: posted and ended
 *   message_arrivals.c      messages that come in
 *   message_calls.c         sends and receives, blocking or in flight
 *
 * Private to the context. May use: executor, device, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_CONTEXT_PARTS_H
#define MUSTER_WORKER_CONTEXT_CONTEXT_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/base/status.h"
#include "worker/context/algorithm_choice.h"
#include "worker/context/cached_operations.h"
#include "worker/context/caller_order.h"
#include "worker/context/context.h"
#include "worker/context/device_staging.h"
#include "worker/context/point_to_point.h"
#include "worker/context/ranges.h"
#include "worker/context/repeated_call.h"
#include "worker/context/scratch.h"
#include "worker/context/started_calls.h"
#include "worker/context/turns.h"
#include "worker/executor/executor_group.h"

/* The group of a device that the ranks of a context have, or those of each host: of the host's, the
 * memory that they share. */
struct muster_context_memory {
    void *memory; /* the device's group, owned; NULL: there is none */
    struct muster_memory_reach reach;
    struct muster_operation_group group; /* performs group steps in it */
    /* Owned: its channels for calls in flight; on one host only the first. */
    void *channels[MUSTER_GROUP_CHANNELS];
};

/* Such small buffers are parts of larger allocations, of which no process unmaps one and then gets
 * memory of a device at the same address: a call on the buffer of the last one does not look again
 * where it is. */
enum { MUSTER_SMALL_BUFFER_BYTES = 4096 };

struct muster_context {
    struct muster_fabric *fabric; /* borrowed */
    uint64_t generation;
    uint32_t number;
    uint32_t rank; /* this member's, as the callers number them */
    char *name;
    uint32_t *ranks;           /* global ranks, in the order of the topology */
    uint32_t *reduction_order; /* [ranks] ranks of the topology by their members' `order`: of
                                  reproducible sums */
    struct muster_caller_order order;
    struct muster_topology topology;
    struct muster_choices choices;
    atomic_uint_fast64_t progress;
    struct muster_started_calls started;              /* has a mutex of its own */
    pthread_mutex_t mutex;                            /* guards the creation of `messages` */
    _Atomic(struct muster_point_to_point *) messages; /* NULL: there has been none yet */
    /* The last small buffer of a send and of a receive that proved to be memory of the host. */
    _Atomic(const void *) host_buffers[2];
    struct muster_turns turns;      /* the caller that has the turn owns what follows */
    uint64_t sequence;              /* of the last operation */
    struct muster_request_key *key; /* room for the key of any request */
    struct muster_operation_cache cache;
    struct muster_repeated_call repeated;
    bool tunes;
    struct muster_tuning tuning;
    struct muster_scratch scratch;
    struct muster_device_room staging;   /* of calls on memory of a device */
    struct muster_call_ranges ranges;    /* of the present call */
    struct muster_context_memory shared; /* shared.memory is NULL where the ranks share none */
    /* On several hosts: what the ranks of this rank's host share, for group steps beside messages.
     * All ranks have it or none; memory is NULL, too, on a host of one rank. */
    struct muster_context_memory host;
    bool hosts_share;
    /* The group of all ranks of a device that data of calls has been in; its memory is NULL until
     * they have agreed to use it. The setup is made by the first such call. */
    struct muster_context_memory device_group;
    struct muster_device_setup *device_setup;
    uint32_t *local_order; /* of reduction, among the ranks of the host; NULL: not needed */
    muster_status broken;  /* why no operation can run any more; MUSTER_OK: they can */
    char broken_text[MUSTER_ERROR_MAX];
};

/* context_memory.c: leaves the group, in which no step is under way; accepts what is not there.
 * failed: a step has failed, so the device aborts first, which is bounded. */
void muster_context_memory_finish(struct muster_context_memory *memory, bool failed);

/* context.c: the ranks share this memory from now on; takes it. */
void muster_context_set_shared(struct muster_context *context,
                               const struct muster_context_memory *shared);
/* The same for the ranks of each host. */
void muster_context_set_host(struct muster_context *context,
                             const struct muster_context_memory *host);

/* The caller of all of the following has the turn. find_operation.c: */

/* The operation of a request, made if it is not in the cache; the second function uses the
 * algorithm of this number in place of the one that the request leads to. Borrowed until the next
 * operation is found. MUSTER_INVALID: the request is wrong. */
MUSTER_CHECKED muster_status muster_context_find(struct muster_context *context,
                                                 const struct muster_request *request,
                                                 struct muster_cached_operation **ret_cached);
MUSTER_CHECKED muster_status muster_context_find_with(struct muster_context *context,
                                                      const struct muster_request *request,
                                                      size_t algorithm,
                                                      struct muster_cached_operation **ret_cached);

/* Borrows from the cached operation. */
struct muster_plan muster_context_plan(const struct muster_context *context,
                                       const struct muster_cached_operation *cached);

/* Sets made->algorithm if the table has decided it for such calls. made has its key. */
bool muster_context_choose_tuned(const struct muster_choices *choices, struct muster_tuning *tuning,
                                 const struct muster_plan *plan,
                                 struct muster_cached_operation *made);

/* made, which has its algorithm, its packing and the size of elements, gets its operation, whose
 * group step this group performs, and the scratch and steps of that. Changes the plan. */
MUSTER_CHECKED muster_status muster_context_schedule(const struct muster_context *context,
                                                     const struct muster_operation_group *group,
                                                     struct muster_plan *plan,
                                                     struct muster_cached_operation *made);

/* host_steps.c: the methods for the group steps of a schedule of the plan, [step_count] by
 * the index of a step; NULL: it has none. False: one of them cannot be performed in the memory of
 * the host, on any of its ranks. The caller frees them. */
MUSTER_CHECKED muster_status muster_context_find_methods(const struct muster_context *context,
                                                         const struct muster_plan *plan,
                                                         const struct muster_schedule *schedule,
                                                         size_t element_size_bytes,
                                                         bool *ret_possible, uint8_t **ret_methods);

/* launch.c: gives the operation that was found last a number and runs it. flags: of struct
 * muster_call, besides those of the request. */
MUSTER_CHECKED muster_status muster_context_launch(struct muster_context *context,
                                                   const struct muster_request *request,
                                                   const struct muster_cached_operation *cached,
                                                   uint8_t flags, uint32_t *ret_suspect);
/* The same for the call in context->repeated, with the request's deadline. */
MUSTER_CHECKED muster_status muster_context_launch_again(struct muster_context *context,
                                                         const struct muster_request *request,
                                                         uint32_t *ret_suspect);

/* launch.c: fills what belongs to this launch alone, except its number; reserves its scratch, and
 * gathers this rank's own buffers, which needs no other rank. Here and below, without the turn and
 * of any thread. */
MUSTER_CHECKED muster_status muster_context_prepare(const struct muster_context *context,
                                                    const struct muster_request *request,
                                                    const struct muster_cached_operation *cached,
                                                    struct muster_scratch *scratch,
                                                    struct muster_launch *ret_launch);

/* launch.c: whether a call on memory of a device is direct (device_staging.h). */
bool muster_context_may_be_direct(const struct muster_context *context,
                                  const struct muster_request *request,
                                  const struct muster_cached_operation *cached);
/* Likewise: whether its operation may move a staged call's buffers. */
bool muster_context_may_move(const struct muster_request *request,
                             const struct muster_cached_operation *cached);

/* launch.c: adds the span of a call that has succeeded to the timeline. */
void muster_context_trace(const struct muster_context *context, const struct muster_launch *launch,
                          int64_t started_ns);

/* autotune.c: the same for an operation whose algorithm is still being tuned: runs it by the
 * algorithm that is to be tried, or by the one that was found best. */
MUSTER_CHECKED muster_status muster_context_launch_tuned(struct muster_context *context,
                                                         const struct muster_request *request,
                                                         struct muster_cached_operation *cached,
                                                         uint32_t *ret_suspect);

#endif
