/*
 * Finds members of a large job whose addresses this member does not know: asks the service by
 * Peers, in a thread of its own, as soon as a message is posted to such a member.
 *
 *   a message names a member -> its link waits -> the thread asks -> the link is dialled
 *
 * A member that has to ask often is about to talk to all: each request asks for twice as many.
 *
 * Threads: the fabric calls it with its lock held; everything else is the caller's of rejoin_mutex.
 */
#ifndef MUSTER_WORKER_SESSION_PEER_FINDER_H
#define MUSTER_WORKER_SESSION_PEER_FINDER_H

#include "worker/session/session_parts.h"

/* For the generation that is about to begin with this answer; the topology is copied. MUSTER_FATAL:
 * no memory, no thread. */
MUSTER_CHECKED muster_status muster_peer_finder_create(struct muster_session *session,
                                                       uint64_t generation, uint32_t rank,
                                                       const struct muster_topology *topology,
                                                       struct muster_session_finder **ret_finder);
/* What the fabric is given. */
struct muster_peer_finder *muster_peer_finder_slots(struct muster_session_finder *finder);
/* Blocks until a request that is under way has ended, at most MUSTER_PEERS_ATTEMPT_MS. Accepts
 * NULL.
 */
void muster_peer_finder_destroy(struct muster_session_finder *finder);

#endif
