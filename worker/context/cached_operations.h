/*
 * The cache of a context's operations, by the keys of their requests: a training loop makes the
 * same few calls again and again. The cache is bounded in operations and in steps; the least
 * recently used operation goes first.
 *
 * Private to the context. May use: executor.h, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_CACHED_OPERATIONS_H
#define MUSTER_WORKER_CONTEXT_CACHED_OPERATIONS_H

#include <sys/queue.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "collectives/call/request.h"
#include "collectives/select/host_memory.h"
#include "worker/context/caller_order.h"
#include "worker/executor/executor.h"

struct muster_cached_operation {
    struct muster_request_key *key;                /* owned */
    struct muster_launch launch;                   /* the part that all launches of it share */
    struct muster_operation *operation;            /* owned */
    struct muster_operation_order order_of_blocks; /* owned */
    enum muster_memory_method method;              /* of its group step, if it is one; else 0 */
    size_t algorithm;
    size_t element_size_bytes;
    bool has_host_steps; /* group steps of the hosts, beside messages */
    bool on_device;      /* a device performs its group steps, on data in its memory */
    bool autotuning; /* its algorithm is not final: each call gets the one that is being tried */
    uint64_t scratch_bytes;
    uint64_t packs_bytes; /* launch.packs; 0: it is not compressed */
    size_t step_count;
    TAILQ_ENTRY(muster_cached_operation) order;
    UT_hash_handle hh;
};

struct muster_operation_cache {
    struct muster_cached_operation *by_key;
    TAILQ_HEAD(muster_operation_cache_order, muster_cached_operation) order; /* newest use first */
    size_t steps;
};

void muster_operation_cache_init(struct muster_operation_cache *ret_cache);
/* Leaves it empty. */
void muster_operation_cache_clear(struct muster_operation_cache *cache);

void muster_operation_cache_drop(struct muster_operation_cache *cache,
                                 struct muster_cached_operation *cached);

/* NULL: it is not there. Else it is now the most recently used one. */
struct muster_cached_operation *muster_operation_cache_find(struct muster_operation_cache *cache,
                                                            const struct muster_request_key *key);

/* Adds it under a copy of the key, to which the bounds of its launch then point. Takes the
 * operation and the order, also on failure; made->key and the links are not read. *ret_cached is
 * borrowed until the next one is added. */
MUSTER_CHECKED muster_status muster_operation_cache_add(
    struct muster_operation_cache *cache, const struct muster_request_key *key,
    const struct muster_cached_operation *made, struct muster_cached_operation **ret_cached);

#endif
