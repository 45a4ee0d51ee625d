/* Steps and messages of an operation on memory of a GPU: copies, and reductions by blocks in memory
 * of the host. */
#include "worker/executor/executor_gpu.h"

#include "collectives/reduce/reduce.h"
#include "worker/base/cleanup.h"
#include "worker/device/cuda/gpu.h"
#include "worker/trace/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 128 * 1024 }; /* a segment of a link over RDMA */

/* Bytes of a buffer, or of arrived data. */
struct place {
    char *at;
    const struct muster_gpu_memory *gpu; /* NULL: memory of the host */
};

static struct place place_of(const struct muster_operation *operation, uint8_t buffer,
                             uint64_t offset)
{
    char *base = operation->buffers[buffer];
    return (struct place){.at = base + offset * operation->element_size_bytes,
                          .gpu = operation->gpu[buffer]};
}

static struct place advance(struct place place, uint64_t offset_bytes)
{
    place.at += offset_bytes;
    return place;
}

/* At least one of the two is memory of a GPU. */
static muster_status copy(const struct muster_operation *operation, struct place to,
                          struct place from, size_t size_bytes)
{
    int64_t started_ns = muster_timeline_clock(operation->timeline);
    TRY(muster_gpu_copy(to.gpu != NULL ? to.gpu : from.gpu, to.at, from.at, size_bytes));
    muster_timeline_add_local(
        operation->timeline, MUSTER_TIMELINE_GPU_COPY, started_ns, size_bytes,
        (struct muster_timeline_operation){.sequence = operation->launch->sequence,
                                           .context = operation->launch->context});
    return MUSTER_OK;
}

/* *ret_host: the data where the CPU can read it, which is `block` if `from` is memory of a GPU. */
static muster_status copy_to_host(const struct muster_operation *operation, struct place from,
                                  struct place block, size_t size_bytes, struct place *ret_host)
{
    *ret_host = from.gpu != NULL ? block : from;
    return from.gpu != NULL ? copy(operation, block, from, size_bytes) : MUSTER_OK;
}

/* target = left op right; target and left may be the same. */
static muster_status combine(const struct muster_operation *operation, struct place target,
                             struct place left, struct place right, uint64_t size_bytes)
{
    size_t element_bytes = operation->element_size_bytes;
    size_t most = BLOCK_BYTES / element_bytes * element_bytes;
    AUTO_FREE char *blocks = malloc(2 * (size_t)BLOCK_BYTES);
    if (blocks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to reduce what is in memory of a GPU");
    }
    const struct place block = {.at = blocks};
    const struct place second = {.at = blocks + BLOCK_BYTES};
    for (uint64_t done = 0; done < size_bytes; done += most) {
        size_t size = size_bytes - done < most ? (size_t)(size_bytes - done) : most;
        struct place to = advance(target, done);
        struct place result = to.gpu != NULL ? block : to;
        struct place one;
        struct place other;
        TRY(copy_to_host(operation, advance(left, done), block, size, &one));
        TRY(copy_to_host(operation, advance(right, done), second, size, &other));
        muster_reduction_combine(&operation->launch->reduction, result.at, one.at, other.at,
                                 size / element_bytes);
        if (to.gpu != NULL) {
            TRY(copy(operation, to, result, size));
        }
    }
    return MUSTER_OK;
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
    struct place target = advance(place_of(operation, step->target, step->at), offset_bytes);
    const struct place arrived = {.at = (char *)data}; /* only read */
    muster_status status;
    if (transfer->to_gpu) {
        status = muster_gpu_copy(target.gpu, target.at, data, size_bytes);
    } else {
        status =
            combine(operation, target,
                    advance(place_of(operation, step->source, step->span.offset), offset_bytes),
                    arrived, size_bytes);
    }
    message->failed_copy = message->failed_copy || status != MUSTER_OK;
    if (status != MUSTER_OK && operation->gpu_reason[0] == '\0') {
        (void)snprintf(operation->gpu_reason, sizeof operation->gpu_reason, "%.120s",
                       muster_last_error());
    }
}

void muster_message_prepare_gpu(struct muster_step_message *message)
{
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    struct muster_transfer *transfer = &message->transfer;
    bool into = step->kind != MUSTER_STEP_SEND && operation->gpu[step->target] != NULL;
    message->failed_copy = false;
    if (step->kind == MUSTER_STEP_SEND) {
        transfer->gpu = operation->gpu[step->source];
    } else if (step->kind == MUSTER_STEP_RECV_REDUCE &&
               (into || operation->gpu[step->source] != NULL)) {
        transfer->consume = consume;
    } else if (into) {
        transfer->consume = consume;
        transfer->to_gpu = true;
    }
}

muster_status muster_message_check_gpu(const struct muster_step_message *message)
{
    return message->failed_copy
               ? muster_error_set(MUSTER_FATAL, "%s", message->lane->operation->gpu_reason)
               : MUSTER_OK;
}

/* Local steps --------------------------------------------------------------------------------- */

muster_status muster_operation_step_gpu(const struct muster_operation *operation,
                                        const struct muster_step *step)
{
    struct place target = place_of(operation, step->target, step->at);
    struct place source = place_of(operation, step->source, step->span.offset);
    uint64_t size_bytes = step->span.count * operation->element_size_bytes;
    if (step->kind == MUSTER_STEP_REDUCE) {
        return combine(operation, target, target, source, size_bytes);
    }
    return target.at == source.at ? MUSTER_OK : copy(operation, target, source, size_bytes);
}
