/* The public collectives: each becomes a request, which the context of the scope checks. */
#include "worker/base/status.h"
#include "worker/session/public_call.h"

/* The parameters are as many as such functions have in the field.
 * NOLINTBEGIN(readability-function-size) */

static muster_status allreduce(struct muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type, muster_op op,
                               struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(allreduce,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type,
                                   muster_op op),
                  MUSTER_CALL_LIST(in, out, count, type, op))

static muster_status check_buffers(enum muster_collective collective, const void *list,
                                   size_t buffer_count, size_t least)
{
    bool missing = list == NULL && buffer_count > 0;
    if (buffer_count < least || buffer_count > MUSTER_BUFFERS_MAX || missing) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu buffers%s: must be from %zu to %d",
                                muster_collective_name(collective), buffer_count,
                                missing ? " in a list that is NULL" : "", least,
                                MUSTER_BUFFERS_MAX);
    }
    return MUSTER_OK;
}

/* Without counts a request of this collective has equal blocks. */
static muster_status check_counts(const char *name, const size_t *counts)
{
    return counts != NULL ? MUSTER_OK
                          : muster_error_set(MUSTER_INVALID, "%s: counts is NULL", name);
}

/* Of one size each, in both lists; there may be none. */
static muster_status reduce_buffers(struct muster_session *session, muster_scope scope,
                                    const struct muster_request *several, size_t buffer_count,
                                    struct muster_call_form form)
{
    TRY(check_buffers(several->collective, several->inputs, buffer_count, 0));
    TRY(check_buffers(several->collective, several->outputs, buffer_count, 0));
    struct muster_request request = *several;
    if (buffer_count == 0) {
        request.inputs = NULL;
        request.outputs = NULL;
        request.no_buffers = true;
        return muster_session_call(session, scope, &request, form);
    }
    request.in = several->inputs[0];
    request.out = several->outputs[0];
    request.buffer_count = (uint32_t)buffer_count;
    return muster_session_call(session, scope, &request, form);
}

static muster_status allreduce_buffers(struct muster_session *session, muster_scope scope,
                                       const void *const *ins, void *const *outs,
                                       size_t buffer_count, size_t count, muster_type type,
                                       muster_op op, struct muster_call_form form)
{
    const struct muster_request several = {.collective = MUSTER_ALLREDUCE,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, form);
}

MUSTER_CALL_FORMS(allreduce_buffers,
                  MUSTER_CALL_LIST(const void *const *ins, void *const *outs, size_t buffer_count,
                                   size_t count, muster_type type, muster_op op),
                  MUSTER_CALL_LIST(ins, outs, buffer_count, count, type, op))

static muster_status reduce_scatter_buffers(struct muster_session *session, muster_scope scope,
                                            const void *const *ins, void *const *outs,
                                            size_t buffer_count, size_t count, muster_type type,
                                            muster_op op, struct muster_call_form form)
{
    const struct muster_request several = {.collective = MUSTER_REDUCE_SCATTER,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, form);
}

MUSTER_CALL_FORMS(reduce_scatter_buffers,
                  MUSTER_CALL_LIST(const void *const *ins, void *const *outs, size_t buffer_count,
                                   size_t count, muster_type type, muster_op op),
                  MUSTER_CALL_LIST(ins, outs, buffer_count, count, type, op))

static muster_status reduce_scatterv_buffers(struct muster_session *session, muster_scope scope,
                                             const void *const *ins, void *const *outs,
                                             size_t buffer_count, const size_t *counts,
                                             muster_type type, muster_op op,
                                             struct muster_call_form form)
{
    TRY(check_counts("reduce_scatterv_buffers", counts));
    const struct muster_request several = {.collective = MUSTER_REDUCE_SCATTER,
                                           .inputs = ins,
                                           .outputs = outs,
                                           .in_counts = counts,
                                           .type = type,
                                           .op = op};
    return reduce_buffers(session, scope, &several, buffer_count, form);
}

MUSTER_CALL_FORMS(reduce_scatterv_buffers,
                  MUSTER_CALL_LIST(const void *const *ins, void *const *outs, size_t buffer_count,
                                   const size_t *counts, muster_type type, muster_op op),
                  MUSTER_CALL_LIST(ins, outs, buffer_count, counts, type, op))

