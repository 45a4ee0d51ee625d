/* Messages and local steps whose elements are in memory of a device. */
#include "worker/executor/executor_device.h"

#include <stdio.h>

#include "worker/device/devices.h"

static struct muster_device_place place_of(const struct muster_operation *operation, uint8_t buffer,
                                           uint64_t offset)
{
    char *base = operation->buffers[buffer];
    return (struct muster_device_place){.at = base + offset * operation->element_size_bytes,
                                        .memory = operation->memories[buffer]};
}

static struct muster_timeline_operation traced(const struct muster_operation *operation)
{
    return (struct muster_timeline_operation){.sequence = operation->launch->sequence,
                                              .context = operation->launch->context};
}

/* target = left op right; target and left may be the same. At least one is on a device. */
static muster_status combine(const struct muster_operation *operation,
                             struct muster_device_place target, struct muster_device_place left,
                             struct muster_device_place right, uint64_t size_bytes)
{
    const struct muster_device_place places[] = {target, left, right};
    const struct muster_combination combination = {.reduction = &operation->launch->reduction,
                                                   .target = target,
                                                   .left = left,
                                                   .right = right,
                                                   .count =
                                                       size_bytes / operation->element_size_bytes,
                                                   .timeline = operation->timeline,
                                                   .of = traced(operation)};
    return muster_device_of_places(places, 3)->combine(&combination);
}

/* Messages ------------------------------------------------------------------------------------ */

/* One thread at a time delivers arrived data, so that the first failure can be stored without a
 * lock. */
static void consume(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                    size_t size_bytes)
{
    struct muster_step_message *message = transfer->owner;
    struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    const struct muster_device_place arrived = {.at = (char *)data}; /* only read */
    struct muster_device_place target = place_of(operation, step->target, step->at);
    muster_status status;
    target.at += offset_bytes;
    if (transfer->to_device) {
        status = target.memory->device->copy(target.memory, target.at, data, size_bytes);
    } else {
        struct muster_device_place source = place_of(operation, step->source, step->span.offset);
        source.at += offset_bytes;
        status = combine(operation, target, source, arrived, size_bytes);
    }
    message->failed_copy = message->failed_copy || status != MUSTER_OK;
    if (status != MUSTER_OK && operation->copy_reason[0] == '\0') {
        (void)snprintf(operation->copy_reason, sizeof operation->copy_reason, "%.120s",
                       muster_last_error());
    }
}

void muster_message_prepare_device(struct muster_step_message *message)
{
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    struct muster_transfer *transfer = &message->transfer;
    bool into = step->kind != MUSTER_STEP_SEND && operation->memories[step->target] != NULL;
    message->failed_copy = false;
    if (step->span.count == 0) {
        return; /* nothing is in memory of a device, as where the ranks only come together */
    }
    if (step->kind == MUSTER_STEP_SEND) {
        transfer->memory = operation->memories[step->source];
    } else if (step->kind == MUSTER_STEP_RECV_REDUCE &&
               (into || operation->memories[step->source] != NULL)) {
        transfer->consume = consume;
    } else if (into) {
        transfer->consume = consume;
        transfer->to_device = true;
    }
}

muster_status muster_message_check_device(const struct muster_step_message *message)
{
    return message->failed_copy
               ? muster_error_set(MUSTER_FATAL, "%s", message->lane->operation->copy_reason)
               : MUSTER_OK;
}

/* Local steps --------------------------------------------------------------------------------- */

muster_status muster_operation_step_device(const struct muster_operation *operation,
                                           const struct muster_step *step)
{
    struct muster_device_place target = place_of(operation, step->target, step->at);
    struct muster_device_place source = place_of(operation, step->source, step->span.offset);
    uint64_t size_bytes = step->span.count * operation->element_size_bytes;
    if (step->kind == MUSTER_STEP_REDUCE) {
        return combine(operation, target, target, source, size_bytes);
    }
    if (target.at == source.at) {
        return MUSTER_OK;
    }
    const struct muster_device_place places[] = {target, source};
    const struct muster_device *device = muster_device_of_places(places, 2);
    const struct muster_device_memory *memory =
        target.memory != NULL ? target.memory : source.memory;
    int64_t started_ns = muster_timeline_clock(operation->timeline);
    TRY(device->copy(memory, target.at, source.at, size_bytes));
    muster_timeline_add_local(operation->timeline, MUSTER_TIMELINE_DEVICE_COPY, started_ns,
                              size_bytes, traced(operation));
    return MUSTER_OK;
}
