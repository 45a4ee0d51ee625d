/*
 * Where a server keeps what it must not lose: jobs, the events that each has accepted, values. The
 * server writes before it answers, and reads everything when it starts.
 *
 * A store may use base and its library. It knows neither memberships nor HTTP: an event is a text
 * with a sequence number. Every function may be called from any thread; a store locks itself.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_STORE_H
#define MUSTER_RENDEZVOUS_STORE_STORE_H

#include "rendezvous/calls/call_files.h"
#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Events of one job. There are far fewer at a time, unless compaction fails (compactor.h). */
    MUSTER_STORE_EVENTS_MAX = 1 << 20,
    MUSTER_STORE_URL_SIZE = 256, /* of a server, with the terminator */
};

struct muster_store;

struct muster_store_range {
    bool of_snapshot; /* otherwise of events */
    uint64_t from;
    size_t max;
};

struct muster_store_job {
    const char *name;
    const char *token;      /* "": none */
    const char *link_token; /* opens links between its members */
    /* A snapshot in place of the events below first_event. 0, 0, 0 in a new job. */
    uint64_t snapshot; /* its number; 0: none */
    uint64_t record_count;
    uint64_t first_event;
};

/* Called by load for each job, then for the records of its snapshot by index, for its events by
 * sequence, and for its values. The first
 * status that is not MUSTER_OK ends the load and becomes its result. A row that is not as it was
 * written is not passed on: damaged is called instead, and then nothing more of that job. */
struct muster_store_reader {
    muster_status (*job)(void *user, const struct muster_store_job *job);
    muster_status (*record)(void *user, uint64_t index, const char *text, size_t size_bytes);
    muster_status (*event)(void *user, uint64_t sequence, const char *text, size_t size_bytes);
    muster_status (*value)(void *user, uint64_t generation, const char *key, const void *value,
                           size_t size_bytes);
    /* what names the row and says what is wrong. If the job's own row is damaged, job was not
     * called, and any text of *job may be wrong. */
    muster_status (*damaged)(void *user, const struct muster_store_job *job, const char *what);
    void *user;
};

/* A function that fails returns MUSTER_RETRY (no space, an input or output error) with a text that
 * names the store; load may also return MUSTER_INVALID. After a failure nothing has changed. */
struct muster_store_ops {
    /* For logs: "memory", "sqlite". */
    const char *kind;

    /* Adds the job's event of this sequence number. The numbers start at 0 and have no gaps. Event
     * 0 also adds the job itself, without a snapshot: both or neither. text is borrowed for the
     * call. */
    muster_status (*append)(struct muster_store *store, const struct muster_store_job *job,
                            uint64_t sequence, const char *text);

    /* Compaction is made of these four, a few rows at a time, so that nobody waits for it. */

    /* Calls read for at most max rows from this position on: of the job's snapshot, which begins at
     * 0, or of its events. *ret_count: how many there were. damaged is
     * called for a row that is not as it was written. */
    muster_status (*read)(struct muster_store *store, const struct muster_store_job *job,
                          struct muster_store_range range, const struct muster_store_reader *reader,
                          size_t *ret_count);

    /* Adds records of a snapshot that is not installed yet, from first_index on: all or none. texts
     * are borrowed for the call. */
    muster_status (*stage)(struct muster_store *store, const struct muster_store_job *job,
                           uint64_t first_index, char *const *texts, size_t count);

    /* The staged snapshot takes the place of the one before and of the events below first_event. */
    muster_status (*install)(struct muster_store *store, const struct muster_store_job *job);

    /* Removes at most max rows that the job needs no more: events below first_event, and records of
     * other snapshots than its own. *ret_count: how many. */
    muster_status (*trim)(struct muster_store *store, const struct muster_store_job *job,
                          size_t max, size_t *ret_count);

    /* Adds a value, or replaces the one of the same generation and key. The bytes are a record that
     * the store does not read (service/values.c). */
    muster_status (*put)(struct muster_store *store, const char *job, uint64_t generation,
                         const char *key, const void *value, size_t size_bytes);

    /* Removes a value; none of this generation and key is no error. */
    muster_status (*remove_value)(struct muster_store *store, const char *job, uint64_t generation,
                                  const char *key);

    /* Removes the values of generations above 0 and below this one. */
    muster_status (*drop_values)(struct muster_store *store, const char *job,
                                 uint64_t below_generation);

    /* Removes the job with its events and values. */
    muster_status (*remove)(struct muster_store *store, const char *job);

    /* True: what the other functions have written is certain only after sync. False: nothing is
     * stored at all, and there is nothing to compact. */
    bool syncs;

    /* What was written before the call survives a power loss. Others may write meanwhile. If it
     * fails, the store writes nothing any more: what is on the disk is not certain. */
    muster_status (*sync)(struct muster_store *store);

