/* The list of a session's engines (engines.h), and how they end. */
#ifndef MUSTER_WORKER_SESSION_ENGINE_LIST_H
#define MUSTER_WORKER_SESSION_ENGINE_LIST_H

#include "worker/engine/engine.h"
#include "worker/session/session_parts.h"

struct muster_session_engine {
    struct muster_session *session;
    muster_scope scope;
    uint64_t generation;
    struct muster_engine *engine;
    struct muster_context *context; /* NULL: the generation has ended */
    struct muster_session_engine *next;
};

void muster_session_engines_init(struct muster_session *session);

/* The generation is revoked: all pending tensors end. Does not block; session->mutex may be held.
 */
void muster_session_end_engines(struct muster_session *session, const char *why);

/* Waits until no tensor is pending, at most until that time; then returns false. */
bool muster_session_wait_for_engines(struct muster_session *session, int64_t until_ns);

/* The generation has ended, and no call holds it: before its communicator is destroyed. */
void muster_session_stop_engines(struct muster_session *session);

/* The session is closed: handles are errors from now on. */
void muster_session_engines_finish(struct muster_session *session);

/* Operations of tensors that have finished in this generation. */
uint64_t muster_session_engines_progress(struct muster_session *session);

#endif
