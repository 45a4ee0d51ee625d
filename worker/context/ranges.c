/* Calls on several ranges as one buffer: binds them, and stages those in memory of a device. */
#include "worker/context/ranges.h"

#include "worker/base/status.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

void muster_call_ranges_finish(struct muster_call_ranges *ranges)
{
    muster_bound_ranges_finish(&ranges->bound);
    muster_staged_ranges_finish(&ranges->staged);
}

/* The ranges have been bound once, as the caller gave them, which has checked them. If some are
 * staged, they are bound again where they are then. */
static muster_status stage(const struct muster_context *context,
                           const struct muster_request *request, struct muster_call_ranges *ranges,
                           struct muster_request *bound)
{
    bool broadcasts = request->collective == MUSTER_BROADCAST;
    bool in_place = !broadcasts && bound->in == bound->out && bound->in_ranges == bound->out_ranges;
    struct muster_staging_call call = {.given = *request->ranges,
                                       .element_size_bytes = muster_type_size_bytes(request->type),
                                       .in_place = in_place,
                                       .sends = !broadcasts || context->rank == request->root};
    struct muster_given_ranges staged = {.ins = NULL};
    call.given.ins = broadcasts ? NULL : call.given.ins; /* they mean nothing */
    TRY(muster_staged_ranges_begin(&ranges->staged, &call, &staged));
    if (!ranges->staged.active) {
        return MUSTER_OK;
    }
    struct muster_request again = *request;
    again.ranges = &staged;
    return muster_request_bind_ranges(&again, &ranges->bound, bound);
}

muster_status muster_context_bind_ranges(const struct muster_context *context,
                                         const struct muster_request *request,
                                         struct muster_call_ranges *ranges,
                                         struct muster_request *ret_request)
{
    struct muster_request bound;
    ranges->staged.active = false;
    TRY(muster_request_bind_ranges(request, &ranges->bound, &bound));
    if (muster_devices_active()) {
        muster_status status = stage(context, request, ranges, &bound);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "%s", muster_collective_name(request->collective));
        }
    }
    *ret_request = bound;
    return MUSTER_OK;
}

void muster_call_ranges_move(struct muster_request *request, struct muster_call_ranges *from,
                             struct muster_call_ranges *to)
{
    const struct muster_call_ranges moved = *from;
    *from = *to;
    *to = moved;
    muster_request_move_ranges(request, &from->bound, &to->bound);
}
