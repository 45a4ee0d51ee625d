/*
 * From one generation to the next, and out of the job.
 */
#ifndef MUSTER_WORKER_SESSION_REJOIN_H
#define MUSTER_WORKER_SESSION_REJOIN_H

#include "worker/session/session_parts.h"

/* Joins until a generation runs here, as a new member whenever the service has declared the present
 * one dead. With rejoin_mutex held and no generation. Statuses are those of muster_open(). */
MUSTER_CHECKED muster_status muster_session_join(struct muster_session *session);

/* muster_rejoin(); with `force` also when nothing calls for it. */
MUSTER_CHECKED muster_status muster_session_rejoin(struct muster_session *session, bool force);

/* Tells the service that this member leaves. Blocks for timeout_ms at most; failures are only
 * logged. */
void muster_session_send_leave(struct muster_session *session, enum muster_leave_reason reason,
                               const char *why, uint32_t timeout_ms);

/* No generation follows any more. why: the reason for later calls; NULL: it is known already. */
void muster_session_set_left(struct muster_session *session, const char *why);

/* The work is done on every member: sends Leave. Collectives still work, but the job is over. */
void muster_session_finish(struct muster_session *session);

#endif
