/*
 * Launches the operation of a request: gives it a number, prepares its input, runs it, finishes its
 * output, and returns the status with an error text that names the call.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/base/epoch.h"
#include "worker/context/context_parts.h"
#include "worker/context/device_group.h"
#include "worker/context/device_merge.h"
#include "worker/context/local_work.h"
#include "worker/device/devices.h"
#include "worker/trace/timeline.h"

void muster_context_trace(const struct muster_context *context, const struct muster_launch *launch,
                          int64_t started_ns)
{
    struct muster_timeline *timeline = muster_fabric_timeline(context->fabric);
    if (timeline == NULL) {
        return;
    }
    const struct muster_buffer_sizes *sizes = &launch->sizes;
    const struct muster_timeline_event span = {
        .stage = MUSTER_TIMELINE_CALL,
        .peer = MUSTER_TIMELINE_NO_PEER,
        .start_ns = started_ns,
        .bytes = sizes->in_bytes > sizes->out_bytes ? sizes->in_bytes : sizes->out_bytes,
        .sequence = launch->sequence,
        .context = launch->context,
        .name = muster_collective_name(launch->shape.collective),
        .algorithm = launch->call.algorithm};
    muster_timeline_add(timeline, &span);
}

muster_status muster_context_prepare(const struct muster_context *context,
                                     const struct muster_request *request,
                                     const struct muster_cached_operation *cached,
                                     struct muster_scratch *scratch,
                                     struct muster_launch *ret_launch)
{
    struct muster_launch *launch = ret_launch;
    uint64_t scratch_bytes = muster_scratch_aligned(cached->scratch_bytes);
    uint64_t packs_bytes = muster_scratch_aligned(cached->packs_bytes);
    *launch = cached->launch;
    if (request->contributions != 0) {
        launch->contributions = request->contributions;
    }
    launch->generation = context->generation;
    launch->context = context->number;
    launch->deadline_ns = request->deadline_ns;
    launch->priority = request->priority;
    launch->reduction = muster_local_reduction(request);
    if (muster_collective_reduces(launch->shape.collective)) {
        launch->call.prescale = launch->reduction.prescale;
        launch->call.postscale = launch->reduction.postscale;
    }
    TRY(muster_scratch_reserve(
        scratch, scratch_bytes + packs_bytes +
                     muster_local_scratch_bytes(request, &cached->order_of_blocks, launch)));
    launch->scratch = scratch->memory;
    launch->packs = scratch->memory + scratch_bytes;
    muster_local_begin(request, &cached->order_of_blocks, (char *)launch->packs + packs_bytes,
                       launch);
    return MUSTER_OK;
}

/* An operation that runs by messages is announced in the memory that the ranks share: a rank that
 * disagrees may wait there, and has to find out. */
static muster_status run(struct muster_context *context,
                         const struct muster_cached_operation *cached,
                         const struct muster_launch *launch, uint32_t *ret_suspect)
{
    if (context->shared.memory != NULL && cached->method == 0) {
        TRY(muster_operation_group_announce(&context->shared.group, launch, ret_suspect));
    }
    muster_status status = muster_operation_run(cached->operation, launch, ret_suspect);
    if (context->host.memory != NULL) {
        const struct muster_group_ops *groups = context->host.group.device->groups;
        if (status != MUSTER_OK && status != MUSTER_INVALID) {
            groups->withdraw(context->host.memory, MUSTER_PART_SEQUENCE(launch->sequence + 1, 0));
        }
        groups->leave(context->host.memory, launch->sequence);
    }
    return status;
}

/* After a failure that the other ranks may not share, their operations and this rank's may no
 * longer have the same numbers, so the context cannot be used any more. */
static muster_status fail(struct muster_context *context, const struct muster_launch *launch,
                          muster_status status)
{
    (void)muster_error_prefix(status, "%s #%llu (context %s, generation %llu)",
                              muster_collective_name(launch->shape.collective),
                              (unsigned long long)launch->sequence, context->name,
                              (unsigned long long)muster_epoch_shown(context->generation));
    if (status == MUSTER_INVALID) {
        return status; /* the operation failed on all ranks alike */
    }
    context->broken = status == MUSTER_RETRY ? MUSTER_REJOIN : status;
    (void)snprintf(context->broken_text, sizeof context->broken_text, "%s", muster_last_error());
    return context->broken;
}

/*
 * Buffers are memory of the host; or `device` says which are a device's that the links read, or are
 * moved; it may be NULL.
 *
 * The order: memory is reserved first, because the other ranks wait for an operation as soon as it
 * has a number. Then this rank's own buffers are gathered, which needs no other rank. Then the
 * operation gets its number and runs. Results are finished (averaged, scaled, copied to further
 * buffers) only after it has succeeded, so that progress is counted for a result that is there.
 */
