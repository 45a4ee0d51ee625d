/*
 * Launches of calls in flight, whose buffers or ranges may be memory of a device. The caller's
 * thread brings the input to the host when it starts the call, or waits until the device has it;
 * the thread that ends the operation copies the output back.
 */
#include <stdlib.h>

#include "worker/context/local_work.h"
#include "worker/context/started_parts.h"

/* A stream is that of the device which has all buffers. */
static muster_status check_stream(const struct muster_started_call *call)
{
    const struct muster_request *request = &call->request;
    return request->stream == 0 || (call->on_device && request->ranges == NULL)
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "%s: a stream is for buffers in memory of its GPU, and not for "
                                  "lists of ranges",
                                  muster_collective_name(request->collective));
}

static muster_status begin_on_device(struct muster_started_call *call)
{
    const struct muster_context *context = call->context;
    if (call->device == NULL) {
        call->device = calloc(1, sizeof *call->device);
    }
    if (call->device == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a call on memory of a device");
    }
    call->device->direct = call->request.stream == 0 &&
                           muster_context_may_be_direct(context, &call->request, &call->own);
    call->device->in_flight = true;
    call->device->may_move = muster_context_may_move(&call->request, &call->own);
    call->device->timeline = muster_fabric_timeline(context->fabric);
    muster_status status =
        muster_device_call_begin(call->device, &call->staging, &call->request, &call->own.launch);
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(status, "%s (context %s)",
                                     muster_collective_name(call->request.collective),
                                     context->name);
}

muster_status muster_started_call_prepare(struct muster_started_call *call,
                                          struct muster_launch *ret_launch)
{
    const struct muster_request *request = &call->request;
    TRY(muster_staged_ranges_fetch(&call->ranges.staged,
                                   muster_fabric_timeline(call->context->fabric)));
    call->on_device = muster_request_is_on_device(request);
    TRY(check_stream(call));
    if (call->on_device) {
        TRY(begin_on_device(call));
        request = &call->device->request;
    }
    muster_status status =
        muster_context_prepare(call->context, request, &call->own, &call->scratch, ret_launch);
    if (status != MUSTER_OK) {
        muster_started_call_release(call);
        return status;
    }
    if (call->on_device) {
        muster_device_call_bind(call->device, ret_launch);
    }
    return MUSTER_OK;
}

muster_status muster_started_call_complete(struct muster_started_call *call,
                                           const struct muster_launch *launch)
{
    const struct muster_request *request =
        call->on_device ? &call->device->request : &call->request;
    TRY(launch->moves != NULL && launch->moves->out != NULL ? MUSTER_OK
        : launch->out_memory != NULL
            ? muster_device_call_finish(launch)
            : muster_local_end(request, &call->own.order_of_blocks, launch));
    TRY(muster_staged_ranges_store(&call->ranges.staged,
                                   muster_fabric_timeline(call->context->fabric)));
    return call->on_device ? muster_device_call_end(call->device) : MUSTER_OK;
}

void muster_started_call_release(struct muster_started_call *call)
{
    if (call->on_device) {
        muster_device_call_release(call->device);
    }
}
