/* The public functions of point to point: each becomes a message call, which the context of the
 * scope checks. */
#include "worker/base/clock.h"
#include "worker/base/option_parse.h"
#include "worker/base/status.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/operations.h"
#include "worker/session/scopes.h"

/* Fills in the deadline and the priority. */
static muster_status prepare(const struct muster_session *session,
                             const muster_call_options *options, struct muster_message_call *what)
{
    const char *name = what->direction == MUSTER_SEND ? "send" : "receive";
    uint32_t timeout_ms = session->settings.call_timeout_ms;
    if (options != NULL) {
        muster_call_options complete = {.size = sizeof complete};
        muster_status status =
            muster_option_copy_struct("muster_call_options", options, &complete, sizeof complete);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "%s", name);
        }
        what->priority = complete.priority;
        timeout_ms = complete.timeout_ms > 0 ? complete.timeout_ms : timeout_ms;
    }
    what->deadline_ns = muster_clock_soon_after_ms(timeout_ms);
    return MUSTER_OK;
}

static muster_status run(struct muster_session *session, muster_scope scope,
                         const muster_call_options *options, struct muster_message_call *what)
{
    uint32_t suspect = UINT32_MAX;
    struct muster_context *context = NULL;
    TRY(prepare(session, options, what));
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    muster_status status = muster_session_context(session, scope, &context);
    status = status == MUSTER_OK
                 ? muster_context_message(context, what, &suspect)
                 : muster_error_prefix(status, "%s",
                                       what->direction == MUSTER_SEND ? "send" : "receive");
    muster_session_release_generation(session);
    return muster_session_handle_result(session, generation, status, suspect);
}

static muster_status start(struct muster_session *session, muster_scope scope,
                           const muster_call_options *options, struct muster_message_call *what,
                           muster_operation *ret_operation)
{
    TRY(prepare(session, options, what));
    if (ret_operation == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: ret_operation is NULL",
                                what->direction == MUSTER_SEND ? "send" : "receive");
    }
    const struct muster_start message = {.message = what};
    return muster_session_start(session, scope, &message, ret_operation);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_send(muster_session *session, muster_scope scope, const void *data,
                          size_t count, muster_type type, uint32_t to, uint32_t tag,
                          const muster_call_options *options)
{
    struct muster_message_call what = {
        .direction = MUSTER_SEND, .in = data, .count = count, .type = type, .peer = to, .tag = tag};
    return run(session, scope, options, &what);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_receive(muster_session *session, muster_scope scope, void *data,
                             size_t capacity_count, muster_type type, uint32_t from, uint32_t tag,
                             const muster_call_options *options, muster_message *ret_message)
{
    struct muster_message_call what = {.direction = MUSTER_RECEIVE,
                                       .out = data,
                                       .count = capacity_count,
                                       .type = type,
                                       .peer = from,
                                       .tag = tag,
                                       .ret_message = ret_message};
    return run(session, scope, options, &what);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_send_start(muster_session *session, muster_scope scope, const void *data,
                                size_t count, muster_type type, uint32_t to, uint32_t tag,
                                const muster_call_options *options, muster_operation *ret_operation)
{
    struct muster_message_call what = {
        .direction = MUSTER_SEND, .in = data, .count = count, .type = type, .peer = to, .tag = tag};
    return start(session, scope, options, &what, ret_operation);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_receive_start(muster_session *session, muster_scope scope, void *data,
                                   size_t capacity_count, muster_type type, uint32_t from,
                                   uint32_t tag, const muster_call_options *options,
                                   muster_message *ret_message, muster_operation *ret_operation)
{
    struct muster_message_call what = {.direction = MUSTER_RECEIVE,
                                       .out = data,
                                       .count = capacity_count,
                                       .type = type,
                                       .peer = from,
                                       .tag = tag,
                                       .ret_message = ret_message};
    return start(session, scope, options, &what, ret_operation);
}

muster_status muster_probe(muster_session *session, muster_scope scope, uint32_t from, uint32_t tag,
                           int *ret_found, muster_message *ret_message)
{
    bool found = false;
    muster_message message = {.count = 0};
    struct muster_context *context = NULL;
    if (ret_found == NULL || ret_message == NULL) {
        return muster_error_set(MUSTER_INVALID, "probe: %s is NULL",
                                ret_found == NULL ? "ret_found" : "ret_message");
    }
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    muster_status status = muster_session_context(session, scope, &context);
    status = status == MUSTER_OK ? muster_context_probe(context, from, tag, &found, &message)
                                 : muster_error_prefix(status, "probe");
    muster_session_release_generation(session);
    TRY(muster_session_handle_result(session, generation, status, UINT32_MAX));
    *ret_found = found ? 1 : 0;
    if (found) {
        *ret_message = message;
    }
    return MUSTER_OK;
}
