/*
 * The generation guard: a call that holds the generation can use its contexts until it releases it.
 * A generation ends in two steps: it is revoked, so that the calls inside return, and it is
 * destroyed when the last of them has released it.
 */
#ifndef MUSTER_WORKER_SESSION_GENERATION_GUARD_H
#define MUSTER_WORKER_SESSION_GENERATION_GUARD_H

#include "worker/session/session_parts.h"

/* True if this member is to leave: the program, the service or a SIGTERM has requested it. */
bool muster_session_is_leaving(struct muster_session *session);

/* MUSTER_INVALID in a child of fork(), which has neither the connections nor the threads of its
 * parent's session, and may find its locks held: checked before the first lock. */
bool muster_session_is_inherited(const struct muster_session *session);
MUSTER_CHECKED muster_status muster_session_check_process(const struct muster_session *session);

/* MUSTER_REJOIN: no generation is running at the moment. MUSTER_ENDED: there will be none. */
MUSTER_CHECKED muster_status muster_session_hold_generation(struct muster_session *session);
void muster_session_release_generation(struct muster_session *session);
/* The same if no other call holds it; false: one does, or no generation is running. */
bool muster_session_hold_generation_alone(struct muster_session *session);

/* Whether a call holds the generation; when the last one has released it after the stage has
 * changed from RUNNING, `changed` is signalled. */
bool muster_session_has_calls(struct muster_session *session);

/* With the mutex. Calls can hold the generation while the stage is RUNNING. */
void muster_session_set_stage_locked(struct muster_session *session,
                                     enum muster_session_stage stage);

/* MUSTER_ENDED with the reason why this member is out of the job. */
MUSTER_CHECKED muster_status
muster_session_ended_error_locked(const struct muster_session *session);

/* Revokes the present generation: every wait in it ends, and a rejoin is due. */
void muster_session_revoke_locked(struct muster_session *session, const char *why);

#endif