static muster_status launch_with(struct muster_context *context,
                                 const struct muster_request *request,
                                 const struct muster_cached_operation *cached,
                                 struct muster_device_call *device, uint8_t flags,
                                 uint32_t *ret_suspect)
{
    int64_t started_ns = muster_timeline_clock(muster_fabric_timeline(context->fabric));
    struct muster_launch launch;
    TRY(muster_context_prepare(context, request, cached, &context->scratch, &launch));
    launch.call.flags |= flags;
    if (device != NULL) {
        muster_device_call_bind(device, &launch);
    }
    launch.sequence = ++context->sequence;
    muster_status status = run(context, cached, &launch, ret_suspect);
    if (status == MUSTER_OK && (launch.moves == NULL || launch.moves->out == NULL)) {
        status = launch.out_memory != NULL
                     ? muster_device_call_finish(&launch)
                     : muster_local_end(request, &cached->order_of_blocks, &launch);
    }
    if (status != MUSTER_OK) {
        return fail(context, &launch, status);
    }
    if (flags == 0 && device == NULL) {
        muster_repeated_call_note(context, request, cached, &launch);
    }
    atomic_fetch_add(&context->progress, 1);
    muster_context_trace(context, &launch, started_ns);
    return MUSTER_OK;
}

muster_status muster_context_launch_again(struct muster_context *context,
                                          const struct muster_request *request,
                                          uint32_t *ret_suspect)
{
    struct muster_repeated_call *repeated = &context->repeated;
    repeated->launch.deadline_ns = request->deadline_ns;
    repeated->launch.sequence = ++context->sequence;
    muster_status status =
        muster_operation_run(repeated->cached->operation, &repeated->launch, ret_suspect);
    if (status != MUSTER_OK) {
        return fail(context, &repeated->launch, status);
    }
    repeated->launch.repeats = true;
    atomic_fetch_add_explicit(&context->progress, 1, memory_order_relaxed);
    return MUSTER_OK;
}

/* Memory of a device --------------------------------------------------------------------------- */

/* One input that is neither scaled, copied in another order nor compressed, over links that read
 * memory of a device. */
bool muster_context_may_be_direct(const struct muster_context *context,
                                  const struct muster_request *request,
                                  const struct muster_cached_operation *cached)
{
    bool scales = muster_request_prescale(request) != 1;
    return cached->operation != NULL && context->shared.memory == NULL && !cached->has_host_steps &&
           request->buffer_count == 0 && !scales && cached->packs_bytes == 0 &&
           !muster_operation_order_copies(&cached->order_of_blocks) &&
           muster_operation_reads_devices(cached->operation, context->generation);
}

/* One input and one output, as the schedule has them. A kept input gets no results that are
 * finished while the operation may still fail. */
bool muster_context_may_move(const struct muster_request *request,
                             const struct muster_cached_operation *cached)
{
    const struct muster_reduction reduction = muster_local_reduction(request);
    if (request->keep_input && muster_collective_reduces(request->collective) &&
        muster_reduction_has_finish(&reduction, cached->launch.contributions)) {
        return false;
    }
    return cached->operation != NULL && request->buffer_count == 0 && !request->no_buffers &&
           request->ranges == NULL && muster_request_prescale(request) == 1 &&
           cached->packs_bytes == 0 && !muster_operation_order_copies(&cached->order_of_blocks);
}

/* Not inlined: the call is some kilobytes of stack that other calls do not need. */
static __attribute__((noinline)) muster_status
launch_on_device(struct muster_context *context, const struct muster_request *request,
                 const struct muster_cached_operation *cached, uint8_t flags, uint32_t *ret_suspect)
{
    struct muster_timeline *timeline = muster_fabric_timeline(context->fabric);
    struct muster_device_merge merge;
    TRY(muster_device_merge_begin(&merge, request, &cached->launch, timeline));
    const struct muster_request *merged = &merge.request;
    bool direct = cached->on_device || muster_context_may_be_direct(context, merged, cached);
    struct muster_device_call call = {.direct = direct,
                                      .in_order = cached->on_device,
                                      .may_move = muster_context_may_move(merged, cached),
                                      .timeline = timeline};
    muster_status status =
        muster_device_call_begin(&call, &context->staging, merged, &cached->launch);
    if (status == MUSTER_OK) {
        muster_device_group_want(context, merged, &call.pairs[0]);
        status = launch_with(context, &call.request, cached, &call, flags, ret_suspect);
        if (call.launch_moves.failed) {
            muster_device_room_abandon(&context->staging);
        }
        TRY(status);
        status = muster_device_call_end(&call);
    }
    if (status == MUSTER_OK) {
        status = muster_device_merge_end(&merge);
    }
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(status, "%s (context %s)",
                                     muster_collective_name(request->collective), context->name);
}

muster_status muster_context_launch(struct muster_context *context,
                                    const struct muster_request *request,
                                    const struct muster_cached_operation *cached, uint8_t flags,
                                    uint32_t *ret_suspect)
{
    return muster_request_is_on_device(request)
               ? launch_on_device(context, request, cached, flags, ret_suspect)
               : launch_with(context, request, cached, NULL, flags, ret_suspect);
}
