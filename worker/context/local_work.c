#include "worker/context/local_work.h"

#include <string.h>

/* Whether the schedule may find its input in the output buffer: what is as long on every member,
 * and is written by none before it is read. */
static bool gathers_in_output(const struct muster_request *request)
{
    return request->collective == MUSTER_ALLREDUCE;
}

void muster_local_plan(const struct muster_request *request, const struct muster_shape *shape,
                       struct muster_local_work *ret_work)
{
    struct muster_local_work work = {
        .request = request,
        .reduction = muster_request_reduction(request),
        .input_count = muster_shape_input_count(shape),
        .output_count = muster_shape_output_count(shape),
        .contributions = (uint64_t)shape->ranks * muster_request_buffers(request),
    };
    work.gathers = muster_collective_reduces(request->collective) && work.input_count > 0 &&
                   (muster_request_buffers(request) > 1 || work.reduction.prescale != 1);
    if (work.gathers && !gathers_in_output(request)) {
        work.scratch_bytes = work.input_count * muster_type_size_bytes(request->type);
    }
    *ret_work = work;
}

const void *muster_local_begin(const struct muster_local_work *work, void *scratch)
{
    const struct muster_request *request = work->request;
    if (request->collective == MUSTER_BROADCAST) {
        return request->out;
    }
    if (!work->gathers) {
        return request->in;
    }
    void *target = gathers_in_output(request) ? request->out : scratch;
    bool several = request->buffer_count > 0;
    muster_reduction_gather(&work->reduction, target, several ? request->inputs : &request->in,
                            several ? request->buffer_count : 1, work->input_count);
    return target;
}

void muster_local_end(const struct muster_local_work *work)
{
    const struct muster_request *request = work->request;
    if (muster_collective_reduces(request->collective)) {
        muster_reduction_finish(&work->reduction, request->out, work->output_count,
                                work->contributions);
    }
    size_t size_bytes = work->output_count * muster_type_size_bytes(request->type);
    for (uint32_t i = 1; i < request->buffer_count && size_bytes > 0; i++) {
        memcpy(request->outputs[i], request->out, size_bytes);
    }
}
