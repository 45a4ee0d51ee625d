/*
 * Process sets from one generation to the next: the survivors keep theirs, if all of them know of
 * it.
 */
#ifndef MUSTER_WORKER_SESSION_KEPT_SETS_H
#define MUSTER_WORKER_SESSION_KEPT_SETS_H

#include "worker/session/session_parts.h"

/* The table gets the ranks of the generation that begins, which has these peers. MUSTER_FATAL: no
 * memory. */
MUSTER_CHECKED muster_status muster_session_move_sets(struct muster_session *session,
                                                      const struct muster_peer *peers,
                                                      uint32_t count, uint32_t own);

/* All members tell each other which sets they hold; then the sets that all of their members hold
 * get contexts, one after the other in the same order everywhere. While the generation is prepared;
 * all members call it. Without any set it is one small allreduce. Blocks. Statuses and suspect are
 * those of muster_context_run(). */
MUSTER_CHECKED muster_status muster_session_keep_sets(struct muster_session *session,
                                                      uint32_t *ret_suspect);

#endif
