/* The public collectives: each becomes a request, which the context of the scope checks. Both forms
 * of a collective, the blocking one and the one that starts an operation, share a function. */
#include "worker/base/clock.h"
#include "worker/base/option_parse.h"
#include "worker/base/status.h"
#include "worker/session/failure_handling.h"
#include "worker/session/operations.h"

/* How a collective is called. */
struct form {
    const muster_call_options *options;
    bool starts; /* else it blocks */
    muster_operation *ret_operation;
};

static struct form blocking(const muster_call_options *options)
{
    return (struct form){.options = options};
}

static struct form start_of(const muster_call_options *options, muster_operation *ret_operation)
{
    return (struct form){.options = options, .starts = true, .ret_operation = ret_operation};
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
        request->factors_set = complete.factors_set;
        request->compression = complete.compression;
        request->user_function = complete.user_function;
        request->user_data = complete.user_data;
        timeout_ms = complete.timeout_ms > 0 ? complete.timeout_ms : timeout_ms;
    }
    request->deadline_ns = muster_clock_after_ms(timeout_ms);
    bool varies = request->in_counts != NULL || request->out_counts != NULL;
    if (request->compression == MUSTER_COMPRESSION_DEFAULT && !request->reproducible && !varies &&
        muster_compression_check(session->settings.compression, request->collective, request->type,
                                 request->op) == MUSTER_OK) {
        request->compression = session->settings.compression;
    }
    if (!form.starts) {
        return muster_session_run(session, scope, request);
    }
    if (form.ret_operation == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s: ret_operation is NULL",
                                muster_collective_name(request->collective));
    }
    return muster_session_start(session, scope, request, form.ret_operation);
}

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

