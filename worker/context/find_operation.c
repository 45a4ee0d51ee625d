/*
 * From a request to its operation: out of the cache, or made.
 *
 * A request whose key is in the cache was checked when its operation was made, so only its buffers
 * are checked. What is not in the cache is checked in full, gets an algorithm (named, overridden,
 * found by autotuning, or the cheapest by the cost model), and its schedule.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/float_environment.h"
#include "collectives/select/host_memory.h"
#include "collectives/select/tuning.h"
#include "worker/base/cleanup.h"
#include "worker/context/compression_choice.h"
#include "worker/context/context_parts.h"
#include "worker/context/device_group.h"

/* Choosing ------------------------------------------------------------------------------------ */

static bool may_tune(const struct muster_choices *choices, const struct muster_request_key *key,
                     const struct muster_plan *plan)
{
    return (key->flags & MUSTER_KEY_UNTUNED) == 0 &&
           !muster_choices_has_override(choices, plan->collective) && muster_tuning_suits(plan);
}

bool muster_context_choose_tuned(const struct muster_choices *choices, struct muster_tuning *tuning,
                                 const struct muster_plan *plan,
                                 struct muster_cached_operation *made)
{
    const struct muster_call_class *call_class =
        may_tune(choices, made->key, plan)
            ? muster_tuning_find(tuning, plan, made->element_size_bytes)
            : NULL;
    if (call_class == NULL || !call_class->decided ||
        !muster_select_considers(call_class->tuned.algorithm, plan, made->element_size_bytes,
                                 &choices->model)) {
        return false;
    }
    made->algorithm = call_class->tuned.algorithm;
    return true;
}

/* Sets made->algorithm, and made->autotuning if later calls may get another one. */
static muster_status choose(struct muster_context *context, const struct muster_request_key *key,
                            const struct muster_plan *plan, struct muster_cached_operation *made)
{
    if (muster_compresses(muster_request_key_compression(key))) {
        return muster_compression_choose(&context->choices, key, plan, &made->launch.packing,
                                         &made->algorithm);
    }
    if ((key->flags & MUSTER_KEY_NAMED) != 0) {
        made->algorithm = key->algorithm;
        return MUSTER_OK;
    }
    if (context->tunes &&
        muster_context_choose_tuned(&context->choices, &context->tuning, plan, made)) {
        return MUSTER_OK;
    }
    if (context->tunes && may_tune(&context->choices, key, plan)) {
        const struct muster_call_class *call_class =
            muster_tuning_find(&context->tuning, plan, made->element_size_bytes);
        made->autotuning =
            call_class != NULL ? !call_class->decided : !muster_tuning_is_full(&context->tuning);
    }
    return muster_choices_make(&context->choices, plan, made->element_size_bytes, &made->algorithm);
}

struct muster_plan muster_context_plan(const struct muster_context *context,
                                       const struct muster_cached_operation *cached)
{
    const struct muster_shape *shape = &cached->launch.shape;
    bool ordered = (cached->launch.call.flags & MUSTER_CALL_ORDERED) != 0;
    uint32_t flags = cached->key->flags;
    struct muster_plan plan = {
        .collective = shape->collective,
        .topology = &context->topology,
        .rank = shape->rank,
        .root = shape->root,
        .count = shape->count,
        .input_bounds = shape->input_bounds,
        .output_bounds = shape->output_bounds,
        .reduction_order = ordered ? context->reduction_order : NULL,
        .in_place = (flags & MUSTER_KEY_IN_PLACE) != 0,
        .keep_input = (flags & MUSTER_KEY_KEEP_INPUT) != 0,
        .finish_together = (flags & MUSTER_KEY_FINISH_TOGETHER) != 0,
        .memory = context->shared.memory != NULL ? &context->shared.reach
                  : context->hosts_share         ? &context->host.reach
                                                 : NULL,
        .device = (flags & MUSTER_KEY_MEMORY) == MUSTER_CALL_ON_DEVICE << MUSTER_KEY_MEMORY_SHIFT
                      ? &context->device_group.reach.prices
                      : NULL,
    };
    muster_caller_order_plan(&context->order, &cached->order_of_blocks, &plan);
    return plan;
}

/* Making -------------------------------------------------------------------------------------- */

