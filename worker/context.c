/* From a call to the wire: check the request, find (or make) the operation for its shape, number
 * it, run it, and put the status and the text into the caller's terms. */
#include "worker/context.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/float_environment.h"
#include "collectives/host_memory.h"
#include "collectives/tuning.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/cores.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/context_local.h"
#include "worker/context_parts.h"

enum { SCRATCH_ALIGNMENT = 64 }; /* a cache line */

/* Making -------------------------------------------------------------------------------------- */

struct contributor {
    uint32_t order, rank;
};

static int compare_contributors(const void *left_contributor, const void *right_contributor)
{
    const struct contributor *left = left_contributor;
    const struct contributor *right = right_contributor;
    if (left->order != right->order) {
        return left->order < right->order ? -1 : 1;
    }
    return left->rank < right->rank ? -1 : 1;
}

static muster_status sort_contributors(struct muster_context *context, const uint32_t *orders,
                                       uint32_t ranks)
{
    AUTO_FREE struct contributor *contributors = calloc(ranks, sizeof *contributors);
    context->contributors = calloc(ranks, sizeof *context->contributors);
    if (contributors == NULL || context->contributors == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for context %s", context->name);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        contributors[rank] = (struct contributor){orders != NULL ? orders[rank] : rank, rank};
    }
    qsort(contributors, ranks, sizeof *contributors, compare_contributors);
    for (uint32_t i = 0; i < ranks; i++) {
        context->contributors[i] = contributors[i].rank;
    }
    return MUSTER_OK;
}

static muster_status copy_options(struct muster_context *context,
                                  const struct muster_context_options *options)
{
    const struct muster_topology *topology = options->topology;
    context->fabric = options->fabric;
    context->generation = options->generation;
    context->number = options->number;
    context->rank = options->rank;
    context->choices.model = *options->model;
    context->name = strdup(options->name);
    context->ranks = calloc(topology->ranks, sizeof *context->ranks);
    size_t bounds_bytes = MUSTER_BOUNDS_ROOM(topology->ranks) * sizeof context->key->bounds[0];
    context->key = malloc(sizeof *context->key + bounds_bytes);
    if (context->name == NULL || context->ranks == NULL || context->key == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for context %s", options->name);
    }
    memcpy(context->ranks, options->ranks, topology->ranks * sizeof *context->ranks);
    TRY(sort_contributors(context, options->orders, topology->ranks));
    return muster_topology_init_copy(topology, &context->topology);
}

muster_status muster_context_create(const struct muster_context_options *options,
                                    struct muster_context **ret_context)
{
    if (options->rank >= options->topology->ranks) {
        return muster_error_set(MUSTER_INVALID, "context %s: rank %u of %u", options->name,
                                options->rank, options->topology->ranks);
    }
    struct muster_forced forced = {0};
    if (options->algorithm != NULL) {
        TRY(muster_forced_parse(options->algorithm, &forced));
    }
    struct muster_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for context %s", options->name);
    }
    context->choices.forced = forced;
    muster_mutex_init(&context->mutex);
    muster_condition_init(&context->given_back);
    muster_kept_init(&context->kept);
    muster_status status = copy_options(context, options);
    if (status != MUSTER_OK) {
        muster_context_destroy(context);
        return status;
    }
    *ret_context = context;
    return MUSTER_OK;
}

void muster_context_destroy(struct muster_context *context)
{
    if (context == NULL) {
        return;
    }
    muster_kept_clear(&context->kept);
    muster_tuning_clear(&context->tuning);
    muster_memory_destroy(context->shared.memory);
    muster_topology_finish(&context->topology);
    pthread_cond_destroy(&context->given_back);
    pthread_mutex_destroy(&context->mutex);
    free(context->scratch);
    free(context->ranks);
    free(context->contributors);
    free(context->key);
    free(context->name);
    free(context);
}

uint32_t muster_context_rank(const struct muster_context *context)
{
    return context->rank;
}

