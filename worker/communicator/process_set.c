/* The context of a process set: agreed on, created, and set up. */
#include "worker/communicator/process_set.h"

#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/communicator/set_lists.h"
#include "worker/communicator/set_numbers.h"

/* With figures that are the same on all members. */
static muster_status set_up(struct muster_communicator *communicator,
                            const struct muster_set_terms *terms, struct muster_context *context,
                            uint32_t *ret_suspect)
{
    static const struct muster_tuned_list nothing;
    muster_context_set_model(context, &terms->model);
    TRY(muster_context_share_memory(context, muster_clock_after_ms(communicator->timeout_ms),
                                    ret_suspect));
    muster_context_tune(context, terms->autotunes ? &nothing : NULL);
    return MUSTER_OK;
}

static muster_status create(struct muster_communicator *communicator,
                            const struct muster_set_exchange *set,
                            const struct muster_set_terms *terms, uint32_t number,
                            struct muster_context **ret_context, uint32_t *ret_suspect)
{
    struct muster_context *context = NULL;
    TRY(muster_communicator_create_context(communicator, set->name, number, set->members,
                                           set->count, &context));
    muster_status status = set_up(communicator, terms, context, ret_suspect);
    if (status != MUSTER_OK) {
        muster_context_destroy(context);
        return status;
    }
    *ret_context = context;
    return MUSTER_OK;
}

static struct muster_set_terms own_terms(struct muster_communicator *communicator)
{
    struct muster_set_terms terms = {0};
    muster_communicator_copy_model(communicator, &terms.model, &terms.autotunes);
    return terms;
}

muster_status muster_communicator_create_set(struct muster_communicator *communicator,
                                             struct muster_set_exchange exchange,
                                             uint8_t free_candidates, uint32_t *ret_candidate,
                                             struct muster_context **ret_context,
                                             uint32_t *ret_suspect)
{
    struct muster_set_terms terms = own_terms(communicator);
    uint32_t candidates[MUSTER_SET_CANDIDATES];
    terms.free_candidates = free_candidates;
    exchange.fabric = communicator->fabric;
    exchange.generation = communicator->generation;
    exchange.deadline_ns = muster_clock_after_ms(communicator->timeout_ms);
    muster_set_lists_remember(communicator->set_lists, exchange.name, exchange.creation,
                              exchange.members, exchange.count);
    muster_status status = muster_set_agree(&exchange, &terms, ret_suspect);
    if (status == MUSTER_INVALID) {
        muster_set_lists_explain(communicator->set_lists, exchange.name, exchange.creation);
    }
    TRY(status);
    muster_set_candidates(exchange.name, exchange.creation, candidates);
    TRY(create(communicator, &exchange, &terms, candidates[terms.candidate], ret_context,
               ret_suspect));
    *ret_candidate = terms.candidate;
    return MUSTER_OK;
}

muster_status muster_communicator_keep_set(struct muster_communicator *communicator,
                                           const char *name, uint32_t number,
                                           const uint32_t *members, uint32_t count,
                                           struct muster_context **ret_context,
                                           uint32_t *ret_suspect)
{
    const struct muster_set_exchange set = {.name = name, .members = members, .count = count};
    const struct muster_set_terms terms = own_terms(communicator);
    *ret_suspect = UINT32_MAX;
    return create(communicator, &set, &terms, number, ret_context, ret_suspect);
}
