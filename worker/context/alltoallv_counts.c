/*
 * All members' counts, for an alltoallv by an algorithm in which members pass on blocks of others:
 * the members tell each other what they have for whom, and what they expect, by one allgather in
 * the same context before the call. So all see alike whether it fits.
 */
#include "worker/context/alltoallv_counts.h"

#include "worker/context/context_parts.h"

/* Whether it is named or forced; what is chosen by cost never is one. */
static muster_status find_use(const struct muster_context *context,
                              const struct muster_request *request, bool *ret_uses)
{
    size_t algorithm;
    *ret_uses = false;
    if (request->collective != MUSTER_ALLTOALLV ||
        context->topology.ranks > MUSTER_ALL_COUNTS_RANKS_MAX) {
        return MUSTER_OK;
    }
    if (request->algorithm != NULL) {
        TRY(muster_algorithm_find(request->collective, request->algorithm, &algorithm));
        *ret_uses = muster_algorithm_uses_all_counts(algorithm);
    } else {
        const struct muster_algorithm_override *override = &context->choices.override;
        *ret_uses = override->by_collective[request->collective].is_set &&
                    muster_algorithm_uses_all_counts(
                        override->by_collective[request->collective].algorithm);
    }
    return MUSTER_OK;
}

static muster_status reserve(struct muster_context *context)
{
    size_t ranks = context->topology.ranks;
    if (context->counts.all == NULL) {
        context->counts.all = calloc(ranks * ranks, sizeof *context->counts.all);
    }
    if (context->counts.heard == NULL) {
        context->counts.heard = calloc(2 * ranks * (ranks + 1), sizeof *context->counts.heard);
    }
    return context->counts.all != NULL && context->counts.heard != NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "no memory for all members' counts");
}

/* What each gives must be what the other takes. */
static muster_status compare(struct muster_context *context)
{
    size_t ranks = context->topology.ranks;
    const uint64_t *heard = context->counts.heard;
    for (size_t from = 0; from < ranks; from++) {
        for (size_t to = 0; to < ranks; to++) {
            uint64_t given = heard[2 * ranks * from + to];
            uint64_t taken = heard[2 * ranks * to + ranks + from];
            if (given != taken) {
                return muster_error_set(MUSTER_INVALID,
                                        "rank %u has %llu elements for rank %u, which expects %llu",
                                        context->ranks[from], (unsigned long long)given,
                                        context->ranks[to], (unsigned long long)taken);
            }
            context->counts.all[from * ranks + to] = given;
        }
    }
    return MUSTER_OK;
}

static muster_status tell(struct muster_context *context, const struct muster_request *call,
                          uint32_t *ret_suspect)
{
    uint32_t ranks = context->topology.ranks;
    uint64_t *mine = context->counts.heard + 2 * (size_t)ranks * ranks;
    for (uint32_t i = 0; i < ranks; i++) {
        mine[i] = call->in_counts[i];
        mine[ranks + i] = call->out_counts[i];
    }
    const struct muster_request request = {.collective = MUSTER_ALLGATHER,
                                           .in = mine,
                                           .out = context->counts.heard,
                                           .count = 2 * (uint64_t)ranks,
                                           .type = MUSTER_UINT64,
                                           .algorithm = "bruck",
                                           .deadline_ns = call->deadline_ns};
    struct muster_asked asked;
    struct muster_kept *kept;
    TRY(muster_context_check(context, &request, &asked));
    TRY(muster_context_find(context, &request, &asked, &kept));
    return muster_context_run_numbered(context, &request, &asked, kept, 0, ret_suspect);
}

muster_status muster_context_learn_counts(struct muster_context *context,
                                          const struct muster_request *request,
                                          struct muster_asked *asked, uint32_t *ret_suspect)
{
    bool uses;
    TRY(find_use(context, request, &uses));
    if (!uses) {
        return MUSTER_OK;
    }
    TRY(reserve(context));
    muster_status status = tell(context, request, ret_suspect);
    if (status == MUSTER_OK) {
        status = compare(context);
    }
    asked->all_counts = context->counts.all;
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "alltoallv, before it all counts");
}

muster_status muster_context_assume_counts(struct muster_context *context,
                                           const struct muster_request *request,
                                           struct muster_asked *asked)
{
    bool uses;
    size_t ranks = context->topology.ranks;
    TRY(find_use(context, request, &uses));
    if (!uses) {
        return MUSTER_OK;
    }
    TRY(reserve(context));
    uint64_t *taken = context->key->bounds + ranks + 1;
    for (size_t from = 0; from < ranks; from++) {
        for (size_t to = 0; to < ranks; to++) {
            context->counts.all[from * ranks + to] = request->in_counts[to];
        }
        if (__builtin_add_overflow(taken[from], request->in_counts[context->rank],
                                   &taken[from + 1])) {
            return muster_error_set(MUSTER_INVALID, "alltoallv: too many elements");
        }
    }
    asked->all_counts = context->counts.all;
    return MUSTER_OK;
}
