#include "worker/context_request.h"

#include "worker/base/status.h"

struct muster_shape muster_request_shape(const struct muster_request *request, uint32_t rank,
                                         uint32_t size)
{
    return (struct muster_shape){
        .collective = request->collective,
        .rank = rank,
        .ranks = size,
        .root = muster_collective_has_root(request->collective) ? request->root : 0,
        .count = request->collective != MUSTER_BARRIER ? request->count : 0,
        .input_bounds = request->input_bounds,
        .output_bounds = request->output_bounds};
}

struct muster_call muster_request_call(const struct muster_request *request, size_t algorithm)
{
    bool has_data = request->collective != MUSTER_BARRIER;
    return (struct muster_call){
        .collective = (uint8_t)request->collective,
        .type = has_data ? (uint8_t)request->type : 0,
        .op = muster_collective_reduces(request->collective) ? (uint8_t)request->op : 0,
        .algorithm = (uint32_t)algorithm,
        .root = muster_collective_has_root(request->collective) ? request->root : 0,
        .count = has_data ? request->count : 0,
    };
}

/* Sizes of the two buffers, checked to be addressable, and where INPUT starts in an in-place call.
 */
struct extents {
    uint64_t in_bytes, out_bytes;
    int64_t in_place_bytes; /* counted from OUTPUT */
};

static muster_status measure(const struct muster_shape *shape, muster_type type,
                             struct extents *ret_extents)
{
    uint64_t element_bytes = muster_type_size_bytes(type);
    uint64_t in = muster_shape_input_count(shape);
    uint64_t out = muster_shape_output_count(shape);
    uint64_t most_bytes;
    if (__builtin_mul_overflow(in > out ? in : out, element_bytes, &most_bytes) ||
        most_bytes > PTRDIFF_MAX) {
        return muster_error_set(MUSTER_INVALID, "count %llu is too large for %u ranks",
                                (unsigned long long)shape->count, shape->ranks);
    }
    *ret_extents = (struct extents){.in_bytes = element_bytes * in,
                                    .out_bytes = element_bytes * out,
                                    .in_place_bytes = (int64_t)element_bytes *
                                                      muster_shape_in_place_offset(shape)};
    return MUSTER_OK;
}

static muster_status check_buffers(const struct muster_request *request,
                                   const struct extents *extents)
{
    bool broadcast = request->collective == MUSTER_BROADCAST;
    if (broadcast && request->in != NULL && request->in != request->out) {
        return muster_error_set(MUSTER_INVALID, "a broadcast has one buffer");
    }
    if (extents->out_bytes > 0 && request->out == NULL) {
        return muster_error_set(MUSTER_INVALID, "the output buffer is NULL with %llu bytes to come",
                                (unsigned long long)extents->out_bytes);
    }
    if (broadcast) {
        return MUSTER_OK;
    }
    if (extents->in_bytes > 0 && request->in == NULL) {
        return muster_error_set(MUSTER_INVALID, "the input buffer is NULL with %llu bytes to go",
                                (unsigned long long)extents->in_bytes);
    }
    uintptr_t in = (uintptr_t)request->in;
    uintptr_t out = (uintptr_t)request->out;
    bool apart = in + extents->in_bytes <= out || out + extents->out_bytes <= in;
    if (!apart && in != out + (uintptr_t)extents->in_place_bytes) {
        return muster_error_set(MUSTER_INVALID, "the input and output buffers overlap");
    }
    return MUSTER_OK;
}

static muster_status check_values(const struct muster_request *request)
{
    if ((unsigned)request->type >= MUSTER_TYPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "type %u: there is none such",
                                (unsigned)request->type);
    }
    return muster_collective_reduces(request->collective)
               ? muster_op_check(request->type, request->op)
               : MUSTER_OK;
}

muster_status muster_request_check(const struct muster_request *request, uint32_t rank,
                                   uint32_t size)
{
    struct muster_shape shape = muster_request_shape(request, rank, size);
    TRY(muster_shape_check(&shape));
    if (request->collective == MUSTER_BARRIER) {
        return MUSTER_OK;
    }
    struct extents extents = {0};
    muster_status status = check_values(request);
    if (status == MUSTER_OK) {
        status = measure(&shape, request->type, &extents);
    }
    if (status == MUSTER_OK) {
        status = check_buffers(request, &extents);
    }
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s", muster_collective_name(request->collective));
    }
    return MUSTER_OK;
}
