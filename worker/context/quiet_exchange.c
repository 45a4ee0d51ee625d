/* Runs small allreduces of a context beside its calls. */
#include "worker/context/quiet_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"

enum { SLICE_NS = 50 * 1000 * 1000, COPIES = 4 };

/* In the numbers of exchanges, which no call reaches. The fabric takes operations far below one
 * that was withdrawn for withdrawn, too: an exchange is withdrawn only when its context is at its
 * end. */
static const uint64_t SEQUENCE_BIT = UINT64_C(1) << 62;

/* The operation of this rank, and the shared part of its launch. */
static muster_status make(const struct muster_context *context,
                          const struct muster_request *request, struct muster_launch *ret_launch,
                          struct muster_operation **ret_operation)
{
    const struct muster_topology *topology = &context->topology;
    struct muster_request_key key; /* it has no bounds */
    struct muster_schedule schedule;
    size_t algorithm = 0;
    TRY(muster_algorithm_find(MUSTER_ALLREDUCE, "recursive_doubling", &algorithm));
    TRY(muster_request_key(request, topology->ranks, &key));
    TRY(muster_request_check(&key, context->rank, topology->ranks, ret_launch));
    const struct muster_plan plan = {.collective = MUSTER_ALLREDUCE,
                                     .topology = topology,
                                     .rank = context->rank,
                                     .count = request->count};
    TRY(muster_schedule_generate(algorithm, &plan, &schedule));
    ret_launch->call.algorithm = (uint32_t)algorithm;
    return muster_operation_create(context->fabric, &schedule, context->ranks, ret_operation);
}

/* Until it has ended, or is cancelled. */
static muster_status drive(const struct muster_quiet_exchange *exchange,
                           struct muster_operation *operation, const struct muster_launch *launch,
                           bool *awake)
{
    const struct muster_message_key key = {
        .generation = launch->generation, .sequence = launch->sequence, .context = launch->context};
    struct muster_wait_clock clock = {0};
    bool ended = false;
    muster_status status = muster_operation_start(operation, launch, awake);
    while (status == MUSTER_OK) {
        __atomic_store_n(awake, false, __ATOMIC_SEQ_CST); /* as in executor.c */
        status = muster_operation_progress(operation, &ended);
        if (status != MUSTER_OK || ended) {
            break;
        }
        if (atomic_load(exchange->cancelled)) {
            return muster_error_set(MUSTER_REJOIN, "the context is being destroyed");
        }
        status = muster_fabric_wait_in(exchange->context->fabric, &key, &clock, awake,
                                       muster_clock_ns() + SLICE_NS);
        status = status == MUSTER_RETRY ? MUSTER_OK : status;
    }
    return status;
}

muster_status muster_quiet_exchange_run(struct muster_quiet_exchange *exchange, void *values,
                                        uint64_t count, muster_type type, muster_op op)
{
    struct muster_context *context = exchange->context;
    size_t size_bytes = count * muster_type_size_bytes(type);
    AUTO_FREE char *room = malloc(COPIES * size_bytes);
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = values,
                                           .out = room,
                                           .count = count,
                                           .type = type,
                                           .op = op};
    struct muster_launch launch;
    struct muster_operation *operation = NULL;
    bool awake = false;
    if (room == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for an exchange");
    }
    TRY(make(context, &request, &launch, &operation));
    launch.generation = context->generation;
    launch.context = context->number;
    launch.sequence = SEQUENCE_BIT | ++exchange->sequence;
    launch.deadline_ns = MUSTER_NEVER;
    launch.reduction =
        (struct muster_reduction){.type = type, .op = op, .prescale = 1, .postscale = 1};
    launch.call.prescale = launch.call.postscale = 1;
    launch.in = values;
    launch.out = room;
    launch.scratch = room + size_bytes; /* for at most two areas */
    muster_status status = drive(exchange, operation, &launch, &awake);
    status = muster_operation_finish(operation, status, NULL);
    muster_operation_destroy(operation);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "an agreement of context %s", context->name);
    }
    memcpy(values, room, size_bytes);
    return MUSTER_OK;
}