/* The schedule, and how its group steps are performed. Without memory if they cannot be. */
static muster_status generate_schedule(const struct muster_context *context,
                                       struct muster_plan *plan,
                                       struct muster_cached_operation *made,
                                       struct muster_schedule *ret_schedule, uint8_t **ret_methods)
{
    if (plan->memory != NULL) { /* a group step is as it is: blocks in another order are copied */
        bool possible = true;
        TRY(muster_schedule_generate(made->algorithm, plan, ret_schedule));
        muster_status status =
            made->method != 0
                ? MUSTER_OK
                : muster_context_find_methods(context, plan, ret_schedule, made->element_size_bytes,
                                              &possible, ret_methods);
        if (status == MUSTER_OK && possible) {
            return MUSTER_OK;
        }
        muster_schedule_finish(ret_schedule);
        TRY(status);
        plan->memory = NULL;
    }
    return muster_caller_order_schedule(made->algorithm, plan, &made->order_of_blocks,
                                        ret_schedule);
}

/* The device performs all group steps in the one way that it has. */
static muster_status generate_on_device(const struct muster_plan *plan,
                                        struct muster_cached_operation *made,
                                        struct muster_schedule *ret_schedule, uint8_t **ret_methods)
{
    struct muster_schedule schedule;
    TRY(muster_schedule_generate(made->algorithm, plan, &schedule));
    uint8_t *methods = malloc(schedule.step_count + 1);
    if (methods == NULL) {
        muster_schedule_finish(&schedule);
        return muster_error_set(MUSTER_FATAL, "no memory for %zu steps", schedule.step_count);
    }
    memset(methods, MUSTER_MEMORY_OF_DEVICE, schedule.step_count);
    *ret_schedule = schedule;
    *ret_methods = methods;
    return MUSTER_OK;
}

/* made has its algorithm. */
static muster_status generate(const struct muster_context *context, struct muster_plan *plan,
                              struct muster_cached_operation *made)
{
    struct muster_schedule schedule = {.steps = NULL};
    AUTO_FREE uint8_t *methods = NULL;
    TRY(made->on_device ? generate_on_device(plan, made, &schedule, &methods)
                        : generate_schedule(context, plan, made, &schedule, &methods));
    made->step_count = schedule.step_count;
    if (__builtin_mul_overflow(schedule.scratch_count, made->element_size_bytes,
                               &made->scratch_bytes)) {
        muster_schedule_finish(&schedule);
        return muster_error_set(MUSTER_INVALID, "%s: the call needs 2^64 bytes of scratch",
                                muster_collective_name(plan->collective));
    }
    uint64_t packs = schedule.input_count + schedule.output_count;
    const uint32_t *peers = muster_caller_order_peers(&context->order, plan, context->ranks);
    TRY(muster_operation_create(context->fabric, &schedule, peers, &made->operation));
    made->has_host_steps = methods != NULL && !made->on_device;
    muster_operation_set_methods(made->operation, methods);
    methods = NULL;
    if (made->launch.packing.compression == 0) {
        return MUSTER_OK;
    }
    made->packs_bytes = packs * made->element_size_bytes;
    muster_status status = muster_operation_enable_packs(made->operation);
    if (status != MUSTER_OK) {
        muster_operation_destroy(made->operation);
        made->operation = NULL;
    }
    return status;
}

/* Launches that are compressed: the operation and the plan count packs. Encoding and decoding also
 * put blocks in order, so that no buffer is copied for that. */
static void count_packs(const struct muster_context *context, struct muster_cached_operation *made,
                        struct muster_plan *plan)
{
    struct muster_packing *packing = &made->launch.packing;
    if (packing->compression != 0) {
        muster_operation_order_finish(&made->order_of_blocks);
        packing->order = context->order.callers;
        made->element_size_bytes = muster_pack_bytes(packing->compression);
        *plan = muster_compression_plan(plan, packing);
    }
}

muster_status muster_context_schedule(const struct muster_context *context,
                                      const struct muster_operation_group *group,
                                      struct muster_plan *plan,
                                      struct muster_cached_operation *made)
{
    double unused_us;
    count_packs(context, made, plan);
    TRY(muster_plan_check(made->algorithm, plan));
    made->launch.call.algorithm = (uint32_t)made->algorithm;
    made->on_device = muster_device_group_fits(made->algorithm, plan);
    if (made->on_device) {
        made->launch.call.memory |= MUSTER_CALL_BY_DEVICE;
        plan->memory = NULL;
        TRY(generate(context, plan, made));
        muster_operation_set_group(made->operation, &context->device_group.group, 0);
        return MUSTER_OK;
    }
    plan->device = NULL;
    bool in_parts = plan->memory != NULL && plan->topology->hosts > 1;
    if (in_parts ? made->launch.packing.compression != 0
                 : !muster_algorithm_uses_memory(made->algorithm) ||
                       !muster_memory_choose(plan, made->element_size_bytes,
                                             &context->choices.model, &made->method, &unused_us)) {
        plan->memory = NULL;
    }
    TRY(generate(context, plan, made));
    muster_operation_set_group(made->operation, group, made->method);
    return MUSTER_OK;
}

