#include "worker/context/gpu_staging.h"

#include <stdlib.h>
#include <string.h>

#include "worker/trace/timeline.h"

enum {
    ALIGNMENT = 64, /* a cache line */
    BLOCK_BYTES = 256 * 1024,
};

static const void *input_of(const struct muster_request *request, uint32_t index)
{
    bool several = request->buffer_count > 0;
    return !several ? request->in : request->inputs != NULL ? request->inputs[index] : NULL;
}

static void *output_of(const struct muster_request *request, uint32_t index)
{
    return request->buffer_count > 0 ? request->outputs[index] : request->out;
}

bool muster_request_is_of_gpu(const struct muster_request *request)
{
    struct muster_gpu_memory memory;
    uint32_t count = muster_gpu_may_be_there() ? muster_request_buffers(request) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (muster_gpu_find(input_of(request, i), &memory) ||
            muster_gpu_find(output_of(request, i), &memory)) {
            return true;
        }
    }
    return false;
}

static muster_status reserve(struct muster_staging *staging, uint64_t size_bytes)
{
    void *memory = NULL;
    if (size_bytes <= staging->size_bytes) {
        return MUSTER_OK;
    }
    if (posix_memalign(&memory, ALIGNMENT, size_bytes) != 0) {
        return muster_error_set(MUSTER_FATAL,
                                "no memory for %llu bytes that stand in for memory of a GPU",
                                (unsigned long long)size_bytes);
    }
    free(staging->memory);
    *staging = (struct muster_staging){.memory = memory, .size_bytes = size_bytes};
    return MUSTER_OK;
}

/* Direct -------------------------------------------------------------------------------------- */

muster_status muster_direct_begin(struct muster_direct *ret_direct,
                                  const struct muster_request *request)
{
    struct muster_direct direct = {.in_there = false};
    const void *in = request->collective == MUSTER_BROADCAST ? request->out : request->in;
    direct.in_there = muster_gpu_find(in, &direct.in);
    direct.out_there = muster_gpu_find(request->out, &direct.out);
    if (direct.in_there) {
        TRY(muster_gpu_wait(&direct.in));
    }
    if (direct.out_there && !(direct.in_there && direct.in.context == direct.out.context)) {
        TRY(muster_gpu_wait(&direct.out));
    }
    *ret_direct = direct;
    return MUSTER_OK;
}

static muster_status finish_block(const struct muster_gpu_memory *memory,
                                  const struct muster_local_work *work, char *at, char *here,
                                  uint64_t size_bytes)
{
    uint64_t count = size_bytes / muster_type_size_bytes(work->request->type);
    TRY(muster_gpu_copy(memory, here, at, size_bytes));
    muster_reduction_finish(&work->reduction, here, count, work->contributions);
    return muster_gpu_copy(memory, at, here, size_bytes);
}

muster_status muster_direct_end(const struct muster_direct *direct,
                                const struct muster_local_work *work,
                                struct muster_staging *staging)
{
    const struct muster_request *request = work->request;
    uint64_t size_bytes = work->output_count * muster_type_size_bytes(request->type);
    if (!muster_collective_reduces(request->collective) || size_bytes == 0 ||
        !muster_reduction_has_finish(&work->reduction, work->contributions)) {
        return MUSTER_OK;
    }
    TRY(reserve(staging, BLOCK_BYTES));
    for (uint64_t done = 0; done < size_bytes; done += BLOCK_BYTES) {
        uint64_t left = size_bytes - done;
        TRY(finish_block(&direct->out, work, (char *)request->out + done, staging->memory,
                         left < BLOCK_BYTES ? left : BLOCK_BYTES));
    }
    return MUSTER_OK;
}

/* Laying out ---------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t size_bytes)
{
    return (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool overlap(uintptr_t one, uint64_t one_bytes, uintptr_t other, uint64_t other_bytes)
{
    return one < other + other_bytes && other < one + one_bytes;
}

/* Gives the pair its place from `at` on, and returns where it ends. What overlaps does so in the
 * same way there. */
