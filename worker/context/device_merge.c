/* Several buffers in one memory of a device, reduced there. */
#include "worker/context/device_merge.h"

#include "worker/base/status.h"
#include "worker/context/local_work.h"
#include "worker/device/devices.h"

/* Whether reducing two at a time rounds as the CPU does. */
static bool rounds_alike(const struct muster_request *request)
{
    bool is_short = request->type == MUSTER_FLOAT16 || request->type == MUSTER_BFLOAT16;
    return !is_short || request->buffer_count == 2 || request->op == MUSTER_MIN ||
           request->op == MUSTER_MAX;
}

/* Whether this buffer is in the same device's memory and context as the others. */
static bool is_in(const void *buffer, const struct muster_device_memory *memory)
{
    struct muster_device_memory found;
    return muster_device_find(buffer, &found) && found.device == memory->device &&
           found.context == memory->context;
}

static bool can_merge(const struct muster_request *request, const struct muster_launch *launch)
{
    const struct muster_reduction reduction = muster_local_reduction(request);
    struct muster_device_memory memory;
    if (request->buffer_count < 2 || launch->shape.collective != MUSTER_ALLREDUCE ||
        launch->keeps || launch->packing.compression != 0 || request->stream != 0 ||
        launch->sizes.in_count == 0 || reduction.prescale != 1 || !rounds_alike(request) ||
        !muster_device_find(request->outputs[0], &memory) ||
        !memory.device->reduces(&memory, &reduction)) {
        return false;
    }
    for (uint32_t i = 0; i < request->buffer_count; i++) {
        if (!is_in(request->inputs[i], &memory) || !is_in(request->outputs[i], &memory)) {
            return false;
        }
    }
    return true;
}

/* From the first input to the last, as muster_reduction_gather() does. */
static muster_status reduce_to_first(const struct muster_request *request, uint64_t count,
                                     struct muster_timeline *timeline)
{
    const struct muster_reduction reduction = muster_local_reduction(request);
    struct muster_device_memory memory;
    if (!muster_device_find(request->outputs[0], &memory)) {
        return muster_error_set(MUSTER_INVALID, "memory of a device was freed during a call");
    }
    for (uint32_t i = 1; i < request->buffer_count; i++) {
        const void *left = i == 1 ? request->inputs[0] : request->outputs[0];
        const struct muster_combination combination = {
            .reduction = &reduction,
            .target = {.at = request->outputs[0], .memory = &memory},
            .left = {.at = (char *)left, .memory = &memory},
            .right = {.at = (char *)request->inputs[i], .memory = &memory},
            .count = count,
            .timeline = timeline};
        TRY(memory.device->combine(&combination));
    }
    return MUSTER_OK;
}

muster_status muster_device_merge_begin(struct muster_device_merge *merge,
                                        const struct muster_request *request,
                                        const struct muster_launch *launch,
                                        struct muster_timeline *timeline)
{
    merge->original = request;
    merge->request = *request;
    merge->merged = can_merge(request, launch);
    if (merge->merged) {
        TRY(reduce_to_first(request, launch->sizes.in_count, timeline));
        merge->request.in = request->outputs[0];
        merge->request.out = request->outputs[0];
        merge->request.buffer_count = 0;
        merge->request.inputs = NULL;
        merge->request.outputs = NULL;
    }
    return MUSTER_OK;
}

muster_status muster_device_merge_end(const struct muster_device_merge *merge)
{
    const struct muster_request *of = merge->original;
    struct muster_device_memory memory;
    uint64_t size_bytes = of->count * muster_type_size_bytes(of->type);
    for (uint32_t i = 1; i < of->buffer_count && merge->merged; i++) {
        if (muster_device_find(of->outputs[i], &memory)) {
            TRY(memory.device->copy(&memory, of->outputs[i], of->outputs[0], size_bytes));
        }
    }
    return MUSTER_OK;
}
