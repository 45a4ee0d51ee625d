/* The public collectives: each becomes a request, which the context of the scope checks. */
#include "worker/base/clock.h"
#include "worker/base/option_parse.h"
#include "worker/base/status.h"
#include "worker/session/failure_handling.h"

static muster_status run(struct muster_session *session, muster_scope scope,
                         struct muster_request *request, const muster_call_options *options)
{
    if ((unsigned)scope >= MUSTER_SCOPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "%s: scope %d: there is no such scope",
                                muster_collective_name(request->collective), (int)scope);
    }
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
        timeout_ms = complete.timeout_ms > 0 ? complete.timeout_ms : timeout_ms;
    }
    request->deadline_ns = muster_clock_after_ms(timeout_ms);
    return muster_session_run(session, scope, request);
}

muster_status muster_allreduce(muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, muster_op op,
                               const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op};
    return run(session, scope, &request, options);
}

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
                                    const muster_call_options *options)
{
    TRY(check_buffers(several->collective, several->inputs, buffer_count));
    TRY(check_buffers(several->collective, several->outputs, buffer_count));
    struct muster_request request = *several;
    request.in = several->inputs[0];
    request.out = several->outputs[0];
    request.buffer_count = (uint32_t)buffer_count;
    return run(session, scope, &request, options);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_allreduce_buffers(muster_session *session, muster_scope scope,
                                       const void *const *ins, void *const *outs,
                                       size_t buffer_count, size_t count, muster_type type,
                                       muster_op op, const muster_call_options *options)
{
    const struct muster_request several = {.collective = MUSTER_ALLREDUCE,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, options);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce_scatter_buffers(muster_session *session, muster_scope scope,
                                            const void *const *ins, void *const *outs,
                                            size_t buffer_count, size_t count, muster_type type,
                                            muster_op op, const muster_call_options *options)
{
    const struct muster_request several = {.collective = MUSTER_REDUCE_SCATTER,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, options);
}

muster_status muster_broadcast_buffers(muster_session *session, muster_scope scope,
                                       void *const *buffers, size_t buffer_count, size_t count,
                                       muster_type type, uint32_t root,
                                       const muster_call_options *options)
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
    return run(session, scope, &request, options);
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce(muster_session *session, muster_scope scope, const void *in, void *out,
                            size_t count, muster_type type, muster_op op, uint32_t root,
                            const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_REDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op,
                                     .root = root};
    return run(session, scope, &request, options);
}

muster_status muster_reduce_scatter(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type, muster_op op,
                                    const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_REDUCE_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op};
    return run(session, scope, &request, options);
}

muster_status muster_reduce_scatterv(muster_session *session, muster_scope scope, const void *in,
                                     void *out, const size_t *counts, muster_type type,
                                     muster_op op, const muster_call_options *options)
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
    return run(session, scope, &request, options);
}

muster_status muster_allgather(muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type,
                               const muster_call_options *options)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHER, .in = in, .out = out, .count = count, .type = type};
    return run(session, scope, &request, options);
}

muster_status muster_allgatherv(muster_session *session, muster_scope scope, const void *in,
                                void *out, const size_t *counts, muster_type type,
                                const muster_call_options *options)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHERV, .in = in, .out = out, .out_counts = counts, .type = type};
    return run(session, scope, &request, options);
}

muster_status muster_gather(muster_session *session, muster_scope scope, const void *in, void *out,
                            size_t count, muster_type type, uint32_t root,
                            const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_GATHER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, options);
}

muster_status muster_gatherv(muster_session *session, muster_scope scope, const void *in, void *out,
                             const size_t *counts, muster_type type, uint32_t root,
                             const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_GATHERV,
                                     .in = in,
                                     .out = out,
                                     .out_counts = counts,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, options);
}

muster_status muster_scatter(muster_session *session, muster_scope scope, const void *in, void *out,
                             size_t count, muster_type type, uint32_t root,
                             const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, options);
}

muster_status muster_broadcast(muster_session *session, muster_scope scope, void *data,
                               size_t count, muster_type type, uint32_t root,
                               const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .in = data,
                                     .out = data,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return run(session, scope, &request, options);
}

muster_status muster_alltoall(muster_session *session, muster_scope scope, const void *in,
                              void *out, size_t count, muster_type type,
                              const muster_call_options *options)
{
    struct muster_request request = {
        .collective = MUSTER_ALLTOALL, .in = in, .out = out, .count = count, .type = type};
    return run(session, scope, &request, options);
}

muster_status muster_alltoallv(muster_session *session, muster_scope scope, const void *in,
                               const size_t *in_counts, void *out, const size_t *out_counts,
                               muster_type type, const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_ALLTOALLV,
                                     .in = in,
                                     .out = out,
                                     .in_counts = in_counts,
                                     .out_counts = out_counts,
                                     .type = type};
    return run(session, scope, &request, options);
}

muster_status muster_barrier(muster_session *session, muster_scope scope,
                             const muster_call_options *options)
{
    struct muster_request request = {.collective = MUSTER_BARRIER, .type = MUSTER_UINT8};
    return run(session, scope, &request, options);
}
