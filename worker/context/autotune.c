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
static muster_status confer(struct muster_context *context, const struct muster_request *call,
                            struct muster_size_class *kind, uint32_t *ret_suspect)
{
    AUTO_FLOAT_ENVIRONMENT(); /* all members must judge alike */
    float said[MUSTER_AUTOTUNE_WORDS_MAX];
    float heard[MUSTER_AUTOTUNE_WORDS_MAX];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = said,
                                           .out = heard,
                                           .count = muster_autotune_run_say(kind->trial, said),
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
    if (muster_autotune_run_judge(kind->trial, heard, &algorithm)) {
        muster_tuning_settle(kind, algorithm);
    }
    return MUSTER_OK;
}

static muster_status begin_trial(struct muster_context *context, const struct muster_plan *plan,
                                 size_t predicted, struct muster_size_class *kind)
{
    AUTO_FLOAT_ENVIRONMENT();
    struct muster_autotune_run *trial = malloc(sizeof *trial);
    if (trial == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to try algorithms");
    }
    muster_status status = muster_autotune_run_init(
        trial, predicted, plan, context->key->element_size_bytes, &context->choices.model);
    if (status != MUSTER_OK) {
        free(trial);
        return status;
    }
    kind->trial = trial;
    return MUSTER_OK;
}

/* A call that counts: with the algorithm whose turn it is. */
static muster_status run_trial(struct muster_context *context, const struct muster_request *request,
                               const struct muster_asked *asked, struct muster_size_class *kind,
                               uint32_t *ret_suspect)
{
    struct muster_autotune_run *trial = kind->trial;
    size_t algorithm = muster_autotune_run_next(trial);
    struct muster_kept *kept;
    TRY(muster_context_find_with(context, request, asked, algorithm, &kept));
    int64_t start_ns = muster_clock_ns();
    TRY(muster_context_run_numbered(context, request, asked, kept, MUSTER_CALL_TUNED, ret_suspect));
    muster_autotune_run_note(trial, (double)(muster_clock_ns() - start_ns) / 1e3);
    /* Not before: it is known now that all members have come here. The analyzer does not see that
     * MUSTER_OK means that there is a trial. */
    if (trial->count == 1) { /* NOLINT(clang-analyzer-core.NullDereference) */
        muster_tuning_settle(kind, algorithm);
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
    struct muster_size_class *kind = muster_tuning_find(&context->tuning, &plan, size_bytes);
    if (kind != NULL && kind->count == plan.count) {
        if (kind->trial == NULL) {
            TRY(begin_trial(context, &plan, kept->algorithm, kind));
        } else if (muster_autotune_run_is_due(kind->trial)) {
            TRY(confer(context, request, kind, ret_suspect));
        }
        if (!kind->settled) {
            return run_trial(context, request, asked, kind, ret_suspect);
        }
        TRY(muster_context_find(context, request, asked, &kept));
        return muster_context_run_numbered(context, request, asked, kept, 0, ret_suspect);
    }
    TRY(muster_context_run_numbered(context, request, asked, kept, MUSTER_CALL_TUNED, ret_suspect));
    if (kind == NULL) {
        muster_tuning_add(&context->tuning, &plan, size_bytes);
    }
    return MUSTER_OK;
}
