/* From a call to the wire: check the request, find (or make) the operation for its shape, number
 * it, run it, and put the status and the text into the caller's terms. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/float_environment.h"
#include "collectives/select/host_memory.h"
#include "collectives/select/tuning.h"
#include "worker/context/context_parts.h"
#include "worker/context/local_work.h"
#include "worker/trace/timeline.h"

enum { SCRATCH_ALIGNMENT = 64 }; /* a cache line */

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
    if (key->algorithm != MUSTER_KEY_BY_COST) {
        made->algorithm = key->algorithm - 1;
        return MUSTER_OK;
    }
    if (may_tune(context, key, plan)) {
        const struct muster_size_class *kind =
            muster_tuning_find(&context->tuning, plan, key->element_size_bytes);
        if (kind != NULL && kind->settled &&
            muster_select_considers(kind->tuned.algorithm, plan, key->element_size_bytes,
                                    &context->choices.model)) {
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
    if (asked->all_counts != NULL) {
        size_t pairs = (size_t)shape->ranks * shape->ranks;
        memcpy(key->bounds + key->bound_count, asked->all_counts, pairs * sizeof key->bounds[0]);
        key->bound_count += (uint32_t)pairs;
    }
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
                                .all_counts = asked->all_counts,
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
    const struct muster_size_class *kind =
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

/* The call is over; its bytes are those of the larger buffer. */
static void add_span(const struct muster_context *context, const struct muster_asked *asked,
                     const struct muster_kept *kept, int64_t started_ns)
{
    struct muster_timeline *timeline = muster_fabric_timeline(context->fabric);
    if (timeline == NULL) {
        return;
    }
    uint64_t in = muster_shape_input_count(&asked->shape);
    uint64_t out = muster_shape_output_count(&asked->shape);
    const struct muster_timeline_event span = {
        .stage = MUSTER_TIMELINE_CALL,
        .peer = MUSTER_TIMELINE_NOBODY,
        .start_ns = started_ns,
        .bytes = (in > out ? in : out) * context->key->element_size_bytes,
        .sequence = context->sequence,
        .context = context->number,
        .name = muster_collective_name(asked->shape.collective),
        .algorithm = kept->algorithm};
    muster_timeline_add(timeline, &span);
}

static const struct muster_gpu_memory *memory_of(bool there, const struct muster_gpu_memory *memory)
{
    return there ? memory : NULL;
}

static muster_status end_work(struct muster_context *context, const struct muster_local_work *work)
{
    if (context->direct != NULL && context->direct->out_there) {
        return muster_direct_end(context->direct, work, &context->staging);
    }
    muster_local_end(work);
    return MUSTER_OK;
}

/* On memory that the CPU may touch, or as context->direct says. */
static muster_status run_bound(struct muster_context *context, const struct muster_request *request,
                               const struct muster_asked *asked, const struct muster_kept *kept,
                               uint8_t flags, uint32_t *ret_suspect)
{
    struct muster_local_work work;
    int64_t started_ns = muster_timeline_clock(muster_fabric_timeline(context->fabric));
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
    if (context->direct != NULL) {
        binding.in_gpu = memory_of(context->direct->in_there, &context->direct->in);
        binding.out_gpu = memory_of(context->direct->out_there, &context->direct->out);
    }
    muster_status status = MUSTER_OK;
    if (context->shared.memory != NULL) {
        status = muster_context_memory_run(&context->shared, &binding, &asked->shape, kept->method,
                                           ret_suspect);
    }
    if (status == MUSTER_OK && kept->operation != NULL) {
        status = muster_operation_run(kept->operation, &binding, ret_suspect);
    }
    if (status == MUSTER_OK) {
        status = end_work(context, &work);
    }
    if (status == MUSTER_OK) {
        atomic_fetch_add(&context->progress, 1);
        add_span(context, asked, kept, started_ns);
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

/* One input that goes as it is, by links that read memory of a GPU. */
static bool may_be_direct(const struct muster_context *context,
                          const struct muster_request *request, const struct muster_kept *kept)
{
    bool scales = request->prescale != 0 && request->prescale != 1;
    return kept->operation != NULL && context->shared.memory == NULL &&
           request->buffer_count == 0 && !scales &&
           muster_operation_reads_gpu(kept->operation, context->fabric, context->generation);
}

static muster_status run_staged(struct muster_context *context,
                                const struct muster_request *request,
                                const struct muster_asked *asked, const struct muster_kept *kept,
                                uint8_t flags, uint32_t *ret_suspect)
{
    struct muster_staged_call call;
    muster_status status = muster_staged_call_begin(
        &call, &context->staging, muster_fabric_timeline(context->fabric), request, &asked->shape);
    if (status == MUSTER_OK) {
        TRY(run_bound(context, &call.request, asked, kept, flags, ret_suspect));
        status = muster_staged_call_end(&call);
    }
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(status, "%s (context %s)",
                                     muster_collective_name(request->collective), context->name);
}

static muster_status run_direct(struct muster_context *context,
                                const struct muster_request *request,
                                const struct muster_asked *asked, const struct muster_kept *kept,
                                uint8_t flags, uint32_t *ret_suspect)
{
    struct muster_direct direct;
    muster_status status = muster_direct_begin(&direct, request);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s (context %s)",
                                   muster_collective_name(request->collective), context->name);
    }
    context->direct = &direct;
    status = run_bound(context, request, asked, kept, flags, ret_suspect);
    context->direct = NULL;
    return status;
}

muster_status muster_context_run_numbered(struct muster_context *context,
                                          const struct muster_request *request,
                                          const struct muster_asked *asked,
                                          const struct muster_kept *kept, uint8_t flags,
                                          uint32_t *ret_suspect)
{
    if (!muster_request_is_of_gpu(request)) {
        return run_bound(context, request, asked, kept, flags, ret_suspect);
    }
    if (!may_be_direct(context, request, kept)) {
        return run_staged(context, request, asked, kept, flags, ret_suspect);
    }
    return run_direct(context, request, asked, kept, flags, ret_suspect);
}