uint32_t muster_context_size(const struct muster_context *context)
{
    return context->topology.ranks;
}

uint64_t muster_context_progress(const struct muster_context *context)
{
    return atomic_load(&context->progress);
}

/* Turns --------------------------------------------------------------------------------------- */

/* One caller at a time, and no lock held meanwhile: a user's function may run in between. */
static struct muster_context *take_turn(struct muster_context *context)
{
    AUTO_LOCK(&context->mutex);
    while (context->taken) {
        (void)muster_condition_wait(&context->given_back, &context->mutex, MUSTER_NEVER);
    }
    context->taken = true;
    return context;
}

static void give_turn(struct muster_context **context)
{
    AUTO_LOCK(&(*context)->mutex);
    (*context)->taken = false;
    pthread_cond_signal(&(*context)->given_back);
}

/* Until the scope ends. */
#define AUTO_TURN(context)                                                          \
    __attribute__((cleanup(give_turn), unused)) struct muster_context *auto_turn_ = \
        take_turn(context)

void muster_context_set_model(struct muster_context *context, const struct muster_cost_model *model)
{
    AUTO_TURN(context);
    muster_kept_clear(&context->kept);
    context->choices.model = *model;
    muster_choices_clear(&context->choices);
    muster_tuning_clear(&context->tuning);
}

void muster_context_tune(struct muster_context *context, const struct muster_tuned_list *list)
{
    AUTO_TURN(context);
    muster_kept_clear(&context->kept);
    context->tunes = list != NULL;
    muster_tuning_clear(&context->tuning);
    if (list != NULL) {
        muster_tuning_import(&context->tuning, list);
    }
}

void muster_context_tuned(struct muster_context *context, struct muster_tuned_list *ret_list)
{
    AUTO_TURN(context);
    muster_tuning_export(&context->tuning, ret_list);
}

/* Choosing ------------------------------------------------------------------------------------ */

/* What is forced stays so. */
static bool may_tune(const struct muster_context *context, const struct muster_call_key *key,
                     const struct muster_plan *plan)
{
    return context->tunes && key->untuned == 0 &&
           context->choices.forced.plus_one[plan->collective] == 0 && muster_tuning_suits(plan);
}

/* Sets its algorithm, and whether that is the last word. */
static muster_status choose(struct muster_context *context, const struct muster_call_key *key,
                            const struct muster_plan *plan, struct muster_kept *made)
{
    char why[MUSTER_ERROR_MAX];
    if (key->algorithm != MUSTER_KEY_BY_COST) {
        made->algorithm = key->algorithm - 1;
        return MUSTER_OK;
    }
    if (may_tune(context, key, plan)) {
        const struct muster_kind *kind =
            muster_tuning_find(&context->tuning, plan, key->element_size_bytes);
        if (kind != NULL && kind->settled &&
            muster_algorithm_fits(kind->tuned.algorithm, plan, why, sizeof why)) {
            made->algorithm = kind->tuned.algorithm;
            return MUSTER_OK;
        }
        made->tuned = kind != NULL ? !kind->settled : !muster_tuning_is_full(&context->tuning);
    }
    return muster_choices_make(&context->choices, plan, key->element_size_bytes, &made->algorithm);
}

/* The bounds of the shape stand in the key already. */
static muster_status fill_key(struct muster_call_key *key, const struct muster_request *request,
                              const struct muster_asked *asked)
{
    const struct muster_shape *shape = &asked->shape;
    uint32_t sides = shape->input_bounds != NULL;
    sides += shape->output_bounds != NULL;
    key->count = shape->count;
    key->collective = shape->collective;
    key->root = shape->root;
    key->algorithm = MUSTER_KEY_BY_COST;
    key->element_size_bytes = (uint32_t)muster_type_size_bytes(
        shape->collective != MUSTER_BARRIER ? request->type : MUSTER_FLOAT32);
    key->in_place = asked->in_place;
    key->ordered = asked->ordered;
    key->untuned = request->untuned;
    key->bound_count = sides * (shape->ranks + 1);
    if (request->algorithm != NULL) {
        size_t index;
        TRY(muster_algorithm_find(request->collective, request->algorithm, &index));
        key->algorithm = (uint32_t)index + 1;
    }
    return MUSTER_OK;
}

