/*
 * Autotuning: the first calls of a size class try the algorithms that are predicted to be fast. All
 * ranks decide alike, because they decide by what they have in common: the calls that have
 * succeeded, in their order, and the times that they have exchanged.
 *
 * Such calls carry the flag MUSTER_CALL_TUNED. If another rank makes the call in another
 * way, for example by naming an algorithm, the call fails on all ranks, even if the algorithm is
 * the same; so it counts on none.
 */
#include <stdlib.h>

#include "collectives/reduce/float_environment.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"

/* Exchanges what the calls of the round took. All ranks do so before the same call. */
static muster_status exchange_times(struct muster_context *context,
                                    const struct muster_request *call,
                                    struct muster_call_class *call_class, uint32_t *ret_suspect)
{
    AUTO_FLOAT_ENVIRONMENT(); /* all ranks must decide alike */
    float mine[MUSTER_AUTOTUNE_VALUES_MAX];
    float slowest[MUSTER_AUTOTUNE_VALUES_MAX];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = mine,
                                           .out = slowest,
                                           .count =
                                               muster_autotune_run_values(call_class->run, mine),
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_MAX,
                                           .algorithm = "recursive_doubling",
                                           .deadline_ns = call->deadline_ns};
    struct muster_cached_operation *cached;
    size_t algorithm;
    TRY(muster_context_find(context, &request, &cached));
    muster_status status =
        muster_context_launch(context, &request, cached, MUSTER_CALL_TUNED, ret_suspect);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s, before it an agreement on its algorithm",
                                   muster_collective_name(call->collective));
    }
    if (muster_autotune_run_decide(call_class->run, slowest, &algorithm)) {
        muster_tuning_decide(call_class, algorithm);
    }
    return MUSTER_OK;
}

static muster_status begin_run(struct muster_context *context, const struct muster_plan *plan,
                               const struct muster_cached_operation *predicted,
                               struct muster_call_class *call_class)
{
    AUTO_FLOAT_ENVIRONMENT();
    struct muster_autotune_run *run = malloc(sizeof *run);
    if (run == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to try algorithms");
    }
    muster_status status = muster_autotune_run_init(
        run, predicted->algorithm, plan, predicted->element_size_bytes, &context->choices.model);
    if (status != MUSTER_OK) {
        free(run);
        return status;
    }
    call_class->run = run;
    return MUSTER_OK;
}

/* A call whose time counts, with the algorithm that is being tried. */
static muster_status time_call(struct muster_context *context, const struct muster_request *request,
                               struct muster_call_class *call_class, uint32_t *ret_suspect)
{
    struct muster_autotune_run *run = call_class->run;
    size_t algorithm = muster_autotune_run_next(run);
    struct muster_cached_operation *cached;
    TRY(muster_context_find_with(context, request, algorithm, &cached));
    int64_t start_ns = muster_clock_ns();
    TRY(muster_context_launch(context, request, cached, MUSTER_CALL_TUNED, ret_suspect));
    muster_autotune_run_record(run, (double)(muster_clock_ns() - start_ns) / 1e3);
    /* Only after the call: its success shows that all ranks have come here. The analyzer does not
     * see that MUSTER_OK means that there is a run. */
    if (run->count == 1) { /* NOLINT(clang-analyzer-core.NullDereference) */
        muster_tuning_decide(call_class, algorithm);
    }
    return MUSTER_OK;
}

muster_status muster_context_launch_tuned(struct muster_context *context,
                                          const struct muster_request *request,
                                          struct muster_cached_operation *cached,
                                          uint32_t *ret_suspect)
{
    const struct muster_plan plan = muster_context_plan(context, cached);
    size_t size_bytes = cached->element_size_bytes;
    struct muster_call_class *call_class = muster_tuning_find(&context->tuning, &plan, size_bytes);
    if (call_class == NULL || call_class->count != plan.count) {
        TRY(muster_context_launch(context, request, cached, MUSTER_CALL_TUNED, ret_suspect));
        if (call_class == NULL) {
            muster_tuning_add(&context->tuning, &plan, size_bytes);
        }
        return MUSTER_OK;
    }
    if (call_class->run == NULL) {
        TRY(begin_run(context, &plan, cached, call_class));
    } else if (muster_autotune_run_is_round_over(call_class->run)) {
        TRY(exchange_times(context, request, call_class, ret_suspect));
    }
    if (!call_class->decided) {
        return time_call(context, request, call_class, ret_suspect);
    }
    TRY(muster_context_find(context, request, &cached));
    return muster_context_launch(context, request, cached, 0, ret_suspect);
}
