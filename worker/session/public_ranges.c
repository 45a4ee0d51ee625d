/* The public collectives on several ranges as one buffer. */
#include "collectives/call/request_ranges.h"
#include "worker/base/status.h"
#include "worker/session/public_call.h"

static muster_status allreduce_ranges(struct muster_session *session, muster_scope scope,
                                      const struct muster_given_ranges *given, muster_type type,
                                      muster_op op, struct muster_call_form form)
{
    struct muster_request request = {
        .collective = MUSTER_ALLREDUCE, .ranges = given, .type = type, .op = op};
    return muster_session_call(session, scope, &request, form);
}

muster_status muster_allreduce_ranges(muster_session *session, muster_scope scope,
                                      const muster_range *ins, const muster_range *outs,
                                      size_t range_count, muster_type type, muster_op op,
                                      const muster_call_options *options)
{
    const struct muster_given_ranges given = {ins, outs, range_count, range_count};
    return allreduce_ranges(session, scope, &given, type, op, muster_form_blocking(options));
}

/* NOLINTNEXTLINE(readability-function-size): as many as such functions have in the field */
muster_status muster_allreduce_ranges_start(muster_session *session, muster_scope scope,
                                            const muster_range *ins, const muster_range *outs,
                                            size_t range_count, muster_type type, muster_op op,
                                            const muster_call_options *options,
                                            muster_operation *ret_operation)
{
    const struct muster_given_ranges given = {ins, outs, range_count, range_count};
    return allreduce_ranges(session, scope, &given, type, op,
                            muster_form_start(options, ret_operation));
}

static muster_status broadcast_ranges(struct muster_session *session, muster_scope scope,
                                      const struct muster_given_ranges *given, muster_type type,
                                      uint32_t root, struct muster_call_form form)
{
    struct muster_request request = {
        .collective = MUSTER_BROADCAST, .ranges = given, .type = type, .root = root};
    return muster_session_call(session, scope, &request, form);
}

muster_status muster_broadcast_ranges(muster_session *session, muster_scope scope,
                                      const muster_range *ranges, size_t range_count,
                                      muster_type type, uint32_t root,
                                      const muster_call_options *options)
{
    const struct muster_given_ranges given = {.outs = ranges, .out_count = range_count};
    return broadcast_ranges(session, scope, &given, type, root, muster_form_blocking(options));
}

muster_status muster_broadcast_ranges_start(muster_session *session, muster_scope scope,
                                            const muster_range *ranges, size_t range_count,
                                            muster_type type, uint32_t root,
                                            const muster_call_options *options,
                                            muster_operation *ret_operation)
{
    const struct muster_given_ranges given = {.outs = ranges, .out_count = range_count};
    return broadcast_ranges(session, scope, &given, type, root,
                            muster_form_start(options, ret_operation));
}
