/* From a request of a public collective to the context of its scope: options, deadline, form. */
#include "worker/session/public_call.h"

#include "worker/base/clock.h"
#include "worker/base/option_parse.h"
#include "worker/base/status.h"
#include "worker/session/failure_handling.h"
#include "worker/session/operations.h"

/* The session's option is for the calls that can be compressed, and lets the others be. */
static bool can_be_compressed(const struct muster_request *request)
{
    bool varies = request->in_counts != NULL || request->out_counts != NULL;
    return !request->reproducible && !varies &&
           muster_compression_obstacle(request->collective, request->type, request->op) == NULL;
}

/* A call on a stream: the stream waits for it, and no thread does. */
static muster_status enqueue(struct muster_session *session, muster_scope scope,
                             const struct muster_request *request)
{
    const struct muster_start start = {.request = request};
    muster_operation operation = 0;
    TRY(muster_session_start(session, scope, &start, &operation));
    return muster_detach(operation);
}

muster_status muster_session_call(struct muster_session *session, muster_scope scope,
                                  struct muster_request *request, struct muster_call_form form)
{
    const muster_call_options *options = form.options;
    uint32_t timeout_ms = session->settings.call_timeout_ms;
    request->reproducible = session->settings.reproducible;
    if (options != NULL) {
        muster_call_options complete = {.size = sizeof complete};
        muster_status status =
            muster_option_copy_struct("muster_call_options", options, &complete, sizeof complete);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "%s", muster_collective_name(request->collective));
        }
        if (complete.reserved != 0) {
            return muster_error_set(MUSTER_INVALID, "%s: muster_call_options.reserved is %u, not 0",
                                    muster_collective_name(request->collective), complete.reserved);
        }
        request->algorithm = complete.algorithm;
        request->reproducible = request->reproducible || complete.reproducible != 0;
        request->prescale = complete.prescale;
        request->postscale = complete.postscale;
        request->factors_set = complete.factors_set;
        request->compression = complete.compression;
        request->user_function = complete.user_function;
        request->user_data = complete.user_data;
        request->priority = complete.priority;
        request->keep_input = complete.keep_input != 0;
        request->finish_together = complete.finish_together != 0;
        request->stream = (uintptr_t)complete.stream;
        timeout_ms = complete.timeout_ms > 0 ? complete.timeout_ms : timeout_ms;
    }
    request->deadline_ns = muster_clock_soon_after_ms(timeout_ms);
    if (request->compression == MUSTER_COMPRESSION_DEFAULT && can_be_compressed(request)) {
        request->compression = session->settings.compression;
    }
    if (form.kind == MUSTER_CALL_BLOCKS && request->stream != 0) {
        return enqueue(session, scope, request);
    }
    if (form.kind == MUSTER_CALL_BLOCKS) {
        return muster_session_run(session, scope, request);
    }
    if (form.ret_operation == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: ret_operation is NULL",
                                muster_collective_name(request->collective));
    }
    const struct muster_start start = {.request = request,
                                       .persistent = form.kind == MUSTER_CALL_MAKES_PERSISTENT};
    return muster_session_start(session, scope, &start, form.ret_operation);
}
