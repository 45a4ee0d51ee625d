/* What a rank does alone, before and after the operation of a call. */
#include "worker/context/local_work.h"

#include <string.h>

#include "collectives/reduce/reduce.h"
#include "worker/context/scratch.h"

struct muster_reduction muster_local_reduction(const struct muster_request *request)
{
    return (struct muster_reduction){
        .type = request->type,
        .op = request->op,
        .user_function = request->user_function,
        .user_data = request->user_data,
        .prescale = muster_request_prescale(request),
        .postscale = muster_request_postscale(request),
    };
}

/* Whether the input is first scaled, or reduced from several buffers. */
static bool gathers(const struct muster_request *request, const struct muster_launch *launch)
{
    return muster_collective_reduces(launch->shape.collective) && launch->sizes.in_count > 0 &&
           (request->buffer_count > 1 || launch->reduction.prescale != 1);
}

/* Whether it is gathered in the output buffer: that one must be as long as the input on every rank,
 * the schedule must read it before it writes it, and it may be no input that is kept. */
static bool gathers_in_output(const struct muster_launch *launch)
{
    return launch->shape.collective == MUSTER_ALLREDUCE && !launch->keeps;
}

/* Copies in another order ---------------------------------------------------------------------- */

/* The elements that one copy moves: a block, and those that follow it on both sides. */
struct copied_run {
    uint64_t from, to, count;
};

static struct copied_run run_at(const struct muster_block_moves *moves, uint64_t from)
{
    const struct muster_span rest = {.offset = from, .count = moves->from[moves->blocks] - from};
    const struct muster_moved_piece piece = muster_block_moves_piece(moves, rest);
    return (struct copied_run){.from = from, .to = piece.at, .count = piece.count};
}

/* Gathers this rank's inputs in the order of the schedule. */
static void gather_in_order(const struct muster_request *request,
                            const struct muster_launch *launch,
                            const struct muster_block_moves *moves, char *target)
{
    uint64_t bytes = muster_type_size_bytes(request->type);
    bool gathered = gathers(request, launch);
    for (struct copied_run run = {0}; run.from < moves->from[moves->blocks];
         run.from += run.count) {
        run = run_at(moves, run.from);
        const char *first = (const char *)request->in + run.to * bytes;
        if (!gathered) {
            memcpy(target + run.from * bytes, first, run.count * bytes);
            continue;
        }
        const void *inputs[MUSTER_BUFFERS_MAX] = {first};
        uint32_t count = request->buffer_count > 0 ? request->buffer_count : 1;
        for (uint32_t i = 0; i < request->buffer_count; i++) {
            inputs[i] = (const char *)request->inputs[i] + run.to * bytes;
        }
        muster_reduction_gather(&launch->reduction, target + run.from * bytes, inputs, count,
                                run.count);
    }
}

static void scatter_in_order(const struct muster_request *request,
                             const struct muster_launch *launch,
                             const struct muster_block_moves *moves)
{
    uint64_t bytes = muster_type_size_bytes(request->type);
    for (struct copied_run run = {0}; run.from < moves->from[moves->blocks];
         run.from += run.count) {
        run = run_at(moves, run.from);
        memcpy((char *)request->out + run.to * bytes, (const char *)launch->out + run.from * bytes,
               run.count * bytes);
    }
}

/* A list of no buffers ------------------------------------------------------------------------- */

/* INPUT is of scratch, in place; what comes is dropped. In any order of blocks it is the same. An
 * infinity would spoil the elements that share its scale in compressed calls. */
static void begin_without_buffers(const struct muster_request *request, void *scratch,
                                  struct muster_launch *launch)
{
    muster_reduction_fill_identity(request->type, request->op, launch->packing.compression != 0,
                                   scratch, launch->sizes.in_count);
    launch->reduction.prescale = 1;
    launch->in = scratch;
    launch->out = (char *)scratch - launch->sizes.in_place_bytes;
    launch->in_ranges = NULL;
    launch->out_ranges = NULL;
}

/* Beginning and end ---------------------------------------------------------------------------- */

/* Of the input, when it is gathered or copied there. */
static uint64_t input_scratch_bytes(const struct muster_request *request,
                                    const struct muster_operation_order *order,
                                    const struct muster_launch *launch)
{
    bool needed = request->no_buffers || order->input.blocks > 0 ||
                  (gathers(request, launch) && !gathers_in_output(launch));
    return needed ? launch->sizes.in_bytes : 0;
}