struct muster_plan muster_context_plan(const struct muster_context *context,
                                       const struct muster_asked *asked)
{
    const struct muster_shape *shape = &asked->shape;
    return (struct muster_plan){.collective = shape->collective,
                                .topology = &context->topology,
                                .rank = shape->rank,
                                .root = shape->root,
                                .count = shape->count,
                                .input_bounds = shape->input_bounds,
                                .output_bounds = shape->output_bounds,
                                .contributors = asked->ordered ? context->contributors : NULL,
                                .in_place = asked->in_place,
                                .memory =
                                    context->shared.memory != NULL ? &context->shared.reach : NULL};
}

/* The schedule of what goes by messages. */
static muster_status schedule_operation(const struct muster_context *context,
                                        const struct muster_plan *plan, struct muster_kept *made)
{
    struct muster_schedule schedule;
    TRY(muster_schedule_generate(made->algorithm, plan, &schedule));
    made->step_count = schedule.step_count;
    if (__builtin_mul_overflow(schedule.scratch_count, context->key->element_size_bytes,
                               &made->scratch_bytes)) {
        muster_schedule_finish(&schedule);
        return muster_error_set(MUSTER_INVALID, "%s: the call needs 2^64 bytes of scratch",
                                muster_collective_name(plan->collective));
    }
    return muster_operation_create(&schedule, context->ranks, &made->operation);
}

static muster_status make_operation(struct muster_context *context,
                                    const struct muster_asked *asked, struct muster_kept **ret_kept)
{
    AUTO_FLOAT_ENVIRONMENT(); /* all members must choose alike */
    const struct muster_plan plan = muster_context_plan(context, asked);
    struct muster_kept made = {.key = NULL};
    double unused_us;
    TRY(choose(context, context->key, &plan, &made));
    TRY(muster_plan_check(made.algorithm, &plan));
    if (!muster_algorithm_uses_memory(made.algorithm) ||
        !muster_memory_choose(&plan, context->key->element_size_bytes, &context->choices.model,
                              &made.method, &unused_us)) {
        TRY(schedule_operation(context, &plan, &made));
    }
    return muster_kept_add(&context->kept, context->key, &made, ret_kept);
}

/* Leaves the bounds in the key. */
muster_status muster_context_check(struct muster_context *context,
                                   const struct muster_request *request,
                                   struct muster_asked *ret_asked)
{
    return muster_request_check(request, context->rank, context->topology.ranks,
                                context->key->bounds, ret_asked);
}

/* What was kept while it was open how such calls are done is of no use when it is settled. */
static bool is_outdated(struct muster_context *context, const struct muster_plan *plan)
{
    const struct muster_kind *kind =
        muster_tuning_find(&context->tuning, plan, context->key->element_size_bytes);
    return kind != NULL ? kind->settled : muster_tuning_is_full(&context->tuning);
}

/* By the key. */
static muster_status find_kept(struct muster_context *context, const struct muster_asked *asked,
                               struct muster_kept **ret_kept)
{
    struct muster_kept *kept = muster_kept_find(&context->kept, context->key);
    if (kept != NULL && kept->tuned) {
        const struct muster_plan plan = muster_context_plan(context, asked);
        if (is_outdated(context, &plan)) {
            muster_kept_drop(&context->kept, kept);
            kept = NULL;
        }
    }
    if (kept == NULL) {
        return make_operation(context, asked, ret_kept);
    }
    *ret_kept = kept;
    return MUSTER_OK;
}

