/*
 * Registered memory and its last committed copy.
 *
 * The copy is the state of the job as this member knows it: Join reports its version to the
 * service, and a failed sync falls back to it. It is allocated by the first commit or sync; no
 * buffer can be registered after that.
 *
 * A version alone does not identify a state: a member that was cut off right after its commit holds
 * a version number that the others have since given to another state. So the copy also records the
 * generation in which it was committed, and sync compares both.
 *
 * Threads: one call at a time, with the mutex held; the version may be read at any time.
 *
 * May use: device/devices.h (to recognise memory of a device), base.
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
    MUSTER_REGISTERED_BUFFERS_MAX = 1024,
    MUSTER_REGISTERED_BUFFER_NAME_SIZE = 64,
};

struct muster_registered_buffer {
    char name[MUSTER_REGISTERED_BUFFER_NAME_SIZE];
    void *data; /* the user's */
    size_t size_bytes;
    size_t offset_bytes; /* in the copy */
};

struct muster_state {
    pthread_mutex_t mutex;
    struct muster_registered_buffer *buffers; /* owned [count] */
    uint32_t count;
    size_t total_bytes;
    unsigned char *copy; /* owned; NULL: buffers can still be registered */
    bool has_copy;       /* the copy holds a state, of the following version and generation */
    _Atomic uint64_t version;
    uint64_t committed_generation; /* in which the version was committed */
};

void muster_state_init(struct muster_state *state);
void muster_state_finish(struct muster_state *state);

/* MUSTER_INVALID and MUSTER_FATAL as muster_register(). */
MUSTER_CHECKED muster_status muster_state_register(struct muster_state *state, const char *name,
                                                   void *data, size_t size_bytes);

/* Allocates the copy, once; the layout is fixed from then on. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_state_reserve(struct muster_state *state);

/* Copies the registered buffers to the copy, which becomes this version. The copy is reserved. */
void muster_state_copy_commit(struct muster_state *state, uint64_t version,
                              uint64_t committed_generation);

/* Copies the copy back to the registered buffers. */
void muster_state_restore_commit(struct muster_state *state);

/* A digest of the buffers' names and sizes. */
int64_t muster_state_digest(const struct muster_state *state);

#endif
