/* The public collectives: each becomes a request, which the context of the scope checks. The forms
 * of a collective (blocking, started, persistent) share a function. */
#include "worker/base/clock.h"
#include "worker/base/option_parse.h"
#include "worker/base/status.h"
#include "worker/session/failure_handling.h"
#include "worker/session/operations.h"

/* How a collective is called. */
enum form_kind {
    BLOCKS,
    STARTS,           /* an operation in flight */
    MAKES_PERSISTENT, /* an operation that can be started again and again */
};

struct form {
    enum form_kind kind;
    const muster_call_options *options;
    muster_operation *ret_operation;
};

/* The public functions of a collective, in its three forms. `name` is also the function that all of
 * them call; its last parameter is a struct form. */
#define LIST(...) , __VA_ARGS__
#define FORMS(name, PARAMETERS, ARGUMENTS)                                                        \
    muster_status muster_##name(muster_session *session, muster_scope scope PARAMETERS,           \
                                const muster_call_options *options)                               \
    {                                                                                             \
        return name(session, scope ARGUMENTS, (struct form){.kind = BLOCKS, .options = options}); \
    }                                                                                             \
    muster_status muster_##name##_start(muster_session *session, muster_scope scope PARAMETERS,   \
                                        const muster_call_options *options,                       \
                                        muster_operation *ret_operation)                          \
    {                                                                                             \
        return name(session, scope ARGUMENTS, (struct form){STARTS, options, ret_operation});     \
    }                                                                                             \
    muster_status muster_##name##_init(muster_session *session, muster_scope scope PARAMETERS,    \
                                       const muster_call_options *options,                        \
                                       muster_operation *ret_operation)                           \
    {                                                                                             \
        return name(session, scope ARGUMENTS,                                                     \
                    (struct form){MAKES_PERSISTENT, options, ret_operation});                     \
    }

static muster_status run(struct muster_session *session, muster_scope scope,
                         struct muster_request *request, struct form form)
{
    if ((unsigned)scope >= MUSTER_SCOPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "%s: scope %d: there is no such scope",
                                muster_collective_name(request->collective), (int)scope);
    }
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
        request->algorithm = complete.algorithm;
        request->reproducible = request->reproducible || complete.reproducible != 0;
        request->prescale = complete.prescale;
        request->postscale = complete.postscale;
        request->user_function = complete.user_function;
        request->user_data = complete.user_data;
        request->priority = complete.priority;
        timeout_ms = complete.timeout_ms > 0 ? complete.timeout_ms : timeout_ms;
    }
    request->deadline_ns = muster_clock_after_ms(timeout_ms);
    if (form.kind == BLOCKS) {
        return muster_session_run(session, scope, request);
    }
    if (form.ret_operation == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: ret_operation is NULL",
                                muster_collective_name(request->collective));
    }
    const struct muster_start start = {.request = request,
                                       .persistent = form.kind == MAKES_PERSISTENT};
    return muster_session_start(session, scope, &start, form.ret_operation);
}

/* The parameters are as many as such functions have in the field.
 * NOLINTBEGIN(readability-function-size) */

static muster_status allreduce(struct muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, muster_op op,
                               struct form form)
{
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op};
    return run(session, scope, &request, form);
}

FORMS(allreduce, LIST(const void *in, void *out, size_t count, muster_type type, muster_op op),
      LIST(in, out, count, type, op))

static muster_status check_buffers(enum muster_collective collective, const void *list,
                                   size_t buffer_count)
{
    if (buffer_count == 0 || buffer_count > MUSTER_BUFFERS_MAX || list == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu buffers%s: must be from 1 to %d",
                                muster_collective_name(collective), buffer_count,
                                list == NULL ? " in a list that is NULL" : "", MUSTER_BUFFERS_MAX);
    }
    return MUSTER_OK;
}

/* Of one size each, in both lists. */
static muster_status reduce_buffers(struct muster_session *session, muster_scope scope,
                                    const struct muster_request *several, size_t buffer_count,
                                    struct form form)
{
    TRY(check_buffers(several->collective, several->inputs, buffer_count));
    TRY(check_buffers(several->collective, several->outputs, buffer_count));
    struct muster_request request = *several;
    request.in = several->inputs[0];
    request.out = several->outputs[0];
    request.buffer_count = (uint32_t)buffer_count;
    return run(session, scope, &request, form);
}

static muster_status allreduce_buffers(struct muster_session *session, muster_scope scope,
                                       const void *const *ins, void *const *outs,
                                       size_t buffer_count, size_t count, muster_type type,
                                       muster_op op, struct form form)
{
    const struct muster_request several = {.collective = MUSTER_ALLREDUCE,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, form);
}

FORMS(allreduce_buffers,
      LIST(const void *const *ins, void *const *outs, size_t buffer_count, size_t count,
           muster_type type, muster_op op),
      LIST(ins, outs, buffer_count, count, type, op))

static muster_status reduce_scatter_buffers(struct muster_session *session, muster_scope scope,
                                            const void *const *ins, void *const *outs,
                                            size_t buffer_count, size_t count, muster_type type,
                                            muster_op op, struct form form)
{
    const struct muster_request several = {.collective = MUSTER_REDUCE_SCATTER,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, form);
}

FORMS(reduce_scatter_buffers,
      LIST(const void *const *ins, void *const *outs, size_t buffer_count, size_t count,
           muster_type type, muster_op op),
      LIST(ins, outs, buffer_count, count, type, op))

