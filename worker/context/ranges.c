/* Calls on several ranges as one buffer: binds them, and refuses memory of a device. */
#include "worker/context/ranges.h"

#include "worker/base/status.h"
#include "worker/device/devices.h"

static muster_status check_host(const struct muster_request *request,
                                const struct muster_range_list *list, const char *side)
{
    struct muster_device_memory memory;
    for (size_t i = 0; i < list->count; i++) {
        if (muster_device_find(list->runs[i].address, &memory)) {
            return muster_error_set(MUSTER_INVALID,
                                    "%s: ranges are memory of the host, and one of %s begins at "
                                    "%p, in memory of a device",
                                    muster_collective_name(request->collective), side,
                                    (void *)list->runs[i].address);
        }
    }
    return MUSTER_OK;
}

muster_status muster_context_bind_ranges(const struct muster_request *request,
                                         struct muster_bound_ranges *bound,
                                         struct muster_request *ret_request)
{
    struct muster_request made;
    TRY(muster_request_bind_ranges(request, bound, &made));
    if (muster_devices_active()) {
        TRY(check_host(request, &bound->out, "outs"));
        if (made.collective != MUSTER_BROADCAST) {
            TRY(check_host(request, &bound->in, "ins"));
        }
    }
    *ret_request = made;
    return MUSTER_OK;
}
