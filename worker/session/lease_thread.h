/*
 * The lease thread, which holds this member's lease on its place in the job, and what it has in
 * common with callers' threads: reports, and errors that the service answers with.
 */
#ifndef MUSTER_WORKER_SESSION_LEASE_THREAD_H
#define MUSTER_WORKER_SESSION_LEASE_THREAD_H

#include "worker/session/session_parts.h"

/* MUSTER_FATAL: no thread could be made. */
MUSTER_CHECKED muster_status muster_session_start_lease_thread(struct muster_session *session);

/* Interrupts its call and joins it. */
void muster_session_stop_lease_thread(struct muster_session *session);

/* Reports a dead peer to the service, once in a generation, from the caller's thread. Blocks for
 * about a second at most; failures are ignored, as other members report, too. */
void muster_session_report(struct muster_session *session, uint64_t generation, uint32_t suspect,
                           const char *why);

/* The service refused a request of this member in that generation. NOT_FOUND means that it has
 * declared this member dead, FAILED_PRECONDITION that the job is over for it; both revoke the
 * generation. Other codes change nothing. */
void muster_session_apply_service_error(struct muster_session *session, uint64_t generation,
                                        enum muster_rpc_code code, const char *why);

#endif
