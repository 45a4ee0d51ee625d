/*
 * Spilling: a thread of rank 0 writes committed states to files; a job that begins reads the newest
 * one that is whole. A file that cannot be written is logged, and the job goes on.
 */
#ifndef MUSTER_WORKER_SESSION_SPILL_H
#define MUSTER_WORKER_SESSION_SPILL_H

#include "worker/session/session_parts.h"
#include "worker/session/spill_file.h"

/* Does nothing without the option. MUSTER_FATAL: no thread. */
MUSTER_CHECKED muster_status muster_session_start_spill(struct muster_session *session);

/* Writes the last commit first if this member is rank 0 and has not done so. */
void muster_session_stop_spill(struct muster_session *session);

/* Reads the newest whole file into the copy, which is reserved; logs those that are refused.
 * *ret_key is 0, 0 if there is none. With the state's mutex held. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_session_read_spilled(struct muster_session *session,
                                                         struct muster_spill_key *ret_key);

/* The job goes on from this file: those that follow are newer. */
void muster_session_follow_spilled(struct muster_session *session, struct muster_spill_key key);

#endif
