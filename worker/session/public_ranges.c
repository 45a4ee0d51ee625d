/* The public collectives on several ranges as one buffer. */
#include "collectives/call/request_ranges.h"
#include "worker/base/status.h"
#include "worker/session/public_call.h"

/* The parameters are as many as such functions have in the field.
 * NOLINTBEGIN(readability-function-size) */

static muster_status allreduce_ranges(struct muster_session *session, muster_scope scope,
                                      const muster_range *ins, const muster_range *outs,
                                      size_t range_count, muster_type type, muster_op op,
                                      struct muster_call_form form)
{
    const struct muster_given_ranges given = {ins, outs, range_count, range_count};
    struct muster_request request = {
        .collective = MUSTER_ALLREDUCE, .ranges = &given, .type = type, .op = op};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(allreduce_ranges,
                  MUSTER_CALL_LIST(const muster_range *ins, const muster_range *outs,
                                   size_t range_count, muster_type type, muster_op op),
                  MUSTER_CALL_LIST(ins, outs, range_count, type, op))

static muster_status broadcast_ranges(struct muster_session *session, muster_scope scope,
                                      const muster_range *ranges, size_t range_count,
                                      muster_type type, uint32_t root, struct muster_call_form form)
{
    const struct muster_given_ranges given = {.outs = ranges, .out_count = range_count};
    struct muster_request request = {
        .collective = MUSTER_BROADCAST, .ranges = &given, .type = type, .root = root};
    return muster_session_call(session, scope, &request, form);
}

MUSTER_CALL_FORMS(broadcast_ranges,
                  MUSTER_CALL_LIST(const muster_range *ranges, size_t range_count, muster_type type,
                                   uint32_t root),
                  MUSTER_CALL_LIST(ranges, range_count, type, root))

/* NOLINTEND(readability-function-size) */