muster_status muster_context_find(struct muster_context *context,
                                  const struct muster_request *request,
                                  const struct muster_asked *asked, struct muster_kept **ret_kept)
{
    TRY(fill_key(context->key, request, asked));
    return find_kept(context, asked, ret_kept);
}

muster_status muster_context_find_with(struct muster_context *context,
                                       const struct muster_request *request,
                                       const struct muster_asked *asked, size_t algorithm,
                                       struct muster_kept **ret_kept)
{
    TRY(fill_key(context->key, request, asked));
    context->key->algorithm = (uint32_t)algorithm + 1;
    return find_kept(context, asked, ret_kept);
}

/* Running ------------------------------------------------------------------------------------- */

static muster_status reserve_scratch(struct muster_context *context, uint64_t size_bytes)
{
    if (size_bytes <= context->scratch_bytes) {
        return MUSTER_OK;
    }
    void *scratch = NULL;
    if (posix_memalign(&scratch, SCRATCH_ALIGNMENT, size_bytes) != 0) {
        return muster_error_set(MUSTER_FATAL, "no memory for %llu bytes of scratch",
                                (unsigned long long)size_bytes);
    }
    free(context->scratch);
    context->scratch = scratch;
    context->scratch_bytes = size_bytes;
    return MUSTER_OK;
}

/* The members' numbering can no longer be trusted to agree after this. */
static muster_status break_context(struct muster_context *context, muster_status status)
{
    context->broken = status;
    (void)snprintf(context->broken_text, sizeof context->broken_text, "%s", muster_last_error());
    return status;
}

