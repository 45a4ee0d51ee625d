/* A context: its ranks, the turns of its callers, its memory, and queries about it. */
#include "worker/context/context.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select/host_memory.h"
#include "collectives/select/tuning.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/context/buffer_counts.h"
#include "worker/context/context_parts.h"
#include "worker/context/device_group.h"
#include "worker/context/point_to_point_parts.h"

/* Making -------------------------------------------------------------------------------------- */

/* A rank of the topology and its member's `order` (muster.h), while they are sorted. */
struct ordered_rank {
    uint32_t order, caller, rank;
};

/* By order; callers' ranks break ties. */
static int compare_ordered_ranks(const void *left_rank, const void *right_rank)
{
    const struct ordered_rank *left = left_rank;
    const struct ordered_rank *right = right_rank;
    if (left->order != right->order) {
        return left->order < right->order ? -1 : 1;
    }
    return left->caller < right->caller ? -1 : 1;
}

static muster_status init_reduction_order(struct muster_context *context,
                                          const uint32_t *member_orders, uint32_t ranks)
{
    AUTO_FREE struct ordered_rank *sorted = calloc(ranks, sizeof *sorted);
    context->reduction_order = calloc(ranks, sizeof *context->reduction_order);
    if (sorted == NULL || context->reduction_order == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for context %s", context->name);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t caller = muster_caller_order_rank(&context->order, rank);
        sorted[rank] = (struct ordered_rank){
            .order = member_orders != NULL ? member_orders[rank] : caller,
            .caller = caller,
            .rank = rank,
        };
    }
    qsort(sorted, ranks, sizeof *sorted, compare_ordered_ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        context->reduction_order[i] = sorted[i].rank;
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
    context->choices.model = *options->model;
    context->name = strdup(options->name);
    context->ranks = calloc(topology->ranks, sizeof *context->ranks);
    size_t bounds_bytes = MUSTER_BOUNDS_MAX(topology->ranks) * sizeof context->key->bounds[0];
    context->key = malloc(sizeof *context->key + bounds_bytes);
    muster_started_calls_init(&context->started, options->engine, &context->choices,
                              malloc(sizeof *context->key + bounds_bytes));
    if (context->name == NULL || context->ranks == NULL || context->key == NULL ||
        context->started.key == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for context %s", options->name);
    }
    memcpy(context->ranks, options->ranks, topology->ranks * sizeof *context->ranks);
    TRY(muster_caller_order_init(topology->ranks, options->callers, options->ranks,
                                 &context->order));
    context->rank = muster_caller_order_rank(&context->order, options->rank);
    TRY(init_reduction_order(context, options->member_orders, topology->ranks));
    return muster_topology_init_copy(topology, &context->topology);
}

muster_status muster_context_create(const struct muster_context_options *options,
                                    struct muster_context **ret_context)
{
    if (options->rank >= options->topology->ranks) {
        return muster_error_set(MUSTER_INVALID, "context %s: rank %u of %u", options->name,
                                options->rank, options->topology->ranks);
    }
    struct muster_algorithm_override override = {0};
    if (options->algorithm != NULL) {
        TRY(muster_algorithm_override_parse(options->algorithm, &override));
    }
    struct muster_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for context %s", options->name);
    }
    context->choices.override = override;
    muster_mutex_init(&context->mutex);
    muster_turns_init(&context->turns);
    muster_operation_cache_init(&context->cache);
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
    muster_started_calls_finish(&context->started);
    bool failed = context->broken != MUSTER_OK || context->started.broken != MUSTER_OK;
    muster_point_to_point_destroy(atomic_load(&context->messages));
    muster_operation_cache_clear(&context->cache);
    muster_tuning_clear(&context->tuning);
    muster_device_group_finish(context, failed);
    muster_context_memory_finish(&context->host, failed);
    muster_context_memory_finish(&context->shared, failed);
    muster_topology_finish(&context->topology);
    muster_turns_finish(&context->turns);
    pthread_mutex_destroy(&context->mutex);
    free(context->scratch.memory);
    muster_device_room_finish(&context->staging);
    muster_call_ranges_finish(&context->ranges);
    free(context->local_order);
    free(context->ranks);
    free(context->reduction_order);
    muster_caller_order_finish(&context->order);
    free(context->key);
    free(context->name);
    free(context);
}

uint32_t muster_context_rank(const struct muster_context *context)
{
    return context->rank;
}

