/*
 * What is different in a session without a service: a lost member is the end of it.
 *
 * May use: generation_guard, fabric.h, the floor.
 */
#ifndef MUSTER_WORKER_SESSION_WITHOUT_SERVICE_H
#define MUSTER_WORKER_SESSION_WITHOUT_SERVICE_H

#include "worker/session/session_parts.h"

/* A call has returned MUSTER_REJOIN with this text: no generation follows. Ends the session's one,
 * for all threads and all members, and returns MUSTER_ENDED. */
MUSTER_CHECKED muster_status muster_session_end_without_service(struct muster_session *session,
                                                                const char *text);

/* muster_rejoin() of such a session. */
MUSTER_CHECKED muster_status muster_session_rejoin_without_service(struct muster_session *session,
                                                                   bool force);

#endif
