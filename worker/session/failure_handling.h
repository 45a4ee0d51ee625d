/*
 * What follows from the status of a collective: a report of a dead peer to the service, a rejoin
 * that becomes due.
 */
#ifndef MUSTER_WORKER_SESSION_FAILURE_HANDLING_H
#define MUSTER_WORKER_SESSION_FAILURE_HANDLING_H

#include "worker/session/session_parts.h"

/* After a collective of that generation, when the generation has been released; `status` may be
 * MUSTER_OK. Returns the status for the caller, and keeps the error text. May block for about a
 * second, for the report. */
MUSTER_CHECKED muster_status muster_session_handle_result(struct muster_session *session,
                                                          uint64_t generation, muster_status status,
                                                          uint32_t suspect);

/* One collective: holds the generation, runs the request, handles the result. */
MUSTER_CHECKED muster_status muster_session_run(struct muster_session *session, muster_scope scope,
                                                const struct muster_request *request);

#endif
