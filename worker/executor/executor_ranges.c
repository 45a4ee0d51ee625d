/* Steps and messages of an operation whose buffers are several ranges: each is cut where one of its
 * buffers goes on in another range. Ranges have whole elements, and so have the parts. */
#include "worker/executor/executor_ranges.h"

#include "collectives/reduce/reduce.h"

static struct muster_place place_of(const struct muster_operation *operation, uint8_t buffer,
                                    uint64_t offset)
{
    const struct muster_place place = {.base = operation->buffers[buffer],
                                       .ranges = operation->ranges[buffer]};
    return muster_place_advance(place, offset * operation->element_size_bytes);
}

/* target = left op right. Target and left may be the same. */
static void combine(const struct muster_operation *operation, struct muster_place target,
                    struct muster_place left, struct muster_place right, uint64_t size_bytes)
{
    while (size_bytes > 0) {
        uint64_t size = size_bytes;
        char *to = muster_place_at(&target, &size);
        const char *one = muster_place_at(&left, &size);
        const char *other = muster_place_at(&right, &size);
        muster_reduction_combine(&operation->launch->reduction, to, one, other,
                                 size / operation->element_size_bytes);
        target = muster_place_advance(target, size);
        left = muster_place_advance(left, size);
        right = muster_place_advance(right, size);
        size_bytes -= size;
    }
}

static void consume(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                    size_t size_bytes)
{
    const struct muster_step_message *message = transfer->owner;
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    const struct muster_place arrived = {.base = (char *)data}; /* only read */
    combine(
        operation, muster_place_advance(place_of(operation, step->target, step->at), offset_bytes),
        muster_place_advance(place_of(operation, step->source, step->span.offset), offset_bytes),
        arrived, size_bytes);
}

/* In place of the function that the executor has set for a kept output of one buffer. */
static void consume_kept(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                         size_t size_bytes)
{
    const struct muster_step_message *message = transfer->owner;
    const struct muster_step *step = message->step;
    const struct muster_place target = place_of(message->lane->operation, step->target, step->at);
    const struct muster_place arrived = {.base = (char *)data}; /* only read */
    muster_place_copy(muster_place_advance(target, offset_bytes), arrived, size_bytes);
}

/* Fills data, or ranges if the place lies in more than one. */
static void set_data(struct muster_transfer *transfer, struct muster_place place)
{
    uint64_t size = transfer->size_bytes;
    if (size == 0) {
        return;
    }
    transfer->data = muster_place_at(&place, &size);
    if (size < transfer->size_bytes) {
        transfer->data = NULL;
        transfer->ranges = place.ranges;
        transfer->ranges_at_bytes = place.at_bytes;
    }
}

void muster_message_prepare_ranges(struct muster_step_message *message)
{
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    if (step->kind == MUSTER_STEP_SEND) {
        set_data(&message->transfer, place_of(operation, step->source, step->span.offset));
    } else if (step->kind == MUSTER_STEP_RECV_REDUCE) {
        message->transfer.consume = consume;
    } else if (message->transfer.consume != NULL) {
        message->transfer.consume = consume_kept;
    } else {
        set_data(&message->transfer, place_of(operation, step->target, step->at));
    }
}

void muster_operation_step_in_ranges(const struct muster_operation *operation,
                                     const struct muster_step *step)
{
    struct muster_place target = place_of(operation, step->target, step->at);
    struct muster_place source = place_of(operation, step->source, step->span.offset);
    uint64_t size_bytes = step->span.count * operation->element_size_bytes;
    if (step->kind == MUSTER_STEP_REDUCE) {
        combine(operation, target, target, source, size_bytes);
    } else {
        muster_place_copy(target, source, size_bytes);
    }
}
