/*
 * A generation: built from the service's answer to Join, and destroyed when it ends. Call with
 * rejoin_mutex held.
 */
#ifndef MUSTER_WORKER_SESSION_GENERATION_H
#define MUSTER_WORKER_SESSION_GENERATION_H

#include "worker/session/session_parts.h"

/* Opens the links, creates the contexts, agrees on link figures and lets collectives begin.
 * MUSTER_FATAL: no memory, or an answer that contradicts itself. On failure only the number of the
 * generation remains. */
MUSTER_CHECKED muster_status muster_session_begin_generation(
    struct muster_session *session, const struct muster_join_response *response);

/* The ranks and sizes that the user reads at any time. */
void muster_session_store_ranks(struct muster_session *session,
                                const struct muster_communicator *communicator);

/* Waits until no call holds the generation and destroys it: communicator and lists. Its number
 * stays. */
void muster_session_end_generation(struct muster_session *session);

#endif
