/*
 * The session's slot: its lock, taken before the first Join, and what the service says of it.
 *
 * A slot that the user or the launcher gives is taken or refused. Without one it is the lowest
 * whose lock is free on this host; if the service knows a member that has it, where that lock is
 * not visible, the service gives another.
 */
#ifndef MUSTER_WORKER_SESSION_SLOT_H
#define MUSTER_WORKER_SESSION_SLOT_H

#include "worker/session/session_parts.h"

/* Takes the lock. Blocks for at most two seconds, for a holder that is about to end.
 * MUSTER_INVALID: a living process holds the slot that was given; MUSTER_FATAL: no slot is free. */
MUSTER_CHECKED muster_status muster_session_take_slot(struct muster_session *session);

/* Writes the slot and its lock into a Join. */
void muster_session_state_slot(const struct muster_session *session,
                               struct muster_member_info *info);

/* The answer to Join has this slot. MUSTER_INVALID: a living process of this host holds it. */
MUSTER_CHECKED muster_status muster_session_adopt_slot(struct muster_session *session,
                                                       uint32_t slot);

/* Without a service there is no lock: the slot that was given, else the local rank. */
void muster_session_set_slot_without_service(struct muster_session *session);

/* The slot is free. */
void muster_session_release_slot(struct muster_session *session);

#endif
