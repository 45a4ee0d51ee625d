#include "worker/context/request.h"

#include <endian.h>
#include <zlib.h>

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
    };
}

/* Counts --------------------------------------------------------------------------------------- */

static muster_status sum_up(const size_t *counts, const struct muster_shape *shape,
                            const char *side, uint64_t *ret_bounds)
{
    ret_bounds[0] = 0;
    for (uint32_t i = 0; i < shape->ranks; i++) {
        if (counts[i] > MUSTER_ELEMENTS_MAX - ret_bounds[i]) {
            return muster_error_set(MUSTER_INVALID,
                                    "%s: with rank %u's %zu elements the %s is over the limit of "
                                    "%llu",
                                    muster_collective_name(shape->collective), i, counts[i], side,
                                    (unsigned long long)MUSTER_ELEMENTS_MAX);
        }
        ret_bounds[i + 1] = ret_bounds[i] + counts[i];
    }
    return MUSTER_OK;
}

static muster_status set_bounds(const struct muster_request *request, struct muster_shape *shape,
                                uint64_t *room)
{
    if (request->in_counts != NULL) {
        TRY(sum_up(request->in_counts, shape, "input", room));
        shape->input_bounds = room;
        room += shape->ranks + 1;
    }
    if (request->out_counts != NULL) {
        TRY(sum_up(request->out_counts, shape, "output", room));
        shape->output_bounds = room;
    }
    if (request->in_counts != NULL || request->out_counts != NULL) {
        shape->count = 0;
    }
    return MUSTER_OK;
}

/* Members of different machines must come to the same. */
static uint64_t checksum(const uint64_t *bounds, uint32_t size)
{
    unsigned long sum = crc32(0, NULL, 0);
    for (uint32_t i = 1; i <= size; i++) {
        uint64_t bound = htole64(bounds[i]);
        sum = crc32(sum, (const Bytef *)&bound, sizeof bound);
    }
    return MUSTER_CALL_LISTED | sum;
}

/* In an alltoallv each member has its own: that they fit shows in the sizes of the messages. */
static uint64_t agreed_count(const struct muster_shape *shape)
{
    if (shape->collective == MUSTER_ALLTOALLV) {
        return MUSTER_CALL_LISTED;
    }
    const uint64_t *bounds =
        shape->input_bounds != NULL ? shape->input_bounds : shape->output_bounds;
    return bounds != NULL ? checksum(bounds, shape->ranks) : shape->count;
}

struct muster_call muster_request_call(const struct muster_request *request,
                                       const struct muster_asked *asked, size_t algorithm)
{
    bool reduces = muster_collective_reduces(request->collective);
    const struct muster_reduction reduction = muster_request_reduction(request);
    return (struct muster_call){
        .collective = (uint8_t)request->collective,
        .type = request->collective != MUSTER_BARRIER ? (uint8_t)request->type : 0,
        .op = reduces ? (uint8_t)request->op : 0,
        .flags = asked->ordered ? MUSTER_CALL_ORDERED : 0,
        .inputs = reduces ? muster_request_buffers(request) : 0,
        .algorithm = (uint32_t)algorithm,
        .root = asked->shape.root,
        .count = agreed_count(&asked->shape),
        .prescale = reduces ? reduction.prescale : 0,
        .postscale = reduces ? reduction.postscale : 0,
    };
}

/* Buffers -------------------------------------------------------------------------------------- */

/* Checked to be addressable. */
static muster_status measure(const struct muster_shape *shape, muster_type type,
                             struct muster_extents *ret_extents)
{
    uint64_t element_bytes = muster_type_size_bytes(type);
    uint64_t in = muster_shape_input_count(shape);
    uint64_t out = muster_shape_output_count(shape);
    uint64_t most_bytes;
    if (__builtin_mul_overflow(in > out ? in : out, element_bytes, &most_bytes) ||
        most_bytes > PTRDIFF_MAX) {
        return muster_error_set(MUSTER_INVALID, "%llu elements of %llu bytes are too many",
                                (unsigned long long)(in > out ? in : out),
                                (unsigned long long)element_bytes);
    }
    *ret_extents = (struct muster_extents){.in_bytes = element_bytes * in,
                                           .out_bytes = element_bytes * out,
                                           .in_place_bytes = (int64_t)element_bytes *
                                                             muster_shape_in_place_offset(shape)};
    return MUSTER_OK;
}

static muster_status check_buffers(const struct muster_request *request,
                                   const struct muster_extents *extents)
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
    bool apart = extents->in_bytes == 0 || extents->out_bytes == 0 ||
                 in + extents->in_bytes <= out || out + extents->out_bytes <= in;
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

static muster_status check_data(const struct muster_request *request,
                                const struct muster_shape *shape)
{
    struct muster_extents extents = {0};
    TRY(check_values(request));
    TRY(muster_request_check_reduction(request));
    TRY(measure(shape, request->type, &extents));
    TRY(check_buffers(request, &extents));
    return muster_request_check_several(request, &extents);
}

/* Integers, and the smallest and largest of floats, are the same in any order. */
static bool order_matters(const struct muster_request *request)
{
    return muster_collective_reduces(request->collective) && muster_type_is_float(request->type) &&
           request->op != MUSTER_MIN && request->op != MUSTER_MAX;
}

muster_status muster_request_check(const struct muster_request *request, uint32_t rank,
                                   uint32_t size, uint64_t *room, struct muster_asked *ret_asked)
{
    struct muster_asked asked = {.shape = muster_request_shape(request, rank, size)};
    TRY(set_bounds(request, &asked.shape, room));
    TRY(muster_shape_check(&asked.shape));
    if (request->collective != MUSTER_BARRIER) {
        muster_status status = check_data(request, &asked.shape);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "%s", muster_collective_name(request->collective));
        }
    }
    asked.in_place =
        muster_collective_in_place_counts(request->collective) && request->in == request->out;
    asked.ordered = request->reproducible && order_matters(request);
    *ret_asked = asked;
    return MUSTER_OK;
}
