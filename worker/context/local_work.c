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
 * the schedule must read it before it writes it, and it may be no input that is kept. */
static bool gathers_in_output(const struct muster_launch *launch)
{
    return launch->shape.collective == MUSTER_ALLREDUCE && !launch->keeps;
}

uint64_t muster_local_scratch_bytes(const struct muster_request *request,
                                    const struct muster_launch *launch)
{
    return gathers(request, launch) && !gathers_in_output(launch) ? launch->sizes.in_bytes : 0;
}

const void *muster_local_begin(const struct muster_request *request,
                               const struct muster_launch *launch, void *scratch)
{
    if (launch->shape.collective == MUSTER_BROADCAST) {
        return request->out;
    }
    if (!gathers(request, launch)) {
        return request->in;
    }
    void *target = gathers_in_output(launch) ? request->out : scratch;
    bool several = request->buffer_count > 0;
    muster_reduction_gather(&launch->reduction, target, several ? request->inputs : &request->in,
                            several ? request->buffer_count : 1, launch->sizes.in_count);
    return target;
}

muster_status muster_local_end(const struct muster_request *request,
                               const struct muster_launch *launch)
{
    if (muster_collective_reduces(launch->shape.collective)) {
        muster_reduction_finish(&launch->reduction, request->out, launch->sizes.out_count,
                                launch->contributions);
    }
    for (uint32_t i = 1; i < request->buffer_count && launch->sizes.out_bytes > 0; i++) {
        memcpy(request->outputs[i], request->out, launch->sizes.out_bytes);
    }
    return MUSTER_OK;
}
