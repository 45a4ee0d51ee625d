/*
 * Link figures between this member and the service in the background: the lease thread fetches and
 * stores them while its Watch is held, so that a service that hangs makes no call of the member
 * wait. What cannot be stored is dropped: another commit or generation tries again.
 *
 * Threads: callers' threads ask; the lease thread carries it out.
 */
#ifndef MUSTER_WORKER_SESSION_FIGURES_EXCHANGE_H
#define MUSTER_WORKER_SESSION_FIGURES_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/communicator/figures.h"

struct muster_session;

/* Zeroed: nothing is under way. Under the session's mutex. */
struct muster_figures_exchange {
    bool stores; /* `stored` is to be stored */
    bool fetches, fetched;
    uint32_t hosts_digest; /* of the hosts whose figures are fetched */
    int64_t fetch_until_ns;
    struct muster_figures stored, result;
};

/* These figures, which levels belong to, are to be stored with the job. */
void muster_session_store_figures(struct muster_session *session,
                                  const struct muster_figures *figures);

/* The figures that the job has stored for these hosts are wanted soon. */
void muster_session_want_figures(struct muster_session *session, uint32_t hosts_digest);

/* True: *ret_figures are those, without levels if there are none or the service does not answer in
 * time. False: they are still on their way. */
bool muster_session_take_figures(struct muster_session *session, uint32_t hosts_digest,
                                 struct muster_figures *ret_figures);

/* The lease thread: does one thing that is asked for, and blocks for half a second at most. */
void muster_session_exchange_figures(struct muster_session *session);

/* What is still to be stored, when the session closes; blocks likewise. */
void muster_session_flush_figures(struct muster_session *session);

#endif
