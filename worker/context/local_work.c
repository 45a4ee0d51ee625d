/* What a rank does alone, before and after the operation of a call. */
#include "worker/context/local_work.h"

#include <string.h>

#include "collectives/reduce/reduce.h"

static double given_factor(double factor)
{
    return factor == 0 ? 1 : factor;
}

struct muster_reduction muster_local_reduction(const struct muster_request *request)
{
    return (struct muster_reduction){
        .type = request->type,
        .op = request->op,
        .user_function = request->user_function,
        .user_data = request->user_data,
        .prescale = given_factor(request->prescale),
        .postscale = given_factor(request->postscale),
    };
}

/* Whether the input is first scaled, or reduced from several buffers. */
static bool gathers(const struct muster_request *request, const struct muster_launch *launch)
{
    return muster_collective_reduces(launch->shape.collective) && launch->sizes.in_count > 0 &&
           (request->buffer_count > 1 || launch->reduction.prescale != 1);
}

/* Whether it is gathered in the output buffer: that one must be as long as the input on every rank,
 * and the schedule must read it before it writes it. */
static bool gathers_in_output(const struct muster_launch *launch)
{
    return launch->shape.collective == MUSTER_ALLREDUCE;
}

uint64_t muster_local_scratch_bytes(const struct muster_request *request,
                                    const struct muster_launch *launch)
{
    return gathers(request, launch) && !gathers_in_output(launch) ? launch->sizes.in_bytes : 0;
}

/* Scales the input into the output, part by part. */
static void gather_ranges(const struct muster_request *request, const struct muster_launch *launch)
{
    struct muster_place target = {.base = request->out, .ranges = request->out_ranges};
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

static const void *begin(const struct muster_request *request, const struct muster_launch *launch,
                         void *scratch)
{
    if (launch->shape.collective == MUSTER_BROADCAST) {
        return request->out;
    }
    if (!gathers(request, launch)) {
        return request->in;
    }
    if (request->in_ranges != NULL || request->out_ranges != NULL) {
        gather_ranges(request, launch);
        return request->out;
    }
    void *target = gathers_in_output(launch) ? request->out : scratch;
    bool several = request->buffer_count > 0;
    muster_reduction_gather(&launch->reduction, target, several ? request->inputs : &request->in,
                            several ? request->buffer_count : 1, launch->sizes.in_count);
    return target;
}

void muster_local_begin(const struct muster_request *request, struct muster_launch *launch,
                        void *scratch)
{
    launch->in = begin(request, launch, scratch);
    launch->in_ranges = launch->in == request->out ? request->out_ranges : request->in_ranges;
    launch->out = request->out;
    launch->out_ranges = request->out_ranges;
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
                               const struct muster_launch *launch)
{
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