uint32_t muster_context_number(const struct muster_context *context)
{
    return context->number;
}

uint32_t muster_context_size(const struct muster_context *context)
{
    return context->topology.ranks;
}

uint64_t muster_context_progress(const struct muster_context *context)
{
    const struct muster_point_to_point *messages = atomic_load(&context->messages);
    uint64_t direct =
        messages != NULL ? atomic_load_explicit(&messages->direct_count, memory_order_relaxed) : 0;
    return atomic_load(&context->progress) + direct;
}

/* Turns --------------------------------------------------------------------------------------- */

static struct muster_context *acquire_turn(struct muster_context *context)
{
    (void)muster_turns_acquire(&context->turns, MUSTER_NEVER);
    return context;
}

static void release_turn(struct muster_context **context)
{
    muster_device_group_leave(*context);
    muster_turns_release(&(*context)->turns);
}

/* Until the scope ends. */
#define AUTO_TURN(context)                                                             \
    __attribute__((cleanup(release_turn), unused)) struct muster_context *auto_turn_ = \
        acquire_turn(context)

static void forget_operations(struct muster_context *context)
{
    context->repeated.cached = NULL;
    muster_operation_cache_clear(&context->cache);
}

void muster_context_set_model(struct muster_context *context, const struct muster_cost_model *model)
{
    AUTO_TURN(context);
    forget_operations(context);
    context->choices.model = *model;
    muster_choices_clear(&context->choices);
    muster_started_calls_set_model(&context->started, model);
    muster_tuning_clear(&context->tuning);
}

void muster_context_tune(struct muster_context *context, const struct muster_tuned_list *list)
{
    AUTO_TURN(context);
    forget_operations(context);
    context->tunes = list != NULL;
    muster_tuning_clear(&context->tuning);
    if (list != NULL) {
        muster_tuning_import(&context->tuning, list);
    }
    muster_started_calls_tune(&context->started, list);
}

void muster_context_tuned(struct muster_context *context, struct muster_tuned_list *ret_list)
{
    AUTO_TURN(context);
    if (context->tunes) {
        muster_tuning_export(&context->tuning, ret_list);
    }
}

void muster_context_set_shared(struct muster_context *context,
                               const struct muster_context_memory *shared)
{
    AUTO_TURN(context);
    forget_operations(context); /* chosen without shared memory */
    context->shared = *shared;
    struct muster_operation_group in_flight = shared->group;
    in_flight.state = shared->channels[0];
    muster_started_calls_share(&context->started, &in_flight);
    muster_choices_clear(&context->choices);
    muster_tuning_clear(&context->tuning);
}

void muster_context_set_host(struct muster_context *context,
                             const struct muster_context_memory *host)
{
    AUTO_TURN(context);
    forget_operations(context); /* chosen without shared memory */
    context->host = *host;
    context->hosts_share = true;
    muster_started_calls_share_hosts(&context->started, &host->group, host->channels);
    muster_choices_clear(&context->choices);
    muster_tuning_clear(&context->tuning);
}

/* Running ------------------------------------------------------------------------------------- */

/* The other ranks have numbered a call that this rank has not begun, so that the numbers no longer
 * agree. */
static muster_status miss_turn(const struct muster_context *context,
                               const struct muster_request *request)
{
    return muster_error_set(MUSTER_REJOIN,
                            "%s (context %s, generation %llu): the deadline passed while another "
                            "call of this member was under way",
                            muster_collective_name(request->collective), context->name,
                            (unsigned long long)muster_epoch_shown(context->generation));
}

/* Not inlined: other calls do not need its stack. */
static __attribute__((noinline)) muster_status
run_counted(struct muster_context *context, const struct muster_request *request, uint32_t *suspect)
{
    struct muster_request counted = *request;
    struct muster_cached_operation *cached;
    TRY(muster_context_find(context, request, &cached)); /* checked before anything is sent */
    TRY(muster_context_count_buffers(context, request, suspect, &counted.contributions));
    TRY(muster_context_find(context, &counted, &cached));
    return cached->autotuning ? muster_context_launch_tuned(context, &counted, cached, suspect)
                              : muster_context_launch(context, &counted, cached, 0, suspect);
}