    /* Writes something that changes nothing: MUSTER_OK says that an event could be stored now. */
    muster_status (*probe)(struct muster_store *store);

    /* Begins an epoch: the server's time, now_s, or one more than the last, if that is later. It is
     * certain to survive a power loss. *ret_first: the store had none, so that nothing keeps
     * another one that begins within this second from the same. Called once, before load. */
    muster_status (*begin_epoch)(struct muster_store *store, uint32_t now_s, uint32_t *ret_epoch,
                                 bool *ret_first);

    /* Reads everything. Called before the other functions. */
    muster_status (*load)(struct muster_store *store, const struct muster_store_reader *reader);

    void (*close)(struct muster_store *store);
};

/* Called by a shared store from a thread of its own, with no lock held. */
struct muster_store_watcher {
    /* This server has lost all its claims: it drops what it has of the jobs. */
    void (*lost)(void *user);
    /* A job has no owner: any server may claim it. */
    void (*ownerless)(void *user, const char *job);
    void *user;
};

/* How a server takes part in a shared store. */
struct muster_store_sharing {
    const char *url; /* where other servers reach this one */
    uint32_t lease_ms;
    bool without_threads; /* for simulations: the caller runs the steps of the store's threads */
};

/* Where a job is served. */
struct muster_store_claim {
    uint64_t number;                   /* here, with this claim; 0: not here */
    char owner[MUSTER_STORE_URL_SIZE]; /* the URL of the server that has it; "": none has it */
};

/*
 * What a store that several servers share does beside that. A job has at most one owner: the server
 * that has claimed it, reads it then, and from then on is the only one that writes to it. A claim
 * is lost when the server was cut off from the store for too long, and another one may have the
 * job. Whatever a server wants to tell of a job it checks just before; so nobody hears of an old
 * state. Jobs that are not claimed are not written to: the functions above then return
 * MUSTER_RETRY.
 */
struct muster_store_shared_ops {
    /* Once, before the other functions. The watcher is borrowed until stop. Blocks until the store
     * answers. MUSTER_INVALID: another server has this URL; MUSTER_RETRY: no answer. */
    muster_status (*start)(struct muster_store *store, const struct muster_store_sharing *sharing,
                           const struct muster_store_watcher *watcher);
    /* The watcher is not called any more. The claims stay until the store is closed. */
    void (*stop)(struct muster_store *store);

    /* Claims the job and reads it, as load does, if no other server has it. A job that is not
     * stored is claimed only if `create`. Claimed here already: it is read again, with a new
     * claim. MUSTER_RETRY: no answer. Blocks for a second at most. */
    muster_status (*claim)(struct muster_store *store, const char *job, bool create,
                           const struct muster_store_reader *reader,
                           struct muster_store_claim *ret_claim);
    /* MUSTER_OK: what this server knows of the job is what there is to know, now. MUSTER_RETRY:
     * the claim is lost. claim 0: whether this server may have claims at all. */
    muster_status (*check)(struct muster_store *store, uint64_t claim);
    /* Gives up a claim of a job that has no event. */
    void (*release)(struct muster_store *store, uint64_t claim);
};

struct muster_store {
    const struct muster_store_ops *ops;
    const struct muster_store_shared_ops *shared; /* NULL: it belongs to this server alone */
};

/* Opens the store that a place names (musterd's --store): "memory", "etcd://...", or the path of a
 * SQLite file. files: for the connections to etcd. */
MUSTER_CHECKED muster_status muster_store_open(const char *place,
                                               const struct muster_call_files *files,
                                               struct muster_store **ret_store);

/* Stores nothing: a server that restarts knows no jobs. */
MUSTER_CHECKED muster_status muster_store_memory_open(struct muster_store **ret_store);

/* A SQLite file; created if missing, readable by its owner only. What was written survives the
 * death of the server; what was synced, a power loss. MUSTER_INVALID names the
 * file: a directory, no permission, no database, not a musterd's, of another version, or in use by
 * another musterd. */
MUSTER_CHECKED muster_status muster_store_sqlite_open(const char *path,
                                                      struct muster_store **ret_store);

/* An etcd cluster: "etcd://HOST:PORT,HOST:PORT/PREFIX", see etcd/README.md. MUSTER_INVALID: it is
 * no such place. Does not connect yet. */
MUSTER_CHECKED muster_status muster_store_etcd_open(const char *place,
                                                    const struct muster_call_files *files,
                                                    struct muster_store **ret_store);

/* Accepts NULL. */
static inline void muster_store_close(struct muster_store *store)
{
    if (store != NULL) {
        store->ops->close(store);
    }
}

#endif
