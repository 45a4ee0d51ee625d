/*
 * The operations that a context keeps, by what their schedules depend on, because a training loop
 * asks for the same few again and again. The table is bounded in entries and in steps; what was not
 * used for the longest time goes first.
 *
 * Private to the context. May use: request.h, executor.h, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_CACHED_OPERATIONS_H
#define MUSTER_WORKER_CONTEXT_CACHED_OPERATIONS_H

#include <sys/queue.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "collectives/select/host_memory.h"
#include "worker/context/request.h"
#include "worker/executor/executor.h"

enum { MUSTER_KEY_BY_COST = 0 }; /* an algorithm in a key; else 1 + the index of the named one */

/* What a schedule depends on. Without padding: it is hashed and compared as bytes. */
struct muster_call_key {
    uint64_t count;
    uint32_t collective;
    uint32_t root;
    uint32_t algorithm;
    uint32_t element_size_bytes; /* selection depends on it */
    uint32_t in_place;
    uint32_t ordered;
    uint32_t bound_count;
    uint32_t untuned;
    uint64_t bounds[]; /* [bound_count] of the input, then of the output */
};

struct muster_kept {
    struct muster_call_key *key;        /* owned */
    struct muster_operation *operation; /* owned; NULL: it is done in memory */
    enum muster_memory_method method;   /* then */
    size_t algorithm;
    bool tuned; /* what it is done by may still change: it is looked for with every call */
    uint64_t scratch_bytes;
    size_t step_count;
    TAILQ_ENTRY(muster_kept) order;
    UT_hash_handle hh;
};

struct muster_kept_table {
    struct muster_kept *by_key;
    TAILQ_HEAD(muster_kept_order, muster_kept) order; /* by last use, newest first */
    size_t steps;
};

void muster_kept_init(struct muster_kept_table *ret_table);
/* Leaves it empty. */
void muster_kept_clear(struct muster_kept_table *table);

void muster_kept_drop(struct muster_kept_table *table, struct muster_kept *kept);

/* NULL: it is not there. Else it is now the newest. */
struct muster_kept *muster_kept_find(struct muster_kept_table *table,
                                     const struct muster_call_key *key);

/* Under a copy of the key. Takes the operation, also on failure; key and links of made are not
 * read. *ret_kept is borrowed until the next one is added. */
MUSTER_CHECKED muster_status muster_kept_add(struct muster_kept_table *table,
                                             const struct muster_call_key *key,
                                             const struct muster_kept *made,
                                             struct muster_kept **ret_kept);

#endif