static muster_status broadcast_buffers(struct muster_session *session, muster_scope scope,
                                       void *const *buffers, size_t buffer_count, size_t count,
                                       muster_type type, uint32_t root, struct form form)
{
    TRY(check_buffers(MUSTER_BROADCAST, buffers, buffer_count));
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .in = buffers[0],
                                     .out = buffers[0],
                                     .buffer_count = (uint32_t)buffer_count,
                                     .outputs = buffers,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, form);
}

FORMS(broadcast_buffers,
      LIST(void *const *buffers, size_t buffer_count, size_t count, muster_type type,
           uint32_t root),
      LIST(buffers, buffer_count, count, type, root))

static muster_status reduce(struct muster_session *session, muster_scope scope, const void *in,
                            void *out, size_t count, muster_type type, muster_op op, uint32_t root,
                            struct form form)
{
    struct muster_request request = {.collective = MUSTER_REDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op,
                                     .root = root};
    return run(session, scope, &request, form);
}

FORMS(reduce,
      LIST(const void *in, void *out, size_t count, muster_type type, muster_op op, uint32_t root),
      LIST(in, out, count, type, op, root))

static muster_status reduce_scatter(struct muster_session *session, muster_scope scope,
                                    const void *in, void *out, size_t count, muster_type type,
                                    muster_op op, struct form form)
{
    struct muster_request request = {.collective = MUSTER_REDUCE_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op};
    return run(session, scope, &request, form);
}

FORMS(reduce_scatter, LIST(const void *in, void *out, size_t count, muster_type type, muster_op op),
      LIST(in, out, count, type, op))

static muster_status reduce_scatterv(struct muster_session *session, muster_scope scope,
                                     const void *in, void *out, const size_t *counts,
                                     muster_type type, muster_op op, struct form form)
{
    if (counts == NULL) { /* to a request that means equal blocks */
        return muster_error_set(MUSTER_INVALID, "reduce_scatterv: counts is NULL");
    }
    struct muster_request request = {.collective = MUSTER_REDUCE_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .in_counts = counts,
                                     .type = type,
                                     .op = op};
    return run(session, scope, &request, form);
}

FORMS(reduce_scatterv,
      LIST(const void *in, void *out, const size_t *counts, muster_type type, muster_op op),
      LIST(in, out, counts, type, op))

static muster_status allgather(struct muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, struct form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHER, .in = in, .out = out, .count = count, .type = type};
    return run(session, scope, &request, form);
}

FORMS(allgather, LIST(const void *in, void *out, size_t count, muster_type type),
      LIST(in, out, count, type))

static muster_status allgatherv(struct muster_session *session, muster_scope scope, const void *in,
                                void *out, const size_t *counts, muster_type type, struct form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHERV, .in = in, .out = out, .out_counts = counts, .type = type};
    return run(session, scope, &request, form);
}

FORMS(allgatherv, LIST(const void *in, void *out, const size_t *counts, muster_type type),
      LIST(in, out, counts, type))

static muster_status gather(struct muster_session *session, muster_scope scope, const void *in,
                            void *out, size_t count, muster_type type, uint32_t root,
                            struct form form)
{
    struct muster_request request = {.collective = MUSTER_GATHER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, form);
}

FORMS(gather, LIST(const void *in, void *out, size_t count, muster_type type, uint32_t root),
      LIST(in, out, count, type, root))

static muster_status gatherv(struct muster_session *session, muster_scope scope, const void *in,
                             void *out, const size_t *counts, muster_type type, uint32_t root,
                             struct form form)
{
    struct muster_request request = {.collective = MUSTER_GATHERV,
                                     .in = in,
                                     .out = out,
                                     .out_counts = counts,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, form);
}

FORMS(gatherv,
      LIST(const void *in, void *out, const size_t *counts, muster_type type, uint32_t root),
      LIST(in, out, counts, type, root))

static muster_status scatter(struct muster_session *session, muster_scope scope, const void *in,
                             void *out, size_t count, muster_type type, uint32_t root,
                             struct form form)
{
    struct muster_request request = {.collective = MUSTER_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, form);
}

FORMS(scatter, LIST(const void *in, void *out, size_t count, muster_type type, uint32_t root),
      LIST(in, out, count, type, root))

static muster_status broadcast(struct muster_session *session, muster_scope scope, void *data,
                               size_t count, muster_type type, uint32_t root, struct form form)
{
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .in = data,
                                     .out = data,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, form);
}

FORMS(broadcast, LIST(void *data, size_t count, muster_type type, uint32_t root),
      LIST(data, count, type, root))

static muster_status alltoall(struct muster_session *session, muster_scope scope, const void *in,
                              void *out, size_t count, muster_type type, struct form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLTOALL, .in = in, .out = out, .count = count, .type = type};
    return run(session, scope, &request, form);
}

FORMS(alltoall, LIST(const void *in, void *out, size_t count, muster_type type),
      LIST(in, out, count, type))

static muster_status alltoallv(struct muster_session *session, muster_scope scope, const void *in,
                               const size_t *in_counts, void *out, const size_t *out_counts,
                               muster_type type, struct form form)
{
    struct muster_request request = {.collective = MUSTER_ALLTOALLV,
                                     .in = in,
                                     .out = out,
                                     .in_counts = in_counts,
                                     .out_counts = out_counts,
                                     .type = type};
    return run(session, scope, &request, form);
}

FORMS(alltoallv,
      LIST(const void *in, const size_t *in_counts, void *out, const size_t *out_counts,
           muster_type type),
      LIST(in, in_counts, out, out_counts, type))

static muster_status barrier(struct muster_session *session, muster_scope scope, struct form form)
{
    struct muster_request request = {.collective = MUSTER_BARRIER, .type = MUSTER_UINT8};
    return run(session, scope, &request, form);
}

FORMS(barrier, , )

/* NOLINTEND(readability-function-size) */
