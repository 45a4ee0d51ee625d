/*
 * Registered memory and its last committed copy.
 *
 * The copy is the truth: its version is what the service is told, and what a failed sync falls
 * back to. It is allocated at the first commit or sync; from then on the layout is fixed.
 *
 * A version alone does not name a state: a member that was cut off right after its commit holds a
 * version number which the others have since given to another state. So the generation in which the
 * copy was committed goes with it, and sync compares both.
 *
 * Threads: one call at a time, by the mutex; version may be read at any time.
 *
 * May use: base.
 */
#ifndef MUSTER_WORKER_SESSION_STATE_H
#define MUSTER_WORKER_SESSION_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/base/status.h"

enum {
    MUSTER_REGIONS_MAX = 1024,
    MUSTER_REGION_NAME_SIZE = 64,
};

struct muster_region {
    char name[MUSTER_REGION_NAME_SIZE];
    void *data; /* the user's */
    size_t size_bytes;
    size_t offset_bytes; /* in the copy */
};

struct muster_state {
    pthread_mutex_t mutex;
    struct muster_region *regions; /* owned [count] */
    uint32_t count;
    size_t total_bytes;
    unsigned char *copy; /* owned; NULL: the layout may still grow */
    bool kept;           /* the copy holds a state: version and committed say which */
    _Atomic uint64_t version;
    uint64_t committed; /* the generation in which the version was committed */
};

void muster_state_init(struct muster_state *state);
void muster_state_finish(struct muster_state *state);

MUSTER_CHECKED muster_status muster_state_register(struct muster_state *state, const char *name,
                                                   void *data, size_t size_bytes);

/* Fixes the layout and allocates the copy, once. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_state_reserve(struct muster_state *state);

/* Live memory -> copy, which from now on is this version; and back. The copy is reserved. */
void muster_state_keep(struct muster_state *state, uint64_t version, uint64_t committed);
void muster_state_put_back(struct muster_state *state);

/* Names and sizes as one number, the same where they are the same. */
int64_t muster_state_digest(const struct muster_state *state);

#endif
