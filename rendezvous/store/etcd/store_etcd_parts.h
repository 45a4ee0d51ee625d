/* The etcd store and its jobs, shared by the files of this folder. */
#ifndef MUSTER_RENDEZVOUS_STORE_ETCD_STORE_ETCD_PARTS_H
#define MUSTER_RENDEZVOUS_STORE_ETCD_STORE_ETCD_PARTS_H

#include "rendezvous/store/etcd/etcd_changes.h"
#include "rendezvous/store/etcd/etcd_session.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum {
    MUSTER_ETCD_PENDING_MAX_BYTES = 64 * 1024 * 1024, /* of changes that are not sent yet */
    MUSTER_ETCD_CALL_MS = 1000,                       /* for a call that somebody waits for */
};

/* A job that this server has claimed. */
struct etcd_job {
    UT_hash_handle by_name, by_claim;
    char name[MUSTER_ETCD_JOB_SIZE];
    uint64_t claim;
    uint64_t tenure;        /* in which it was claimed */
    int64_t owner_revision; /* of the key owner/JOB */
    int64_t head_revision;  /* of the key job/JOB; 0: there is none */
    bool lost;              /* a transaction has failed: what it was to change is gone */
    bool removed;           /* its removal is among the changes */
    struct muster_etcd_head head;
    struct muster_etcd_changes changes; /* not sent yet */
};

struct etcd_store {
    struct muster_store base; /* first */
    struct muster_etcd_client *client;
    struct muster_etcd_session session;
    const struct muster_store_watcher *watcher; /* NULL: not started */
    pthread_t watch_thread;
    bool watch_runs;
    atomic_bool stopping;
    int64_t watch_revision; /* of the watch thread */
    uint64_t batches;       /* under flush_mutex: transactions ever */
    /* Whoever sends changes has the first, so that those of a job are sent in order; it also keeps
     * jobs from being freed. The second is held for moments only, and taken after the first. */
    pthread_mutex_t flush_mutex;
    pthread_mutex_t mutex;
    struct etcd_job *by_name, *by_claim; /* the same jobs */
    uint64_t claims;                     /* numbers given */
    size_t pending_bytes;
};

/* The keys of a job. */
void muster_etcd_key(const struct etcd_store *store, const char *kind, const char *job,
                     char ret_key[MUSTER_ETCD_KEY_SIZE]);
/* "PREFIXdata/JOB/" */
void muster_etcd_folder(const struct etcd_store *store, const char *job,
                        char ret_folder[MUSTER_ETCD_KEY_SIZE]);

/* NULL: the job is not claimed, or the claim is lost. */
struct etcd_job *muster_etcd_find_locked(struct etcd_store *store, const char *name);
MUSTER_CHECKED muster_status muster_etcd_not_claimed(const struct etcd_store *store,
                                                     const char *name);
/* Takes the job out of the tables. flush_mutex is held, too. */
void muster_etcd_forget_locked(struct etcd_store *store, struct etcd_job *job);

/* Sends what all jobs have changed. A job whose changes cannot be sent is lost; the watcher is told
 * then. No lock is held. */
void muster_etcd_flush(struct etcd_store *store);
/* The same for one job. MUSTER_RETRY: its claim is lost. */
MUSTER_CHECKED muster_status muster_etcd_flush_job(struct etcd_store *store, const char *name);

/* As in muster_store_shared_ops and muster_store_ops. */
muster_status muster_etcd_claim(struct muster_store *base, const char *name, bool create,
                                const struct muster_store_reader *reader,
                                struct muster_store_claim *ret_claim);
muster_status muster_etcd_read_rows(struct muster_store *base, const struct muster_store_job *job,
                                    struct muster_store_range range,
                                    const struct muster_store_reader *reader, size_t *ret_count);
muster_status muster_etcd_begin_epoch(struct muster_store *base, uint32_t now_s,
                                      uint32_t *ret_epoch, bool *ret_first);
/* Reads the snapshot, the events and the values of a job. */
MUSTER_CHECKED muster_status muster_etcd_read_job(struct etcd_store *store,
                                                  const struct muster_store_job *job,
                                                  const struct muster_store_reader *reader);
/* The key of the lines of which one is this event. MUSTER_INVALID: there are none. */
MUSTER_CHECKED muster_status muster_etcd_find_chunk(struct etcd_store *store, const char *name,
                                                    uint64_t sequence,
                                                    char ret_key[MUSTER_ETCD_KEY_SIZE]);

/* The thread that tells the watcher of jobs without an owner. */
MUSTER_CHECKED muster_status muster_etcd_watch_start(struct etcd_store *store);
/* What it does when it connects: tells of all jobs that have no owner. */
MUSTER_CHECKED muster_status muster_etcd_watch_look(struct etcd_store *store);
void muster_etcd_watch_stop(struct etcd_store *store);

#endif
