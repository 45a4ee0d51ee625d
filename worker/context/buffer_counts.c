/* Adds up the lengths of the ranks' lists of buffers. */
#include "worker/context/buffer_counts.h"

#include <assert.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/context/local_work.h"

/* From counts[0] to counts[1]. */
static struct muster_request exchange_of(const struct muster_request *call, uint64_t *counts)
{
    counts[0] = call->buffer_count;
    return (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                   .in = &counts[0],
                                   .out = &counts[1],
                                   .count = 1,
                                   .type = MUSTER_UINT64,
                                   .op = MUSTER_SUM,
                                   .counts_alone = true,
                                   .untuned = true,
                                   .deadline_ns = call->deadline_ns,
                                   .priority = call->priority};
}

muster_status muster_context_count_buffers(struct muster_context *context,
                                           const struct muster_request *request,
                                           uint32_t *ret_suspect, uint64_t *ret_all)
{
    uint64_t counts[MUSTER_BUFFER_COUNTS_SIZE];
    const struct muster_request exchange = exchange_of(request, counts);
    struct muster_cached_operation *cached;
    TRY(muster_context_find(context, &exchange, &cached));
    muster_status status = muster_context_launch(context, &exchange, cached, 0, ret_suspect);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s, before it the numbers of buffers",
                                   muster_collective_name(request->collective));
    }
    *ret_all = counts[1];
    return MUSTER_OK;
}

muster_status muster_buffer_counts_make(const struct muster_context *context,
                                        struct muster_operation **ret_operation,
                                        struct muster_launch *ret_launch)
{
    const struct muster_request call = {.buffer_count = 1};
    uint64_t counts[MUSTER_BUFFER_COUNTS_SIZE];
    const struct muster_request exchange = exchange_of(&call, counts);
    const struct muster_plan plan = {.collective = MUSTER_ALLREDUCE,
                                     .topology = &context->topology,
                                     .rank = context->rank,
                                     .count = 1};
    struct muster_request_key key; /* it has no bounds */
    struct muster_schedule schedule;
    size_t algorithm;
    TRY(muster_algorithm_find(MUSTER_ALLREDUCE, "recursive_doubling", &algorithm));
    TRY(muster_request_key(&exchange, context->topology.ranks, &key));
    TRY(muster_request_check(&key, context->rank, context->topology.ranks, ret_launch));
    TRY(muster_schedule_generate(algorithm, &plan, &schedule));
    assert(schedule.scratch_count <= MUSTER_BUFFER_COUNTS_SIZE - 2);
    ret_launch->call.algorithm = (uint32_t)algorithm;
    return muster_operation_create(context->fabric, &schedule, context->ranks, ret_operation);
}

void muster_buffer_counts_bind(const struct muster_request *request,
                               uint64_t counts[MUSTER_BUFFER_COUNTS_SIZE],
                               struct muster_launch *launch)
{
    const struct muster_request exchange = exchange_of(request, counts);
    launch->in = exchange.in;
    launch->out = exchange.out;
    launch->scratch = &counts[2];
    launch->priority = exchange.priority;
    launch->reduction = muster_local_reduction(&exchange);
    launch->call.prescale = launch->reduction.prescale;
    launch->call.postscale = launch->reduction.postscale;
}
