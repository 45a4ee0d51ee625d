/* The public functions of point to point: each becomes a message call, which the context of the
 * scope checks. */
#include "worker/base/option_parse.h"
#include "worker/base/status.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/operations.h"
#include "worker/session/public_call.h"
#include "worker/session/scopes.h"

/* Fills in the limit and the priority. */
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
    what->timeout_ms = timeout_ms;
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
                           struct muster_call_form form, struct muster_message_call *what)
{
    TRY(prepare(session, form.options, what));
    if (form.ret_operation == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: ret_operation is NULL",
                                what->direction == MUSTER_SEND ? "send" : "receive");
    }
    const struct muster_start message = {.message = what,
                                         .persistent = form.kind == MUSTER_CALL_MAKES_PERSISTENT};
    return muster_session_start(session, scope, &message, form.ret_operation);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
static muster_status send(muster_session *session, muster_scope scope, const void *data,
                          size_t count, muster_type type, uint32_t to, uint32_t tag,
                          struct muster_call_form form)
{
    struct muster_message_call what = {
        .direction = MUSTER_SEND, .in = data, .count = count, .type = type, .peer = to, .tag = tag};
    return form.kind == MUSTER_CALL_BLOCKS ? run(session, scope, form.options, &what)
                                           : start(session, scope, form, &what);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
static muster_status receive(muster_session *session, muster_scope scope, void *data,
                             size_t capacity_count, muster_type type, uint32_t from, uint32_t tag,
                             muster_message *ret_message, struct muster_call_form form)
{
    struct muster_message_call what = {.direction = MUSTER_RECEIVE,
                                       .out = data,
                                       .count = capacity_count,
                                       .type = type,
                                       .peer = from,
                                       .tag = tag,
                                       .ret_message = ret_message};
    return form.kind == MUSTER_CALL_BLOCKS ? run(session, scope, form.options, &what)
                                           : start(session, scope, form, &what);
}

/* NOLINTBEGIN(readability-function-size): as many as such functions have in the field */
MUSTER_CALL_FORMS(send,
                  MUSTER_CALL_LIST(const void *data, size_t count, muster_type type, uint32_t to,
                                   uint32_t tag),
                  MUSTER_CALL_LIST(data, count, type, to, tag))

muster_status muster_receive(muster_session *session, muster_scope scope, void *data,
                             size_t capacity_count, muster_type type, uint32_t from, uint32_t tag,
                             const muster_call_options *options, muster_message *ret_message)
{
    return receive(session, scope, data, capacity_count, type, from, tag, ret_message,
                   (struct muster_call_form){MUSTER_CALL_BLOCKS, options, NULL});
}

muster_status muster_receive_start(muster_session *session, muster_scope scope, void *data,
                                   size_t capacity_count, muster_type type, uint32_t from,
                                   uint32_t tag, const muster_call_options *options,
                                   muster_message *ret_message, muster_operation *ret_operation)
{
    return receive(session, scope, data, capacity_count, type, from, tag, ret_message,
                   (struct muster_call_form){MUSTER_CALL_STARTS, options, ret_operation});
}

muster_status muster_receive_init(muster_session *session, muster_scope scope, void *data,
                                  size_t capacity_count, muster_type type, uint32_t from,
                                  uint32_t tag, const muster_call_options *options,
                                  muster_message *ret_message, muster_operation *ret_operation)
{
    return receive(session, scope, data, capacity_count, type, from, tag, ret_message,
                   (struct muster_call_form){MUSTER_CALL_MAKES_PERSISTENT, options, ret_operation});
}
/* NOLINTEND(readability-function-size) */

muster_status muster_receive_taken(muster_session *session, muster_scope scope, void *data,
                                   size_t capacity_count, muster_type type,
                                   const muster_message *taken, const muster_call_options *options)
{
    if (taken == NULL || taken->taken == 0) {
        return muster_error_set(MUSTER_INVALID, "receive: the message %s",
                                taken == NULL ? "is NULL" : "was not taken by muster_take()");
    }
    struct muster_message_call what = {.direction = MUSTER_RECEIVE,
                                       .out = data,
                                       .count = capacity_count,
                                       .type = type,
                                       .peer = taken->source,
                                       .tag = taken->tag,
                                       .taken = taken->taken};
    return run(session, scope, options, &what);
}

static muster_status probe(struct muster_session *session, muster_scope scope,
                           const struct muster_message_probe *what, int *ret_found,
                           muster_message *ret_message)
{
    const char *name = what->takes ? "take" : "probe";
    bool found = false;
    uint32_t suspect = UINT32_MAX;
    muster_message message = {.count = 0};
    struct muster_context *context = NULL;
    if (ret_found == NULL || ret_message == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: %s is NULL", name,
                                ret_found == NULL ? "ret_found" : "ret_message");
    }
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    muster_status status = muster_session_context(session, scope, &context);
    status = status == MUSTER_OK ? muster_context_probe(context, what, &found, &message, &suspect)
                                 : muster_error_prefix(status, "%s", name);
    muster_session_release_generation(session);
    TRY(muster_session_handle_result(session, generation, status, suspect));
    *ret_found = found ? 1 : 0;
    if (found) {
        *ret_message = message;
    }
    return MUSTER_OK;
}

muster_status muster_probe(muster_session *session, muster_scope scope, uint32_t from, uint32_t tag,
                           uint32_t timeout_ms, int *ret_found, muster_message *ret_message)
{
    const struct muster_message_probe what = {.source = from, .tag = tag, .timeout_ms = timeout_ms};
    return probe(session, scope, &what, ret_found, ret_message);
}

muster_status muster_take(muster_session *session, muster_scope scope, uint32_t from, uint32_t tag,
                          uint32_t timeout_ms, int *ret_found, muster_message *ret_message)
{
    const struct muster_message_probe what = {
        .source = from, .tag = tag, .takes = true, .timeout_ms = timeout_ms};
    return probe(session, scope, &what, ret_found, ret_message);
}