static inline muster_status run_in_turn(struct muster_context *context,
                                        const struct muster_request *request, uint32_t *suspect)
{
    if (muster_request_counts_buffers(request)) {
        return run_counted(context, request, suspect);
    }
    struct muster_cached_operation *cached;
    TRY(muster_context_find(context, request, &cached));
    return cached->autotuning ? muster_context_launch_tuned(context, request, cached, suspect)
                              : muster_context_launch(context, request, cached, 0, suspect);
}

/* Not inlined: other calls do not need its stack. */
static __attribute__((noinline)) muster_status
run_ranges(struct muster_context *context, const struct muster_request *request, uint32_t *suspect)
{
    struct muster_request bound;
    const struct muster_staged_ranges *staged = &context->ranges.staged;
    struct muster_timeline *timeline = muster_fabric_timeline(context->fabric);
    TRY(muster_context_bind_ranges(context, request, &context->ranges, &bound));
    TRY(muster_staged_ranges_fetch(staged, timeline));
    TRY(run_in_turn(context, &bound, suspect));
    return muster_staged_ranges_store(staged, timeline);
}

/* As after a turn that was missed. */
static muster_status enter_device_group(struct muster_context *context,
                                        const struct muster_request *request)
{
    muster_status status = muster_device_group_enter(context, request->deadline_ns);
    if (status == MUSTER_OK) {
        return MUSTER_OK;
    }
    context->broken = MUSTER_REJOIN;
    (void)muster_error_prefix(MUSTER_REJOIN, "%s (context %s, generation %llu)",
                              muster_collective_name(request->collective), context->name,
                              (unsigned long long)muster_epoch_shown(context->generation));
    (void)snprintf(context->broken_text, sizeof context->broken_text, "%s", muster_last_error());
    return MUSTER_REJOIN;
}

muster_status muster_context_run(struct muster_context *context,
                                 const struct muster_request *request, uint32_t *ret_suspect)
{
    uint32_t unused = UINT32_MAX;
    uint32_t *suspect = ret_suspect != NULL ? ret_suspect : &unused;
    *suspect = UINT32_MAX;
    if (!muster_turns_acquire(&context->turns, request->deadline_ns)) {
        return miss_turn(context, request);
    }
    __attribute__((cleanup(release_turn), unused)) struct muster_context *turn = context;
    if (muster_turns_missed(&context->turns)) {
        return miss_turn(context, request);
    }
    if (context->broken != MUSTER_OK) {
        return muster_error_set(context->broken, "%s", context->broken_text);
    }
    TRY(muster_started_calls_check(&context->started));
    if (context->device_setup != NULL) {
        TRY(enter_device_group(context, request));
    }
    if (context->repeated.cached != NULL &&
        muster_request_repeats(request, &context->repeated.request)) {
        return muster_context_launch_again(context, request, suspect);
    }
    return request->ranges != NULL ? run_ranges(context, request, suspect)
                                   : run_in_turn(context, request, suspect);
}

/* Queries ------------------------------------------------------------------------------------- */

muster_status muster_context_algorithm(struct muster_context *context,
                                       const struct muster_request *request, size_t *ret_algorithm)
{
    AUTO_TURN(context);
    struct muster_cached_operation *cached;
    TRY(muster_context_find(context, request, &cached));
    /* The analyzer does not see that MUSTER_OK means that there is one. */
    *ret_algorithm = cached->algorithm; /* NOLINT(clang-analyzer-core.NullDereference) */
    return MUSTER_OK;
}

bool muster_context_has_device_group(struct muster_context *context)
{
    AUTO_TURN(context);
    return context->device_group.memory != NULL;
}

muster_status muster_context_is_tuned(struct muster_context *context,
                                      const struct muster_request *request, bool *ret_tuned)
{
    AUTO_TURN(context);
    struct muster_cached_operation *cached;
    TRY(muster_context_find(context, request, &cached));
    *ret_tuned = !cached->autotuning; /* NOLINT(clang-analyzer-core.NullDereference): as above */
    return MUSTER_OK;
}

muster_status muster_context_predict(struct muster_context *context,
                                     const struct muster_request *request, double *ret_us)
{
    AUTO_TURN(context);
    struct muster_cached_operation *cached;
    TRY(muster_context_find(context, request, &cached));
    const struct muster_plan plan = muster_context_plan(context, cached);
    size_t algorithm =
        cached->algorithm; /* NOLINT(clang-analyzer-core.NullDereference): as above */
    return muster_select_cost_us(algorithm, &plan, cached->element_size_bytes,
                                 &context->choices.model, ret_us);
}
