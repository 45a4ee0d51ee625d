/* Calls that repeat the one before: which ones may. */
#include "worker/context/repeated_call.h"

#include <stdio.h>

#include "collectives/reduce/reduce.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

static bool is_small(const struct muster_launch *launch)
{
    return launch->sizes.in_bytes <= MUSTER_SMALL_BUFFER_BYTES &&
           launch->sizes.out_bytes <= MUSTER_SMALL_BUFFER_BYTES;
}

/* The arguments are what they were only if none of them is a list of the caller's. */
static bool has_lists(const struct muster_request *request)
{
    return request->ranges != NULL || request->in_ranges != NULL || request->out_ranges != NULL ||
           request->in_counts != NULL || request->out_counts != NULL || request->buffer_count > 0 ||
           request->no_buffers || request->counts_alone || request->op == MUSTER_USER;
}

static bool has_local_work(const struct muster_cached_operation *cached,
                           const struct muster_launch *launch)
{
    return cached->packs_bytes > 0 || muster_operation_order_copies(&cached->order_of_blocks) ||
           launch->reduction.prescale != 1 ||
           (muster_collective_reduces(launch->shape.collective) &&
            muster_reduction_has_finish(&launch->reduction, launch->contributions));
}

/* An operation that runs by messages announces itself in memory that ranks share, if they do. */
static bool is_announced(const struct muster_context *context,
                         const struct muster_cached_operation *cached)
{
    return cached->method == 0 && (context->shared.memory != NULL || context->host.memory != NULL);
}

void muster_repeated_call_note(struct muster_context *context, const struct muster_request *request,
                               const struct muster_cached_operation *cached,
                               const struct muster_launch *launch)
{
    if (is_announced(context, cached) || cached->autotuning || !is_small(launch) ||
        has_lists(request) || has_local_work(cached, launch) ||
        muster_fabric_timeline(context->fabric) != NULL || muster_devices_active()) {
        return;
    }
    struct muster_repeated_call *repeated = &context->repeated;
    *repeated =
        (struct muster_repeated_call){.cached = cached, .request = *request, .launch = *launch};
    if (request->algorithm != NULL) {
        (void)snprintf(repeated->algorithm, sizeof repeated->algorithm, "%s", request->algorithm);
        repeated->request.algorithm = repeated->algorithm;
    }
}
