/*
 * Calls while it is being found out which algorithm does them fastest. What decides is what all
 * members have in common: the calls that have succeeded, in their order, and what the members told
 * each other. Times are a member's own until then.
 *
 * Such calls say so (MUSTER_CALL_TUNED): one that another member makes in another way, by naming
 * an algorithm for example, fails on all of them even where both come to the same one, and so
 * counts nowhere.
 */
#include <stdlib.h>

#include "collectives/reduce/float_environment.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"

/* The members tell each other what the calls took. All come here before the same call. */
static muster_status exchange_times(struct muster_context *context,
                                    const struct muster_request *call,
                                    struct muster_call_class *call_class, uint32_t *ret_suspect)
{
    AUTO_FLOAT_ENVIRONMENT(); /* all members must judge alike */
    float values[MUSTER_AUTOTUNE_VALUES_MAX];
    float exchanged[MUSTER_AUTOTUNE_VALUES_MAX];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = values,
                                           .out = exchanged,
                                           .count =
                                               muster_autotune_run_values(call_class->run, values),
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_MAX,
                                           .algorithm = "recursive_doubling",
                                           .deadline_ns = call->deadline_ns};
    struct muster_asked asked;
    struct muster_kept *kept;
    size_t algorithm;
    TRY(muster_context_check(context, &request, &asked));
    TRY(muster_context_find(context, &request, &asked, &kept));
    muster_status status = muster_context_run_numbered(context, &request, &asked, kept,
                                                       MUSTER_CALL_TUNED, ret_suspect);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s, before it an agreement on its algorithm",
                                   muster_collective_name(call->collective));
    }
    if (muster_autotune_run_decide(call_class->run, exchanged, &algorithm)) {
        muster_tuning_decide(call_class, algorithm);
    }
    return MUSTER_OK;
}

static muster_status begin_run(struct muster_context *context, const struct muster_plan *plan,
                               size_t predicted, struct muster_call_class *call_class)
{
    AUTO_FLOAT_ENVIRONMENT();
    struct muster_autotune_run *run = malloc(sizeof *run);
    if (run == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to try algorithms");
    }
    muster_status status = muster_autotune_run_init(
        run, predicted, plan, context->key->element_size_bytes, &context->choices.model);
    if (status != MUSTER_OK) {
        free(run);
        return status;
    }
    call_class->run = run;
    return MUSTER_OK;
}

/* A call that counts: with the algorithm whose turn it is. */
static muster_status run_candidate(struct muster_context *context,
                                   const struct muster_request *request,
                                   const struct muster_asked *asked,
                                   struct muster_call_class *call_class, uint32_t *ret_suspect)
{
    struct muster_autotune_run *run = call_class->run;
    size_t algorithm = muster_autotune_run_next(run);
    struct muster_kept *kept;
    TRY(muster_context_find_with(context, request, asked, algorithm, &kept));
    int64_t start_ns = muster_clock_ns();
    TRY(muster_context_run_numbered(context, request, asked, kept, MUSTER_CALL_TUNED, ret_suspect));
    muster_autotune_run_record(run, (double)(muster_clock_ns() - start_ns) / 1e3);
    /* Not before: it is known now that all members have come here. The analyzer does not see that
     * MUSTER_OK means that there is a trial. */
    if (run->count == 1) { /* NOLINT(clang-analyzer-core.NullDereference) */
        muster_tuning_decide(call_class, algorithm);
    }
    return MUSTER_OK;
}

muster_status muster_context_run_tuned(struct muster_context *context,
                                       const struct muster_request *request,
                                       const struct muster_asked *asked, struct muster_kept *kept,
                                       uint32_t *ret_suspect)
{
    const struct muster_plan plan = muster_context_plan(context, asked);
    uint32_t size_bytes = context->key->element_size_bytes;
    struct muster_call_class *call_class = muster_tuning_find(&context->tuning, &plan, size_bytes);
    if (call_class != NULL && call_class->count == plan.count) {
        if (call_class->run == NULL) {
            TRY(begin_run(context, &plan, kept->algorithm, call_class));
        } else if (muster_autotune_run_is_round_over(call_class->run)) {
            TRY(exchange_times(context, request, call_class, ret_suspect));
        }
        if (!call_class->decided) {
            return run_candidate(context, request, asked, call_class, ret_suspect);
        }
        TRY(muster_context_find(context, request, asked, &kept));
        return muster_context_run_numbered(context, request, asked, kept, 0, ret_suspect);
    }
    TRY(muster_context_run_numbered(context, request, asked, kept, MUSTER_CALL_TUNED, ret_suspect));
    if (call_class == NULL) {
        muster_tuning_add(&context->tuning, &plan, size_bytes);
    }
    return MUSTER_OK;
}
