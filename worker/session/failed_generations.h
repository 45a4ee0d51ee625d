/*
 * Back-off after generations that end without one finished collective. Call with rejoin_mutex held.
 */
#ifndef MUSTER_WORKER_SESSION_FAILED_GENERATIONS_H
#define MUSTER_WORKER_SESSION_FAILED_GENERATIONS_H

#include "worker/session/session_parts.h"

/* The generation ends: counts it if none of its collectives has finished. MUSTER_FATAL after too
 * many of these in a row; `why` is the error of the last one. */
MUSTER_CHECKED muster_status muster_session_count_failed_generation(struct muster_session *session,
                                                                    const char *why);

/* Sleeps before the next Join: longer after each failed generation, up to a second. */
void muster_session_back_off(const struct muster_session *session);

/* A generation has formed: after several failed ones, counts the members that can be reached. Takes
 * up to five seconds. */
void muster_session_count_reachable(struct muster_session *session);

#endif
