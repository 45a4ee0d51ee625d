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
 * There are up to three pieces of memory for copies: that of the last commit, one that a commit in
 * the background writes, and one that the spill thread reads. A commit never waits for the latter,
 * and the copy of the last commit stays whole until the next one is.
 *
 * Threads: one call at a time, with the mutex held; the version may be read at any time. Those that
 * say so are the spill thread's, without the mutex.
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
    unsigned char *copy;      /* owned; NULL: buffers can still be registered */
    unsigned char *spares[2]; /* owned; further copies; NULL: not needed so far */
    bool has_copy;            /* the copy holds a state, of the following version and generation */
    _Atomic uint64_t version;
    uint64_t committed_generation; /* in which the version was committed */

    struct muster_copier *copier; /* owned; NULL: no commit was ever begun */
    unsigned char *begun;         /* the spare that a commit in two parts writes; NULL: none */

    pthread_mutex_t reader_mutex; /* the following; copy, has_copy, version, generation change
                                     with both held */
    pthread_cond_t reader_changed;
    const unsigned char *read; /* the copy that the spill thread reads; NULL: none */
    bool writing;              /* the copy of the last commit is being written */
    bool committed;            /* the version is of a commit, not of a sync */
};

/* A copy that is being read. */
struct muster_state_reading {
    const unsigned char *bytes;
    uint64_t version, committed_generation;
};

void muster_state_init(struct muster_state *state);
void muster_state_finish(struct muster_state *state);

/* MUSTER_INVALID and MUSTER_FATAL as muster_register(). */
MUSTER_CHECKED muster_status muster_state_register(struct muster_state *state, const char *name,
                                                   void *data, size_t size_bytes);

/* Allocates the copy, once; the layout is fixed from then on. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_state_reserve(struct muster_state *state);

/* A commit in two parts: starts copying the registered buffers in a thread; waits for it, and makes
 * that copy this version; or waits for it and forgets it, if there is one. MUSTER_FATAL: no memory,
 * no thread. */
MUSTER_CHECKED muster_status muster_state_begin_commit(struct muster_state *state);
void muster_state_end_commit(struct muster_state *state, uint64_t version,
                             uint64_t committed_generation);
void muster_state_abandon_commit(struct muster_state *state);

/* The version in memory is of a commit: it may be spilled. */
void muster_state_mark_committed(struct muster_state *state);

/* The copy was received, or read from a file, and is this version. */
void muster_state_accept_copy(struct muster_state *state, uint64_t version,
                              uint64_t committed_generation);

/* The spill thread's: blocks until a commit newer than this version is there, or `stop` is set.
 * False: there is none. It is read until muster_state_end_reading(). */
bool muster_state_begin_reading(struct muster_state *state, uint64_t newer_than,
                                const atomic_bool *stop, struct muster_state_reading *ret_reading);
void muster_state_end_reading(struct muster_state *state);
/* Wakes the spill thread, which then looks at `stop`. */
void muster_state_wake_reader(struct muster_state *state);

/* Copies the registered buffers to the copy, which becomes this version. The copy is reserved. */
void muster_state_copy_commit(struct muster_state *state, uint64_t version,
                              uint64_t committed_generation);

/* Copies the copy back to the registered buffers. */
void muster_state_restore_commit(struct muster_state *state);

/* A digest of the buffers' names and sizes. */
int64_t muster_state_digest(const struct muster_state *state);

#endif