static uint64_t aligned(uint64_t size_bytes)
{
    return (size_bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
}

muster_status muster_context_run_numbered(struct muster_context *context,
                                          const struct muster_request *request,
                                          const struct muster_asked *asked,
                                          const struct muster_kept *kept, uint8_t flags,
                                          uint32_t *ret_suspect)
{
    struct muster_local_work work;
    muster_local_plan(request, &asked->shape, &work);
    uint64_t scratch_bytes = aligned(kept->scratch_bytes);
    TRY(reserve_scratch(context, scratch_bytes + work.scratch_bytes));
    void *scratch = work.scratch_bytes > 0 ? (char *)context->scratch + scratch_bytes : NULL;
    const void *in = muster_local_begin(&work, scratch);
    struct muster_binding binding = {
        .fabric = context->fabric,
        .generation = context->generation,
        .context = context->number,
        .sequence = ++context->sequence,
        .call = muster_request_call(request, asked, kept->algorithm),
        .reduction = &work.reduction,
        .in = in,
        .out = request->out,
        .scratch = context->scratch,
        .deadline_ns = request->deadline_ns,
    };
    binding.call.flags |= flags;
    muster_status status = MUSTER_OK;
    if (context->shared.memory != NULL) {
        status = muster_context_memory_run(&context->shared, &binding, &asked->shape, kept->method,
                                           ret_suspect);
    }
    if (status == MUSTER_OK && kept->operation != NULL) {
        status = muster_operation_run(kept->operation, &binding, ret_suspect);
    }
    if (status == MUSTER_OK) {
        muster_local_end(&work);
        atomic_fetch_add(&context->progress, 1);
        return MUSTER_OK;
    }
    (void)muster_error_prefix(status, "%s #%llu (context %s, generation %llu)",
                              muster_collective_name(request->collective),
                              (unsigned long long)context->sequence, context->name,
                              (unsigned long long)context->generation);
    if (status == MUSTER_INVALID) {
        return status; /* all members failed this one alike */
    }
    return break_context(context, status == MUSTER_RETRY ? MUSTER_REJOIN : status);
}

muster_status muster_context_run(struct muster_context *context,
                                 const struct muster_request *request, uint32_t *ret_suspect)
{
    uint32_t unused = UINT32_MAX;
    uint32_t *suspect = ret_suspect != NULL ? ret_suspect : &unused;
    *suspect = UINT32_MAX;
    AUTO_TURN(context);
    struct muster_asked asked;
    TRY(muster_context_check(context, request, &asked));
    if (context->broken != MUSTER_OK) {
        return muster_error_set(context->broken, "%s", context->broken_text);
    }
    struct muster_kept *kept;
    TRY(muster_context_find(context, request, &asked, &kept));
    if (kept->tuned) {
        return muster_context_run_tuned(context, request, &asked, kept, suspect);
    }
    return muster_context_run_numbered(context, request, &asked, kept, 0, suspect);
}

/* Shared memory ------------------------------------------------------------------------------- */

uint64_t muster_context_sequence(const struct muster_context *context)
{
    return context->sequence;
}

muster_status muster_context_share_memory(struct muster_context *context, int64_t deadline_ns,
                                          uint32_t *ret_suspect)
{
    uint32_t unused = UINT32_MAX;
    uint32_t *suspect = ret_suspect != NULL ? ret_suspect : &unused;
    uint32_t ranks = context->topology.ranks;
    struct muster_context_memory shared = {.memory = NULL};
    const struct muster_memory_options options = {.rank = context->rank,
                                                  .ranks = ranks,
                                                  .names = context->ranks,
                                                  .order = context->contributors,
                                                  .crowded = muster_cores_usable() < ranks,
                                                  .stream_bytes = MUSTER_MEMORY_STREAM_BYTES};
    *suspect = UINT32_MAX;
    if (context->topology.hosts != 1 || ranks < 2 || ranks > MUSTER_MEMORY_RANKS_MAX) {
        return MUSTER_OK;
    }
    const struct muster_context_meeting meeting = {.context = context,
                                                   .fabric = context->fabric,
                                                   .generation = context->generation,
                                                   .number = context->number,
                                                   .deadline_ns = deadline_ns,
                                                   .ret_suspect = suspect};
    TRY(muster_context_memory_meet(&meeting, &options, &shared));
    AUTO_TURN(context);
    muster_kept_clear(&context->kept); /* they were chosen without it */
    context->shared = shared;
    muster_choices_clear(&context->choices);
    muster_tuning_clear(&context->tuning);
    return MUSTER_OK;
}

/* What the next such call would run with. */
static muster_status find_asked(struct muster_context *context,
                                const struct muster_request *request, struct muster_kept **ret_kept)
{
    struct muster_asked asked;
    TRY(muster_context_check(context, request, &asked));
    return muster_context_find(context, request, &asked, ret_kept);
}

muster_status muster_context_algorithm(struct muster_context *context,
                                       const struct muster_request *request, size_t *ret_algorithm)
{
    AUTO_TURN(context);
    struct muster_kept *kept;
    TRY(find_asked(context, request, &kept));
    /* The analyzer does not see that MUSTER_OK means that there is one. */
    *ret_algorithm = kept->algorithm; /* NOLINT(clang-analyzer-core.NullDereference) */
    return MUSTER_OK;
}

muster_status muster_context_is_settled(struct muster_context *context,
                                        const struct muster_request *request, bool *ret_settled)
{
    AUTO_TURN(context);
    struct muster_kept *kept;
    TRY(find_asked(context, request, &kept));
    *ret_settled = !kept->tuned; /* NOLINT(clang-analyzer-core.NullDereference): as above */
    return MUSTER_OK;
}

muster_status muster_context_predict(struct muster_context *context,
                                     const struct muster_request *request, double *ret_us)
{
    AUTO_LOCK(&context->mutex);
    struct muster_asked asked;
    TRY(muster_context_check(context, request, &asked));
    struct muster_kept *kept;
    TRY(muster_context_find(context, request, &asked, &kept));
    const struct muster_plan plan = muster_context_plan(context, &asked);
    size_t algorithm = kept->algorithm; /* NOLINT(clang-analyzer-core.NullDereference): as above */
    return muster_select_cost_us(algorithm, &plan, context->key->element_size_bytes,
                                 &context->choices.model, ret_us);
}
