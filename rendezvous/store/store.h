/*
 * Where a server keeps what it must not lose: jobs, the events that each accepted, values. It is
 * written to before anything is answered; a server that starts on an old store replays it.
 *
 * A store may use: base, its library. May not know: memberships, HTTP. Every function may be called
 * from any thread; a store locks itself.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_STORE_H
#define MUSTER_RENDEZVOUS_STORE_STORE_H

#include "worker/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    /* Of one job. Far fewer are kept at a time (events.c) if the store takes what replaces them. */
    MUSTER_STORE_EVENTS_MAX = 1 << 20,
};

struct muster_store;

struct muster_store_job {
    const char *name;
    const char *token;      /* "": none */
    const char *link_token; /* what its members show each other */
};

/* Called by load: each job, then its events in their order, then its values. Any status but
 * MUSTER_OK ends the load with it. */
struct muster_store_reader {
    muster_status (*job)(void *user, const struct muster_store_job *job);
    muster_status (*event)(void *user, uint64_t sequence, const char *text, size_t size_bytes);
    muster_status (*value)(void *user, uint64_t generation, const char *key, const void *value,
                           size_t size_bytes);
    void *user;
};

/* Functions that fail return MUSTER_RETRY (no space, an input or output error: nothing was
 * changed) with a text that names the store; load also MUSTER_INVALID. */
struct muster_store_ops {
    /* For logs: "memory", "sqlite". */
    const char *kind;

    /* Keeps the job's event `sequence`; they count from 0 without gaps. With event 0 the job itself
     * is kept: both or neither. Text is borrowed for the call. */
    muster_status (*append)(struct muster_store *store, const struct muster_store_job *job,
                            uint64_t sequence, const char *text);

    /* Keeps these events, numbered from 0, in the place of all that the job has: all or nothing.
     * The job is kept already; texts are borrowed for the call. */
    muster_status (*replace)(struct muster_store *store, const char *job, char *const *texts,
                             size_t count);

    /* Keeps a value, in place of an older one of the same generation and key. */
    muster_status (*put)(struct muster_store *store, const char *job, uint64_t generation,
                         const char *key, const void *value, size_t size_bytes);

    /* Drops the values of generations above 0 and below this one. */
    muster_status (*drop_values)(struct muster_store *store, const char *job,
                                 uint64_t below_generation);

    /* Drops the job and everything of it. */
    muster_status (*remove)(struct muster_store *store, const char *job);

    /* Reads everything. Before anything else is called. */
    muster_status (*load)(struct muster_store *store, const struct muster_store_reader *reader);

    void (*close)(struct muster_store *store);
};

struct muster_store {
    const struct muster_store_ops *ops;
};

/* Keeps nothing: a server that starts again knows no jobs. */
MUSTER_CHECKED muster_status muster_store_memory_open(struct muster_store **ret_store);

/* A file of SQLite's; made if it is not there, readable for its owner only. What was answered
 * survives the server's death; a crash of the whole machine may cost the last moments.
 * MUSTER_INVALID names the file: a directory, no permission, no database, not a musterd's, of a
 * newer musterd, or in use by another. */
MUSTER_CHECKED muster_status muster_store_sqlite_open(const char *path,
                                                      struct muster_store **ret_store);

/* Accepts NULL. */
static inline void muster_store_close(struct muster_store *store)
{
    if (store != NULL) {
        store->ops->close(store);
    }
}

#endif
