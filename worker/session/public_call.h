/* What the public collectives share: how each becomes a call of the session. */
#ifndef MUSTER_WORKER_SESSION_PUBLIC_CALL_H
#define MUSTER_WORKER_SESSION_PUBLIC_CALL_H

#include "collectives/call/request.h"
#include "worker/session/session_parts.h"

/* How a collective is called. */
struct muster_call_form {
    const muster_call_options *options;
    bool starts; /* else it blocks */
    muster_operation *ret_operation;
};

static inline struct muster_call_form muster_form_blocking(const muster_call_options *options)
{
    return (struct muster_call_form){.options = options};
}

static inline struct muster_call_form muster_form_start(const muster_call_options *options,
                                                        muster_operation *ret_operation)
{
    return (struct muster_call_form){
        .options = options, .starts = true, .ret_operation = ret_operation};
}

/* Checks the scope, adds the options to the request, and runs or starts it. */
MUSTER_CHECKED muster_status muster_session_call(struct muster_session *session, muster_scope scope,
                                                 struct muster_request *request,
                                                 struct muster_call_form form);

#endif
