/*
 * Join: asks the service for a place in the next generation until that has formed.
 */
#ifndef MUSTER_WORKER_SESSION_JOIN_H
#define MUSTER_WORKER_SESSION_JOIN_H

#include "worker/session/session_parts.h"

/* Creates the member's fabric if there is none. *ret_response is a formed generation; the caller
 * finishes it. Call with rejoin_mutex held. The statuses of muster_open(); if the service has
 * declared this member dead, `declared_dead` is set and the caller tries again as a new member. */
MUSTER_CHECKED muster_status muster_session_ask_to_join(struct muster_session *session,
                                                        int64_t deadline_ns,
                                                        struct muster_join_response *ret_response);

#endif