static muster_status broadcast_buffers(struct muster_session *session, muster_scope scope,
                                       void *const *buffers, size_t buffer_count, size_t count,
                                       muster_type type, uint32_t root,
                                       struct muster_call_form form)
{
    TRY(check_buffers(MUSTER_BROADCAST, buffers, buffer_count, 1));
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .in = buffers[0],
                                     .out = buffers[0],
                                     .buffer_count = (uint32_t)buffer_count,
                                     .outputs = buffers,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(broadcast_buffers,
                  MUSTER_CALL_LIST(void *const *buffers, size_t buffer_count, size_t count,
                                   muster_type type, uint32_t root),
                  MUSTER_CALL_LIST(buffers, buffer_count, count, type, root))

static muster_status reduce(struct muster_session *session, muster_scope scope, const void *in,
                            void *out, size_t count, muster_type type, muster_op op, uint32_t root,
                            struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_REDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op,
                                     .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(reduce,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type,
                                   muster_op op, uint32_t root),
                  MUSTER_CALL_LIST(in, out, count, type, op, root))

static muster_status reduce_scatter(struct muster_session *session, muster_scope scope,
                                    const void *in, void *out, size_t count, muster_type type,
                                    muster_op op, struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_REDUCE_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .op = op};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(reduce_scatter,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type,
                                   muster_op op),
                  MUSTER_CALL_LIST(in, out, count, type, op))

static muster_status reduce_scatterv(struct muster_session *session, muster_scope scope,
                                     const void *in, void *out, const size_t *counts,
                                     muster_type type, muster_op op, struct muster_call_form form)
{
    TRY(check_counts("reduce_scatterv", counts));
    struct muster_request request = {.collective = MUSTER_REDUCE_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .in_counts = counts,
                                     .type = type,
                                     .op = op};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(reduce_scatterv,
                  MUSTER_CALL_LIST(const void *in, void *out, const size_t *counts,
                                   muster_type type, muster_op op),
                  MUSTER_CALL_LIST(in, out, counts, type, op))

static muster_status allgather(struct muster_session *session, muster_scope scope, const void *in,
                               void *out, size_t count, muster_type type,
                               struct muster_call_form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHER, .in = in, .out = out, .count = count, .type = type};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(allgather,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type),
                  MUSTER_CALL_LIST(in, out, count, type))

static muster_status allgatherv(struct muster_session *session, muster_scope scope, const void *in,
                                void *out, const size_t *counts, muster_type type,
                                struct muster_call_form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLGATHERV, .in = in, .out = out, .out_counts = counts, .type = type};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(allgatherv,
                  MUSTER_CALL_LIST(const void *in, void *out, const size_t *counts,
                                   muster_type type),
                  MUSTER_CALL_LIST(in, out, counts, type))

static muster_status gather(struct muster_session *session, muster_scope scope, const void *in,
                            void *out, size_t count, muster_type type, uint32_t root,
                            struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_GATHER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(gather,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type,
                                   uint32_t root),
                  MUSTER_CALL_LIST(in, out, count, type, root))

static muster_status gatherv(struct muster_session *session, muster_scope scope, const void *in,
                             void *out, const size_t *counts, muster_type type, uint32_t root,
                             struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_GATHERV,
                                     .in = in,
                                     .out = out,
                                     .out_counts = counts,
                                     .type = type,
                                     .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(gatherv,
                  MUSTER_CALL_LIST(const void *in, void *out, const size_t *counts,
                                   muster_type type, uint32_t root),
                  MUSTER_CALL_LIST(in, out, counts, type, root))

static muster_status scatter(struct muster_session *session, muster_scope scope, const void *in,
                             void *out, size_t count, muster_type type, uint32_t root,
                             struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(scatter,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type,
                                   uint32_t root),
                  MUSTER_CALL_LIST(in, out, count, type, root))

static muster_status broadcast(struct muster_session *session, muster_scope scope, void *data,
                               size_t count, muster_type type, uint32_t root,
                               struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .in = data,
                                     .out = data,
                                     .count = count,
                                     .type = type,
                                     .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(broadcast,
                  MUSTER_CALL_LIST(void *data, size_t count, muster_type type, uint32_t root),
                  MUSTER_CALL_LIST(data, count, type, root))

static muster_status alltoall(struct muster_session *session, muster_scope scope, const void *in,
                              void *out, size_t count, muster_type type,
                              struct muster_call_form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLTOALL, .in = in, .out = out, .count = count, .type = type};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(alltoall,
                  MUSTER_CALL_LIST(const void *in, void *out, size_t count, muster_type type),
                  MUSTER_CALL_LIST(in, out, count, type))

static muster_status alltoallv(struct muster_session *session, muster_scope scope, const void *in,
                               const size_t *in_counts, void *out, const size_t *out_counts,
                               muster_type type, struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_ALLTOALLV,
                                     .in = in,
                                     .out = out,
                                     .in_counts = in_counts,
                                     .out_counts = out_counts,
                                     .type = type};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(alltoallv,
                  MUSTER_CALL_LIST(const void *in, const size_t *in_counts, void *out,
                                   const size_t *out_counts, muster_type type),
                  MUSTER_CALL_LIST(in, in_counts, out, out_counts, type))

static muster_status barrier(struct muster_session *session, muster_scope scope,
                             struct muster_call_form form)
{
    struct muster_request request = {.collective = MUSTER_BARRIER, .type = MUSTER_UINT8};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(barrier, , )

/* NOLINTEND(readability-function-size) */
