/*
 * The contexts of a session's process sets: held while calls may use them, destroyed when none can.
 */
#ifndef MUSTER_WORKER_SESSION_SESSION_SETS_H
#define MUSTER_WORKER_SESSION_SESSION_SETS_H

#include "worker/session/session_parts.h"

void muster_session_sets_init(struct muster_session *session);
void muster_session_sets_finish(struct muster_session *session);

/* With sets.mutex held: the context of a set that is freed or replaced; NULL: none. It is destroyed
 * later. */
void muster_session_retire_set_locked(struct muster_session *session,
                                      struct muster_context *context);

/* Destroys retired contexts, if no call holds the generation, except those with calls in flight. */
void muster_session_reap_sets(struct muster_session *session);

/* Destroys the contexts of all sets when a generation ends. No call holds it, and none is in
 * flight. */
void muster_session_end_sets(struct muster_session *session);

/* Operations that have finished in sets of this generation. Any thread. */
uint64_t muster_session_sets_progress(struct muster_session *session);

#endif