static uint64_t lay_out(struct muster_staged_call *call, uint32_t index, uint64_t at)
{
    struct muster_staged *pair = &call->pairs[index];
    const void *input = input_of(call->asked, index);
    const void *output = output_of(call->asked, index);
    uintptr_t in = (uintptr_t)input;
    uintptr_t out = (uintptr_t)output;
    pair->in_there = call->in_bytes > 0 && muster_gpu_find(input, &pair->in_memory);
    pair->out_there = call->out_bytes > 0 && muster_gpu_find(output, &pair->out_memory);
    pair->in_at = pair->out_at = at;
    if (pair->in_there && pair->out_there && overlap(in, call->in_bytes, out, call->out_bytes)) {
        uintptr_t first = in < out ? in : out;
        uint64_t in_end = in + call->in_bytes - first;
        uint64_t out_end = out + call->out_bytes - first;
        pair->in_at += in - first;
        pair->out_at += out - first;
        return at + aligned(in_end > out_end ? in_end : out_end);
    }
    pair->out_at += pair->in_there ? aligned(call->in_bytes) : 0;
    return pair->out_at + (pair->out_there ? aligned(call->out_bytes) : 0);
}

static void make_request(struct muster_staged_call *call, char *memory)
{
    const struct muster_request *asked = call->asked;
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_staged *pair = &call->pairs[i];
        call->inputs[i] = pair->in_there ? memory + pair->in_at : input_of(asked, i);
        call->outputs[i] = pair->out_there ? memory + pair->out_at : output_of(asked, i);
    }
    call->request = *asked;
    call->request.in = call->inputs[0];
    call->request.out = call->outputs[0];
    if (asked->buffer_count > 0) {
        call->request.inputs = asked->inputs != NULL ? call->inputs : NULL;
        call->request.outputs = call->outputs;
    }
}

/* Copying ------------------------------------------------------------------------------------- */

static muster_status copy(const struct muster_staged_call *call,
                          const struct muster_gpu_memory *memory, void *to, const void *from,
                          uint64_t size_bytes)
{
    int64_t started_ns = muster_timeline_clock(call->timeline);
    TRY(muster_gpu_copy(memory, to, from, size_bytes));
    muster_timeline_add_local(call->timeline, MUSTER_TIMELINE_GPU_COPY, started_ns, size_bytes,
                              (struct muster_timeline_operation){.sequence = 0});
    return MUSTER_OK;
}

muster_status muster_staged_call_begin(struct muster_staged_call *call,
                                       struct muster_staging *staging,
                                       struct muster_timeline *timeline,
                                       const struct muster_request *request,
                                       const struct muster_shape *shape)
{
    uint64_t element_bytes = muster_type_size_bytes(request->type);
    bool broadcasts = request->collective == MUSTER_BROADCAST; /* out of its output */
    uint64_t end = 0;
    *call = (struct muster_staged_call){
        .asked = request,
        .timeline = timeline,
        .in_bytes = broadcasts ? 0 : element_bytes * muster_shape_input_count(shape),
        .out_bytes = element_bytes * muster_shape_output_count(shape),
        .brings_output = broadcasts && shape->rank == shape->root,
        .count = muster_request_buffers(request)};
    for (uint32_t i = 0; i < call->count; i++) {
        end = lay_out(call, i, end);
    }
    TRY(reserve(staging, end));
    make_request(call, staging->memory);
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_staged *pair = &call->pairs[i];
        if (pair->in_there) {
            TRY(copy(call, &pair->in_memory, (void *)call->inputs[i], input_of(request, i),
                     call->in_bytes));
        }
        if (pair->out_there && call->brings_output) {
            TRY(copy(call, &pair->out_memory, call->outputs[i], output_of(request, i),
                     call->out_bytes));
        }
    }
    return MUSTER_OK;
}

muster_status muster_staged_call_end(const struct muster_staged_call *call)
{
    for (uint32_t i = 0; i < call->count; i++) {
        const struct muster_staged *pair = &call->pairs[i];
        if (pair->out_there) {
            TRY(copy(call, &pair->out_memory, output_of(call->asked, i), call->outputs[i],
                     call->out_bytes));
        }
    }
    return MUSTER_OK;
}
