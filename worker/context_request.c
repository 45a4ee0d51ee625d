#include "worker/context_request.h"

#include "worker/base/status.h"

bool muster_request_reduces(const struct muster_request *request)
{
    return request->collective == MUSTER_ALLREDUCE || request->collective == MUSTER_REDUCE_SCATTER;
}

struct muster_call muster_request_call(const struct muster_request *request, size_t algorithm)
{
    bool has_data = request->collective != MUSTER_BARRIER;
    return (struct muster_call){
        .collective = (uint8_t)request->collective,
        .type = has_data ? (uint8_t)request->type : 0,
        .op = muster_request_reduces(request) ? (uint8_t)request->op : 0,
        .algorithm = (uint8_t)algorithm,
        .root = request->collective == MUSTER_BROADCAST ? request->root : 0,
        .count = has_data ? request->count : 0,
    };
}

/* Sizes of the two buffers, checked to be addressable. */
struct extents {
    uint64_t in_bytes, out_bytes;
};

static muster_status measure(const struct muster_request *request, uint32_t size,
                             struct extents *ret_extents)
{
    uint64_t element_bytes = muster_type_size_bytes(request->type);
    uint64_t most_bytes;
    if (__builtin_mul_overflow(request->count, element_bytes, &most_bytes) ||
        __builtin_mul_overflow(most_bytes, (uint64_t)size, &most_bytes) ||
        most_bytes > PTRDIFF_MAX) {
        return muster_error_set(MUSTER_INVALID, "count %llu is too large for %u ranks",
                                (unsigned long long)request->count, size);
    }
    ret_extents->in_bytes =
        element_bytes * muster_collective_input_count(request->collective, request->count, size);
    ret_extents->out_bytes =
        element_bytes * muster_collective_output_count(request->collective, request->count, size);
    return MUSTER_OK;
}

/* Where `in` stands in an in-place call. */
static bool in_place(const struct muster_request *request, uint32_t rank)
{
    uintptr_t in = (uintptr_t)request->in;
    uintptr_t out = (uintptr_t)request->out;
    if (request->collective == MUSTER_ALLGATHER) {
        return in == out + rank * request->count * muster_type_size_bytes(request->type);
    }
    return in == out;
}

static muster_status check_buffers(const struct muster_request *request, uint32_t rank,
                                   const struct extents *extents)
{
    if (request->collective == MUSTER_BROADCAST && request->in != NULL &&
        request->in != request->out) {
        return muster_error_set(MUSTER_INVALID, "a broadcast has one buffer");
    }
    if (request->count == 0) {
        return MUSTER_OK;
    }
    if (request->out == NULL) {
        return muster_error_set(MUSTER_INVALID, "the output buffer is NULL with count %llu",
                                (unsigned long long)request->count);
    }
    if (request->collective == MUSTER_BROADCAST) {
        return MUSTER_OK;
    }
    if (request->in == NULL) {
        return muster_error_set(MUSTER_INVALID, "the input buffer is NULL with count %llu",
                                (unsigned long long)request->count);
    }
    uintptr_t in = (uintptr_t)request->in;
    uintptr_t out = (uintptr_t)request->out;
    bool apart = in + extents->in_bytes <= out || out + extents->out_bytes <= in;
    if (!apart && !in_place(request, rank)) {
        return muster_error_set(MUSTER_INVALID, "the input and output buffers overlap");
    }
    return MUSTER_OK;
}

static muster_status check_values(const struct muster_request *request, uint32_t size)
{
    if ((unsigned)request->type >= MUSTER_TYPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "type %u: there is none such",
                                (unsigned)request->type);
    }
    if (muster_request_reduces(request) && (unsigned)request->op >= MUSTER_OP_COUNT) {
        return muster_error_set(MUSTER_INVALID, "operation %u: there is none such",
                                (unsigned)request->op);
    }
    if (request->collective == MUSTER_BROADCAST && request->root >= size) {
        return muster_error_set(MUSTER_INVALID, "root %u: the ranks are 0 to %u", request->root,
                                size - 1);
    }
    return MUSTER_OK;
}

muster_status muster_request_check(const struct muster_request *request, uint32_t rank,
                                   uint32_t size)
{
    if (request->collective < MUSTER_ALLREDUCE || request->collective > MUSTER_BARRIER) {
        return muster_error_set(MUSTER_INVALID, "collective %u: there is none such",
                                (unsigned)request->collective);
    }
    if (request->collective == MUSTER_BARRIER) {
        return MUSTER_OK;
    }
    struct extents extents = {0};
    muster_status status = check_values(request, size);
    if (status == MUSTER_OK) {
        status = measure(request, size, &extents);
    }
    if (status == MUSTER_OK) {
        status = check_buffers(request, rank, &extents);
    }
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s", muster_collective_name(request->collective));
    }
    return MUSTER_OK;
}