/* made holds its key, its launch and the order of its blocks. */
static muster_status choose_and_schedule(struct muster_context *context,
                                         struct muster_cached_operation *made)
{
    AUTO_FLOAT_ENVIRONMENT(); /* all members must choose alike */
    struct muster_plan plan = muster_context_plan(context, made);
    TRY(choose(context, context->key, &plan, made));
    return muster_context_schedule(
        context, context->hosts_share ? &context->host.group : &context->shared.group, &plan, made);
}

/* made holds its key and its launch. */
static muster_status make_operation(struct muster_context *context,
                                    struct muster_cached_operation *made,
                                    struct muster_cached_operation **ret_cached)
{
    TRY(muster_operation_order_init(&context->order, &made->launch.shape, &made->order_of_blocks));
    muster_status status = choose_and_schedule(context, made);
    if (status != MUSTER_OK) {
        muster_operation_order_finish(&made->order_of_blocks);
        return status;
    }
    return muster_operation_cache_add(&context->cache, context->key, made, ret_cached);
}

/* Finding ------------------------------------------------------------------------------------- */

/* An operation that was made while autotuning ran is dropped once autotuning has chosen. */
static struct muster_cached_operation *drop_outdated(struct muster_context *context,
                                                     struct muster_cached_operation *cached)
{
    if (cached == NULL || !cached->autotuning) {
        return cached;
    }
    const struct muster_plan plan = muster_context_plan(context, cached);
    const struct muster_call_class *call_class =
        muster_tuning_find(&context->tuning, &plan, cached->element_size_bytes);
    bool outdated =
        call_class != NULL ? call_class->decided : muster_tuning_is_full(&context->tuning);
    if (!outdated) {
        return cached;
    }
    muster_operation_cache_drop(&context->cache, cached);
    return NULL;
}

/* By context->key. The buffers are checked before anything is made for them. */
static muster_status find_by_key(struct muster_context *context,
                                 const struct muster_request *request,
                                 struct muster_cached_operation **ret_cached)
{
    context->repeated.cached = NULL; /* it may be dropped from the cache */
    struct muster_cached_operation *cached =
        drop_outdated(context, muster_operation_cache_find(&context->cache, context->key));
    if (cached != NULL) {
        TRY(muster_request_check_buffers(request, &cached->launch.sizes));
        *ret_cached = cached;
        return MUSTER_OK;
    }
    struct muster_cached_operation made = {.key = context->key};
    TRY(muster_request_check(context->key, context->rank, context->topology.ranks, &made.launch));
    TRY(muster_request_check_buffers(request, &made.launch.sizes));
    muster_type type = request->collective == MUSTER_BARRIER ? MUSTER_FLOAT32 : request->type;
    made.element_size_bytes = muster_type_size_bytes(type);
    return make_operation(context, &made, ret_cached);
}

static muster_status make_key(struct muster_context *context, const struct muster_request *request)
{
    TRY(muster_request_key(request, context->topology.ranks, context->key));
    context->key->flags |= (uint32_t)muster_device_group_memory(context, request)
                           << MUSTER_KEY_MEMORY_SHIFT;
    return MUSTER_OK;
}

muster_status muster_context_find(struct muster_context *context,
                                  const struct muster_request *request,
                                  struct muster_cached_operation **ret_cached)
{
    TRY(make_key(context, request));
    return find_by_key(context, request, ret_cached);
}

muster_status muster_context_find_with(struct muster_context *context,
                                       const struct muster_request *request, size_t algorithm,
                                       struct muster_cached_operation **ret_cached)
{
    TRY(make_key(context, request));
    context->key->algorithm = (uint32_t)algorithm;
    context->key->flags |= MUSTER_KEY_NAMED;
    return find_by_key(context, request, ret_cached);
}
