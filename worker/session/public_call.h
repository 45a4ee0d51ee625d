/* What the public collectives share: how each becomes a call of the session. */
#ifndef MUSTER_WORKER_SESSION_PUBLIC_CALL_H
#define MUSTER_WORKER_SESSION_PUBLIC_CALL_H

#include "collectives/call/request.h"
#include "worker/session/session_parts.h"

/* How a collective is called. */
enum muster_call_kind {
    MUSTER_CALL_BLOCKS,
    MUSTER_CALL_STARTS,           /* an operation in flight */
    MUSTER_CALL_MAKES_PERSISTENT, /* an operation that can be started again and again */
};

struct muster_call_form {
    enum muster_call_kind kind;
    const muster_call_options *options;
    muster_operation *ret_operation;
};

/* Checks the scope, adds the options to the request, and runs or starts it, or makes it
 * persistent. */
MUSTER_CHECKED muster_status muster_session_call(struct muster_session *session, muster_scope scope,
                                                 struct muster_request *request,
                                                 struct muster_call_form form);

/* The public functions of a collective, in its three forms. `name` is also the function that all of
 * them call; its last parameter is a struct muster_call_form. */
#define MUSTER_CALL_LIST(...) , __VA_ARGS__
#define MUSTER_CALL_FORMS(name, PARAMETERS, ARGUMENTS)                                          \
    muster_status muster_##name(muster_session *session, muster_scope scope PARAMETERS,         \
                                const muster_call_options *options)                             \
    {                                                                                           \
        return name(session, scope ARGUMENTS,                                                   \
                    (struct muster_call_form){MUSTER_CALL_BLOCKS, options, NULL});              \
    }                                                                                           \
    muster_status muster_##name##_start(muster_session *session, muster_scope scope PARAMETERS, \
                                        const muster_call_options *options,                     \
                                        muster_operation *ret_operation)                        \
    {                                                                                           \
        return name(session, scope ARGUMENTS,                                                   \
                    (struct muster_call_form){MUSTER_CALL_STARTS, options, ret_operation});     \
    }                                                                                           \
    muster_status muster_##name##_init(muster_session *session, muster_scope scope PARAMETERS,  \
                                       const muster_call_options *options,                      \
                                       muster_operation *ret_operation)                         \
    {                                                                                           \
        return name(                                                                            \
            session, scope ARGUMENTS,                                                           \
            (struct muster_call_form){MUSTER_CALL_MAKES_PERSISTENT, options, ret_operation});   \
    }

#endif