muster_status muster_allreduce(muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, muster_op op,
                               const muster_call_options *options)
{
    return allreduce(session, scope, in, out, count, type, op, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_allreduce_start(muster_session *session, muster_scope scope, const void *in,
                                     void *out, size_t count, muster_type type, muster_op op,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation)
{
    return allreduce(session, scope, in, out, count, type, op, start_of(options, ret_operation));
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

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
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

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_allreduce_buffers(muster_session *session, muster_scope scope,
                                       const void *const *ins, void *const *outs,
                                       size_t buffer_count, size_t count, muster_type type,
                                       muster_op op, const muster_call_options *options)
{
    return allreduce_buffers(session, scope, ins, outs, buffer_count, count, type, op,
                             blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_allreduce_buffers_start(muster_session *session, muster_scope scope,
                                             const void *const *ins, void *const *outs,
                                             size_t buffer_count, size_t count, muster_type type,
                                             muster_op op, const muster_call_options *options,
                                             muster_operation *ret_operation)
{
    return allreduce_buffers(session, scope, ins, outs, buffer_count, count, type, op,
                             start_of(options, ret_operation));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
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

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce_scatter_buffers(muster_session *session, muster_scope scope,
                                            const void *const *ins, void *const *outs,
                                            size_t buffer_count, size_t count, muster_type type,
                                            muster_op op, const muster_call_options *options)
{
    return reduce_scatter_buffers(session, scope, ins, outs, buffer_count, count, type, op,
                                  blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce_scatter_buffers_start(muster_session *session, muster_scope scope,
                                                  const void *const *ins, void *const *outs,
                                                  size_t buffer_count, size_t count,
                                                  muster_type type, muster_op op,
                                                  const muster_call_options *options,
                                                  muster_operation *ret_operation)
{
    return reduce_scatter_buffers(session, scope, ins, outs, buffer_count, count, type, op,
                                  start_of(options, ret_operation));
}

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

muster_status muster_broadcast_buffers(muster_session *session, muster_scope scope,
                                       void *const *buffers, size_t buffer_count, size_t count,
                                       muster_type type, uint32_t root,
                                       const muster_call_options *options)
{
    return broadcast_buffers(session, scope, buffers, buffer_count, count, type, root,
                             blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_broadcast_buffers_start(muster_session *session, muster_scope scope,
                                             void *const *buffers, size_t buffer_count,
                                             size_t count, muster_type type, uint32_t root,
                                             const muster_call_options *options,
                                             muster_operation *ret_operation)
{
    return broadcast_buffers(session, scope, buffers, buffer_count, count, type, root,
                             start_of(options, ret_operation));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
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

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce(muster_session *session, muster_scope scope, const void *in, void *out,
                            size_t count, muster_type type, muster_op op, uint32_t root,
                            const muster_call_options *options)
{
    return reduce(session, scope, in, out, count, type, op, root, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce_start(muster_session *session, muster_scope scope, const void *in,
                                  void *out, size_t count, muster_type type, muster_op op,
                                  uint32_t root, const muster_call_options *options,
                                  muster_operation *ret_operation)
{
    return reduce(session, scope, in, out, count, type, op, root, start_of(options, ret_operation));
}

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

muster_status muster_reduce_scatter(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type, muster_op op,
                                    const muster_call_options *options)
{
    return reduce_scatter(session, scope, in, out, count, type, op, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce_scatter_start(muster_session *session, muster_scope scope,
                                          const void *in, void *out, size_t count, muster_type type,
                                          muster_op op, const muster_call_options *options,
                                          muster_operation *ret_operation)
{
    return reduce_scatter(session, scope, in, out, count, type, op,
                          start_of(options, ret_operation));
}

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

muster_status muster_reduce_scatterv(muster_session *session, muster_scope scope, const void *in,
                                     void *out, const size_t *counts, muster_type type,
                                     muster_op op, const muster_call_options *options)
{
    return reduce_scatterv(session, scope, in, out, counts, type, op, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_reduce_scatterv_start(muster_session *session, muster_scope scope,
                                           const void *in, void *out, const size_t *counts,
                                           muster_type type, muster_op op,
                                           const muster_call_options *options,
                                           muster_operation *ret_operation)
{
    return reduce_scatterv(session, scope, in, out, counts, type, op,
                           start_of(options, ret_operation));
}

static muster_status allgather(struct muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, struct form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHER, .in = in, .out = out, .count = count, .type = type};
    return run(session, scope, &request, form);
}

muster_status muster_allgather(muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type,
                               const muster_call_options *options)
{
    return allgather(session, scope, in, out, count, type, blocking(options));
}

muster_status muster_allgather_start(muster_session *session, muster_scope scope, const void *in,
                                     void *out, size_t count, muster_type type,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation)
{
    return allgather(session, scope, in, out, count, type, start_of(options, ret_operation));
}

static muster_status allgatherv(struct muster_session *session, muster_scope scope, const void *in,
                                void *out, const size_t *counts, muster_type type, struct form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHERV, .in = in, .out = out, .out_counts = counts, .type = type};
    return run(session, scope, &request, form);
}

muster_status muster_allgatherv(muster_session *session, muster_scope scope, const void *in,
                                void *out, const size_t *counts, muster_type type,
                                const muster_call_options *options)
{
    return allgatherv(session, scope, in, out, counts, type, blocking(options));
}

muster_status muster_allgatherv_start(muster_session *session, muster_scope scope, const void *in,
                                      void *out, const size_t *counts, muster_type type,
                                      const muster_call_options *options,
                                      muster_operation *ret_operation)
{
    return allgatherv(session, scope, in, out, counts, type, start_of(options, ret_operation));
}

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

muster_status muster_gather(muster_session *session, muster_scope scope, const void *in, void *out,
                            size_t count, muster_type type, uint32_t root,
                            const muster_call_options *options)
{
    return gather(session, scope, in, out, count, type, root, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_gather_start(muster_session *session, muster_scope scope, const void *in,
                                  void *out, size_t count, muster_type type, uint32_t root,
                                  const muster_call_options *options,
                                  muster_operation *ret_operation)
{
    return gather(session, scope, in, out, count, type, root, start_of(options, ret_operation));
}

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

muster_status muster_gatherv(muster_session *session, muster_scope scope, const void *in, void *out,
                             const size_t *counts, muster_type type, uint32_t root,
                             const muster_call_options *options)
{
    return gatherv(session, scope, in, out, counts, type, root, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_gatherv_start(muster_session *session, muster_scope scope, const void *in,
                                   void *out, const size_t *counts, muster_type type, uint32_t root,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation)
{
    return gatherv(session, scope, in, out, counts, type, root, start_of(options, ret_operation));
}

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

muster_status muster_scatter(muster_session *session, muster_scope scope, const void *in, void *out,
                             size_t count, muster_type type, uint32_t root,
                             const muster_call_options *options)
{
    return scatter(session, scope, in, out, count, type, root, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_scatter_start(muster_session *session, muster_scope scope, const void *in,
                                   void *out, size_t count, muster_type type, uint32_t root,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation)
{
    return scatter(session, scope, in, out, count, type, root, start_of(options, ret_operation));
}

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

muster_status muster_broadcast(muster_session *session, muster_scope scope, void *data,
                               size_t count, muster_type type, uint32_t root,
                               const muster_call_options *options)
{
    return broadcast(session, scope, data, count, type, root, blocking(options));
}

muster_status muster_broadcast_start(muster_session *session, muster_scope scope, void *data,
                                     size_t count, muster_type type, uint32_t root,
                                     const muster_call_options *options,
                                     muster_operation *ret_operation)
{
    return broadcast(session, scope, data, count, type, root, start_of(options, ret_operation));
}

static muster_status alltoall(struct muster_session *session, muster_scope scope, const void *in,
                              void *out, size_t count, muster_type type, struct form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLTOALL, .in = in, .out = out, .count = count, .type = type};
    return run(session, scope, &request, form);
}

muster_status muster_alltoall(muster_session *session, muster_scope scope, const void *in,
                              void *out, size_t count, muster_type type,
                              const muster_call_options *options)
{
    return alltoall(session, scope, in, out, count, type, blocking(options));
}

muster_status muster_alltoall_start(muster_session *session, muster_scope scope, const void *in,
                                    void *out, size_t count, muster_type type,
                                    const muster_call_options *options,
                                    muster_operation *ret_operation)
{
    return alltoall(session, scope, in, out, count, type, start_of(options, ret_operation));
}

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

muster_status muster_alltoallv(muster_session *session, muster_scope scope, const void *in,
                               const size_t *in_counts, void *out, const size_t *out_counts,
                               muster_type type, const muster_call_options *options)
{
    return alltoallv(session, scope, in, in_counts, out, out_counts, type, blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_alltoallv_start(muster_session *session, muster_scope scope, const void *in,
                                     const size_t *in_counts, void *out, const size_t *out_counts,
                                     muster_type type, const muster_call_options *options,
                                     muster_operation *ret_operation)
{
    return alltoallv(session, scope, in, in_counts, out, out_counts, type,
                     start_of(options, ret_operation));
}

static muster_status barrier(struct muster_session *session, muster_scope scope, struct form form)
{
    struct muster_request request = {.collective = MUSTER_BARRIER, .type = MUSTER_UINT8};
    return run(session, scope, &request, form);
}

muster_status muster_barrier(muster_session *session, muster_scope scope,
                             const muster_call_options *options)
{
    return barrier(session, scope, blocking(options));
}

muster_status muster_barrier_start(muster_session *session, muster_scope scope,
                                   const muster_call_options *options,
                                   muster_operation *ret_operation)
{
    return barrier(session, scope, start_of(options, ret_operation));
}