uint64_t muster_local_scratch_bytes(const struct muster_request *request,
                                    const struct muster_operation_order *order,
                                    const struct muster_launch *launch)
{
    uint64_t input_bytes = input_scratch_bytes(request, order, launch);
    return order->output.blocks == 0
               ? input_bytes
               : muster_scratch_aligned(input_bytes) + launch->sizes.out_bytes;
}

/* Scales the input to the place, part by part. */
static void gather_ranges(const struct muster_request *request, const struct muster_launch *launch,
                          struct muster_place target)
{
    struct muster_place source = {.base = (char *)request->in, .ranges = request->in_ranges};
    uint64_t element_bytes = muster_type_size_bytes(request->type);
    uint64_t size = 0;
    for (uint64_t left = launch->sizes.in_bytes; left > 0; left -= size) {
        size = left;
        char *to = muster_place_at(&target, &size);
        const void *from = muster_place_at(&source, &size);
        muster_reduction_gather(&launch->reduction, to, &from, 1, size / element_bytes);
        target = muster_place_advance(target, size);
        source = muster_place_advance(source, size);
    }
}

void muster_local_begin(const struct muster_request *request,
                        const struct muster_operation_order *order, void *scratch,
                        struct muster_launch *launch)
{
    if (request->no_buffers) {
        begin_without_buffers(request, scratch, launch);
        return;
    }
    launch->in = request->in;
    launch->out = request->out;
    launch->in_ranges = request->in_ranges;
    launch->out_ranges = request->out_ranges;
    if (launch->shape.collective == MUSTER_BROADCAST) {
        launch->in = request->out;
        launch->in_ranges = request->out_ranges;
        return;
    }
    if (order->output.blocks > 0) {
        launch->out =
            (char *)scratch + muster_scratch_aligned(input_scratch_bytes(request, order, launch));
    }
    if (order->input.blocks > 0) {
        gather_in_order(request, launch, &order->input, scratch);
        launch->in = scratch;
    } else if (gathers(request, launch) &&
               (request->in_ranges != NULL || request->out_ranges != NULL)) {
        bool in_output = gathers_in_output(launch);
        launch->in = in_output ? request->out : scratch;
        launch->in_ranges = in_output ? request->out_ranges : NULL;
        gather_ranges(
            request, launch,
            (struct muster_place){.base = (char *)launch->in, .ranges = launch->in_ranges});
    } else if (gathers(request, launch)) {
        void *target = gathers_in_output(launch) ? request->out : scratch;
        bool several = request->buffer_count > 0;
        muster_reduction_gather(&launch->reduction, target,
                                several ? request->inputs : &request->in,
                                several ? request->buffer_count : 1, launch->sizes.in_count);
        launch->in = target;
    }
}

static void finish_ranges(const struct muster_request *request, const struct muster_launch *launch)
{
    const struct muster_range_list *list = request->out_ranges;
    uint64_t element_bytes = muster_type_size_bytes(request->type);
    for (size_t i = 0; i < list->count; i++) {
        uint64_t size = list->runs[i + 1].begin_bytes - list->runs[i].begin_bytes;
        muster_reduction_finish(&launch->reduction, list->runs[i].address, size / element_bytes,
                                launch->contributions);
    }
}

muster_status muster_local_end(const struct muster_request *request,
                               const struct muster_operation_order *order,
                               const struct muster_launch *launch)
{
    if (request->no_buffers) {
        return MUSTER_OK;
    }
    if (order->output.blocks > 0) {
        scatter_in_order(request, launch, &order->output);
    }
    bool reduces = muster_collective_reduces(launch->shape.collective);
    if (reduces && request->out_ranges != NULL) {
        finish_ranges(request, launch);
    } else if (reduces) {
        muster_reduction_finish(&launch->reduction, request->out, launch->sizes.out_count,
                                launch->contributions);
    }
    for (uint32_t i = 1; i < request->buffer_count && launch->sizes.out_bytes > 0; i++) {
        memcpy(request->outputs[i], request->out, launch->sizes.out_bytes);
    }
    return MUSTER_OK;
}
