/*
 * Group commit. Events are written to the store one by one, and synced together: a thread syncs the
 * store and then sends every response that depends on what was written before. So what was answered
 * survives a power loss, one sync serves all that was accepted meanwhile, and no other thread waits
 * for the disk's cache.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_COMMITS_H
#define MUSTER_RENDEZVOUS_SERVICE_COMMITS_H

#include "rendezvous/service/held_requests.h"
#include "rendezvous/service/metrics.h"
#include "rendezvous/store/store.h"
#include "worker/base/thread.h"

#include <stdatomic.h>

struct muster_commits {
    struct muster_store *store;     /* borrowed */
    struct muster_metrics *metrics; /* borrowed */
    _Atomic uint64_t written;       /* tickets given */
    _Atomic uint64_t synced;        /* what has this ticket or a lower one is on the disk */
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct muster_held_request *waiting; /* under the lock: with their responses */
    bool stopping;                       /* under the lock */
};

/* Prepares zeroed storage; nothing may be sent before start. */
void muster_commits_init(struct muster_commits *commits, struct muster_store *store,
                         struct muster_metrics *metrics);
MUSTER_CHECKED muster_status muster_commits_start(struct muster_commits *commits);
/* Syncs, sends what waits, and ends the thread, if it was started. */
void muster_commits_finish(struct muster_commits *commits);

/* The ticket of a write that has just returned. 0: the store has nothing to sync. */
uint64_t muster_commits_ticket(struct muster_commits *commits);
/* Whether what has this ticket is not on the disk yet. */
bool muster_commits_pending(const struct muster_commits *commits, uint64_t ticket);

/* Sends the responses once what has this ticket is on the disk: at once if it is. If the sync fails
 * the response is `unavailable`. Called with no lock held. */
void muster_commits_send(struct muster_commits *commits, struct muster_ready_responses *responses,
                         uint64_t ticket);

#endif
