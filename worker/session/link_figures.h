/*
 * The link figures of a generation: chosen by rank 0, agreed by all members, stored with the job.
 */
#ifndef MUSTER_WORKER_SESSION_LINK_FIGURES_H
#define MUSTER_WORKER_SESSION_LINK_FIGURES_H

#include "worker/session/session_parts.h"

/* When a generation has formed, with rejoin_mutex held: agrees on session->figures. Collective,
 * with the statuses of one. */
MUSTER_CHECKED muster_status muster_session_agree_figures(struct muster_session *session,
                                                          uint32_t *ret_suspect);

/* In a commit, when the members have agreed that the membership does not change: replaces outdated
 * figures; otherwise rank 0 stores newly tuned algorithms with the job. Blocks; with state.mutex
 * held. Statuses are those of a collective. */
MUSTER_CHECKED muster_status muster_session_refresh_figures(struct muster_session *session);

/* Copies to session->figures what the global context has tuned, before it is destroyed. */
void muster_session_collect_tuned(struct muster_session *session,
                                  const struct muster_communicator *communicator);

#endif
