/*
 * The engines of a session: one for each scope and generation in which named tensors were
 * submitted. Each has a context of its own with the members of the scope, so that tensors and the
 * program's other collectives do not disturb each other.
 *
 * An engine is created by the first submission, and stopped at the end of its generation. Its
 * handles keep their statuses until they are consumed or the session is closed.
 */
#ifndef MUSTER_WORKER_SESSION_ENGINES_H
#define MUSTER_WORKER_SESSION_ENGINES_H

#include "worker/engine/engine.h"
#include "worker/session/session_parts.h"

/* The engine of a scope in this generation. create: if there is none yet; else it is then NULL.
 * MUSTER_INVALID: no such scope. MUSTER_REJOIN, MUSTER_ENDED: there is no generation. */
MUSTER_CHECKED muster_status muster_session_find_engine(struct muster_session *session,
                                                        muster_scope scope, bool create,
                                                        struct muster_engine **ret_engine);

#endif
