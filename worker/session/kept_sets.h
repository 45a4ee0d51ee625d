/*
 * Process sets from one generation to the next: the survivors keep theirs, if all of them know of
 * it.
 */
#ifndef MUSTER_WORKER_SESSION_KEPT_SETS_H
#define MUSTER_WORKER_SESSION_KEPT_SETS_H

#include "worker/session/session_parts.h"

/* A generation begins: what names stood for in the one before is forgotten. Held sets still have
 * the ranks of that one. */
void muster_session_begin_sets(struct muster_session *session);

/* The members of a set that has just been created, ranks of this generation, tell each other their
 * ids, by which they find each other in the next. All of them call it. Blocks. Statuses and suspect
 * are those of muster_context_run(). */
MUSTER_CHECKED muster_status muster_session_note_set(struct muster_session *session,
                                                     struct muster_context *context,
                                                     const uint32_t *members, uint32_t count,
                                                     uint32_t *ret_suspect);

/* All members tell each other their ids, if any holds a set, and which sets they hold; then the
 * sets that all of their members hold get contexts, one after the other in the same order
 * everywhere. While the generation is prepared; all members call it. Without any set it is one
 * small allreduce. Blocks. Statuses and suspect are those of muster_context_run(). */
MUSTER_CHECKED muster_status muster_session_keep_sets(struct muster_session *session,
                                                      uint32_t *ret_suspect);

#endif
