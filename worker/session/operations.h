/*
 * Operations in flight of all sessions of this process: from handles, which users hold, to calls of
 * a context.
 *
 * A handle is a number: a slot of a table, and the serial number of its use. The wait or test that
 * reports an operation done consumes its handle, but for a persistent one, which can be started
 * again. When a generation ends, its operations are ended
 * first, and their handles keep the status until they are consumed or the session is closed.
 *
 * Locks: the table's mutex is taken after all locks of a session, and held for no wait but that of
 * the table's own condition.
 */
#ifndef MUSTER_WORKER_SESSION_OPERATIONS_H
#define MUSTER_WORKER_SESSION_OPERATIONS_H

#include "worker/session/session_parts.h"

/* What is started: a collective, or a message; the other one is NULL. */
struct muster_start {
    const struct muster_request *request;
    const struct muster_message_call *message;
    bool persistent; /* it is made, and not started yet */
};

/* Starts it in a scope. Statuses are those of muster_context_start() and
 * muster_context_start_message(). */
MUSTER_CHECKED muster_status muster_session_start(struct muster_session *session,
                                                  muster_scope scope,
                                                  const struct muster_start *start,
                                                  muster_operation *ret_operation);

/* Waits until all operations of the session are done, which is bounded by their deadlines, and
 * keeps their statuses. Before the contexts are destroyed. */
void muster_session_end_operations(struct muster_session *session);

/* Drops the session's handles: later uses are errors. All its operations have been ended. */
void muster_session_drop_operations(const struct muster_session *session);

/* For tests: handles of this process that are not consumed. */
uint32_t muster_session_count_operations(void);

#endif
