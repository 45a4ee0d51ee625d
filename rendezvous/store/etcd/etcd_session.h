/*
 * A server's lease in etcd, and the thread that keeps it alive. All that the server owns there goes
 * with the lease. The server counts the lease's time from when it asked for it, and so knows that
 * it has ended before etcd gives what it owned to others, also when the process was stopped in the
 * meantime. A tenure is the time of one lease; tenures are numbered.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_SESSION_H
#define MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_SESSION_H

#include "rendezvous/store/etcd/etcd_client.h"
#include "rendezvous/store/store.h"
#include "worker/base/random.h"
#include "worker/base/thread.h"

#include <stdatomic.h>

struct muster_etcd_session {
    struct muster_etcd_client *client; /* borrowed */
    const struct muster_store_watcher *watcher;
    char url[MUSTER_STORE_URL_SIZE];
    char instance[MUSTER_UUID_SIZE]; /* of this process */
    uint32_t lease_ms;
    _Atomic int64_t lease;          /* 0: none */
    _Atomic uint64_t tenure;        /* of the lease; without one, of the next */
    _Atomic int64_t valid_until_ns; /* 0: there is no lease */
    bool has_lease;                 /* of the thread: else it tries to get one */
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stopping; /* under the lock */
};

/* Prepares zeroed storage. */
void muster_etcd_session_init(struct muster_etcd_session *session,
                              struct muster_etcd_client *client);
/* As start in muster_store_shared_ops. */
MUSTER_CHECKED muster_status muster_etcd_session_start(struct muster_etcd_session *session,
                                                       const struct muster_store_sharing *sharing,
                                                       const struct muster_store_watcher *watcher);
/* One step of the thread: renews the lease, or gets a new one. Returns the ms until the next. */
uint32_t muster_etcd_session_step(struct muster_etcd_session *session);
/* Ends the thread; the lease goes on for its time. */
void muster_etcd_session_stop(struct muster_etcd_session *session);
/* Ends the lease, too, so that others need not wait for that. */
void muster_etcd_session_finish(struct muster_etcd_session *session);

/* MUSTER_OK: the lease of this tenure is there, now. tenure 0: of any. MUSTER_RETRY: it has ended.
 */
MUSTER_CHECKED muster_status muster_etcd_session_check(struct muster_etcd_session *session,
                                                       uint64_t tenure);

/* "PREFIXserver/URL": the key of the server of this URL. */
void muster_etcd_session_key(const struct muster_etcd_session *session, char *ret_key, size_t size);

#endif
