/*
 * Scopes: the three that every generation has, and process sets. Each call looks its context up
 * here.
 */
#ifndef MUSTER_WORKER_SESSION_SCOPES_H
#define MUSTER_WORKER_SESSION_SCOPES_H

#include "worker/session/session_parts.h"

/* The context of a scope; borrowed while the caller holds the generation. MUSTER_INVALID: there is
 * no such scope, and the text says why. */
MUSTER_CHECKED muster_status muster_session_context(struct muster_session *session,
                                                    muster_scope scope,
                                                    struct muster_context **ret_context);

/* The global ranks of a scope's members, in the order of their ranks in the scope; the caller frees
 * them. The generation is held. */
MUSTER_CHECKED muster_status muster_session_scope_members(struct muster_session *session,
                                                          muster_scope scope,
                                                          uint32_t **ret_members,
                                                          uint32_t *ret_count);

/* What its name is put before those of its sets: "" for all members, "local/", "pairs/". */
MUSTER_CHECKED muster_status muster_session_scope_prefix(struct muster_session *session,
                                                         muster_scope scope,
                                                         char ret_prefix[MUSTER_SET_NAME_SIZE + 1]);

#endif
