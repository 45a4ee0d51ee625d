/* From a request to its key, and from the key to a launch. */
#include "collectives/call/request.h"

#include <endian.h>
#include <string.h>
#include <zlib.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/status.h"

static bool same_text(const char *one, const char *other)
{
    return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

bool muster_request_repeats(const struct muster_request *request,
                            const struct muster_request *before)
{
    return request->in == before->in && request->out == before->out &&
           request->count == before->count && request->collective == before->collective &&
           request->type == before->type && request->op == before->op &&
           request->root == before->root && request->ranges == before->ranges &&
           request->in_ranges == before->in_ranges && request->out_ranges == before->out_ranges &&
           request->in_counts == before->in_counts && request->out_counts == before->out_counts &&
           request->user_function == before->user_function &&
           request->user_data == before->user_data && request->prescale == before->prescale &&
           request->postscale == before->postscale && request->factors_set == before->factors_set &&
           request->buffer_count == before->buffer_count && request->inputs == before->inputs &&
           request->outputs == before->outputs && request->no_buffers == before->no_buffers &&
           request->contributions == before->contributions &&
           request->counts_alone == before->counts_alone &&
           same_text(request->algorithm, before->algorithm) &&
           request->compression == before->compression && request->untuned == before->untuned &&
           request->reproducible == before->reproducible &&
           request->keep_input == before->keep_input &&
           request->finish_together == before->finish_together &&
           request->stream == before->stream && request->priority == before->priority;
}

/* The key -------------------------------------------------------------------------------------- */

static muster_status add_up(enum muster_collective collective, const size_t *counts, uint32_t ranks,
                            const char *side, uint64_t *ret_bounds)
{
    ret_bounds[0] = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        if (counts[i] > MUSTER_ELEMENTS_MAX - ret_bounds[i]) {
            return muster_error_set(MUSTER_INVALID,
                                    "%s: with rank %u's %zu elements the %s is over the limit of "
                                    "%llu",
                                    muster_collective_name(collective), i, counts[i], side,
                                    (unsigned long long)MUSTER_ELEMENTS_MAX);
        }
        ret_bounds[i + 1] = ret_bounds[i] + counts[i];
    }
    return MUSTER_OK;
}

static muster_status set_bounds(const struct muster_request *request, uint32_t ranks,
                                struct muster_request_key *key)
{
    key->bound_count = 0;
    if (request->in_counts != NULL) {
        TRY(add_up(request->collective, request->in_counts, ranks, "input", key->bounds));
        key->flags |= MUSTER_KEY_INPUT_BOUNDS;
        key->bound_count += ranks + 1;
    }
    if (request->out_counts != NULL) {
        TRY(add_up(request->collective, request->out_counts, ranks, "output",
                   key->bounds + key->bound_count));
        key->flags |= MUSTER_KEY_OUTPUT_BOUNDS;
        key->bound_count += ranks + 1;
    }
    key->count = key->bound_count > 0 ? 0 : key->count;
    return MUSTER_OK;
}

static bool keeps_input(const struct muster_request *request)
{
    return request->keep_input && muster_collective_overwrites_input(request->collective);
}

/* Whether the schedule is another one because INPUT and OUTPUT share memory. The OUTPUT of a
 * reduce_scatter may begin anywhere in INPUT: where it is kept, that is taken for granted. */
static bool in_place_matters(const struct muster_request *request)
{
    bool matters = muster_collective_in_place_counts(request->collective) || keeps_input(request);
    return matters && (request->in == request->out || request->collective == MUSTER_REDUCE_SCATTER);
}

/* Nothing of these is asked for where it makes no difference. */
static uint32_t promise_flags(const struct muster_request *request)
{
    bool closes = request->finish_together && !muster_collective_synchronizes(request->collective);
    return (keeps_input(request) ? MUSTER_KEY_KEEP_INPUT : 0U) |
           (closes ? MUSTER_KEY_FINISH_TOGETHER : 0U);
}

static uint32_t compression_flags(const struct muster_request *request)
{
    return muster_compresses(request->compression)
               ? (uint32_t)request->compression << MUSTER_KEY_COMPRESSION_SHIFT
               : 0U;
}

static uint32_t counting_flags(const struct muster_request *request)
{
    enum muster_counting counting = request->counts_alone ? MUSTER_COUNTS_ALONE
                                    : muster_request_counts_buffers(request)
                                        ? MUSTER_COUNTS_BUFFERS
                                        : MUSTER_COUNTS_NOTHING;
    return (uint32_t)counting << MUSTER_KEY_COUNTING_SHIFT;
}

muster_status muster_request_key(const struct muster_request *request, uint32_t ranks,
                                 struct muster_request_key *ret_key)
{
    enum muster_collective collective = request->collective;
    bool barrier = collective == MUSTER_BARRIER;
    bool reduces = muster_collective_reduces(collective);
    /* Integers, and the smallest and largest of floats, are the same in any order. */
    bool ordered = request->reproducible && reduces && muster_type_is_float(request->type) &&
                   request->op != MUSTER_MIN && request->op != MUSTER_MAX;
    if ((unsigned)request->compression >= MUSTER_COMPRESSION_COUNT) { /* the flags have no room */
        return muster_error_set(MUSTER_INVALID, "%s: there is no compression %u",
                                muster_collective_name(collective), (unsigned)request->compression);
    }
    ret_key->count = barrier ? 0 : request->count;
    ret_key->collective = collective;
    ret_key->root = muster_collective_has_root(collective) ? request->root : 0;
    ret_key->type = barrier ? 0 : (uint32_t)request->type;
    ret_key->op = reduces ? (uint32_t)request->op : 0;
    ret_key->algorithm = 0;
    ret_key->buffer_count = request->buffer_count;
    ret_key->flags = (in_place_matters(request) ? MUSTER_KEY_IN_PLACE : 0U) |
                     (ordered ? MUSTER_KEY_ORDERED : 0U) |
                     (request->untuned ? MUSTER_KEY_UNTUNED : 0U) | promise_flags(request) |
                     counting_flags(request) | compression_flags(request);
    TRY(set_bounds(request, ranks, ret_key));
    if (request->algorithm != NULL) {
        size_t number;
        TRY(muster_algorithm_find(collective, request->algorithm, &number));
        ret_key->algorithm = (uint32_t)number;
        ret_key->flags |= MUSTER_KEY_NAMED;
    }
    return MUSTER_OK;
}

/* Its check ------------------------------------------------------------------------------------ */

struct muster_shape muster_request_key_shape(const struct muster_request_key *key, uint32_t rank,
                                             uint32_t ranks)
{
    bool input = (key->flags & MUSTER_KEY_INPUT_BOUNDS) != 0;
    bool output = (key->flags & MUSTER_KEY_OUTPUT_BOUNDS) != 0;
    return (struct muster_shape){
        .collective = (enum muster_collective)key->collective,
        .rank = rank,
        .ranks = ranks,
        .root = key->root,
        .count = key->count,
        .input_bounds = input ? key->bounds : NULL,
        .output_bounds = output ? key->bounds + (input ? ranks + 1 : 0) : NULL,
    };
}

struct muster_shape muster_request_shape(const struct muster_request *request, uint32_t rank,
                                         uint32_t ranks)
{
    size_t algorithm = 0;
    bool parted =
        request->collective == MUSTER_PAIRWISE_EXCHANGE && request->algorithm != NULL &&
        muster_algorithm_find(request->collective, request->algorithm, &algorithm) == MUSTER_OK;
    return (struct muster_shape){
        .collective = request->collective,
        .rank = rank,
        .ranks = ranks,
        .root = muster_collective_has_root(request->collective) ? request->root : 0,
        .count = request->collective != MUSTER_BARRIER ? request->count : 0,
        .steps = parted ? (uint32_t)(algorithm / MUSTER_ALGORITHM_ROWS_MAX) : 0,
    };
}

muster_compression muster_request_key_compression(const struct muster_request_key *key)
{
    uint32_t compression = (key->flags & MUSTER_KEY_COMPRESSION) >> MUSTER_KEY_COMPRESSION_SHIFT;
    return compression != 0 ? (muster_compression)compression : MUSTER_COMPRESSION_NONE;
}

static muster_status check_compression(const struct muster_request_key *key)
{
    muster_compression compression = muster_request_key_compression(key);
    TRY(muster_compression_check(compression, (enum muster_collective)key->collective,
                                 (muster_type)key->type, (muster_op)key->op));
    bool bounds = (key->flags & (MUSTER_KEY_INPUT_BOUNDS | MUSTER_KEY_OUTPUT_BOUNDS)) != 0;
    bool ordered = (key->flags & MUSTER_KEY_ORDERED) != 0;
    return !muster_compresses(compression) || !(bounds || ordered)
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "compression %s: %s are not compressed",
                                  muster_compression_name(compression),
                                  bounds ? "blocks of different sizes" : "reproducible calls");
}

static muster_status check_values(const struct muster_request_key *key)
{
    if (key->type >= MUSTER_TYPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "there is no type %u", key->type);
    }
    if (key->buffer_count > MUSTER_BUFFERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%u buffers: %d are the most", key->buffer_count,
                                MUSTER_BUFFERS_MAX);
    }
    return muster_collective_reduces((enum muster_collective)key->collective)
               ? muster_op_check((muster_type)key->type, (muster_op)key->op)
               : MUSTER_OK;
}

/* Checked to be addressable. */
static muster_status measure(const struct muster_shape *shape, muster_type type,
                             struct muster_buffer_sizes *ret_sizes)
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
    *ret_sizes = (struct muster_buffer_sizes){
        .in_count = in,
        .out_count = out,
        .in_bytes = element_bytes * in,
        .out_bytes = element_bytes * out,
        .in_place_bytes = (int64_t)element_bytes * muster_shape_in_place_offset(shape)};
    return MUSTER_OK;
}

/* Ranks on machines of either byte order must compute the same. */
static uint64_t checksum(const uint64_t *bounds, uint32_t ranks)
{
    unsigned long sum = crc32(0, NULL, 0);
    for (uint32_t i = 1; i <= ranks; i++) {
        uint64_t bound = htole64(bounds[i]);
        sum = crc32(sum, (const Bytef *)&bound, sizeof bound);
    }
    return MUSTER_CALL_LISTED | sum;
}

/* In an alltoallv each rank has counts of its own: that they fit shows in the sizes of the
 * messages. */
static uint64_t agreed_count(const struct muster_shape *shape)
{
    if (shape->collective == MUSTER_ALLTOALLV) {
        return MUSTER_CALL_LISTED;
    }
    const uint64_t *bounds =
        shape->input_bounds != NULL ? shape->input_bounds : shape->output_bounds;
    return bounds != NULL ? checksum(bounds, shape->ranks) : shape->count;
}

static struct muster_call describe(const struct muster_request_key *key,
                                   const struct muster_shape *shape)
{
    bool closes = (key->flags & MUSTER_KEY_FINISH_TOGETHER) != 0;
    return (struct muster_call){
        .collective = (uint8_t)key->collective,
        .type = (uint8_t)key->type,
        .op = (uint8_t)key->op,
        .flags =
            (uint8_t)(((key->flags & MUSTER_KEY_ORDERED) != 0 ? MUSTER_CALL_ORDERED : 0U) |
                      ((key->flags & MUSTER_KEY_KEEP_INPUT) != 0 ? MUSTER_CALL_KEEPS_INPUT : 0U) |
                      (closes ? MUSTER_CALL_FINISHES_TOGETHER : 0U) |
                      (key->flags & MUSTER_KEY_COMPRESSION) >>
                          MUSTER_KEY_COMPRESSION_SHIFT << MUSTER_CALL_COMPRESSION_SHIFT),
        .counting = (uint8_t)((key->flags & MUSTER_KEY_COUNTING) >> MUSTER_KEY_COUNTING_SHIFT),
        .memory = (uint8_t)((key->flags & MUSTER_KEY_MEMORY) >> MUSTER_KEY_MEMORY_SHIFT),
        .root = shape->root,
        .count = agreed_count(shape),
    };
}

/* A barrier has neither data nor a type. */
static muster_status check_data(const struct muster_request_key *key,
                                const struct muster_shape *shape,
                                struct muster_buffer_sizes *ret_sizes)
{
    TRY(check_values(key));
    TRY(check_compression(key));
    return measure(shape, (muster_type)key->type, ret_sizes);
}

static bool keeps_in_place(const struct muster_request_key *key)
{
    const uint32_t both = MUSTER_KEY_KEEP_INPUT | MUSTER_KEY_IN_PLACE;
    return (key->flags & both) == both;
}

muster_status muster_request_check(const struct muster_request_key *key, uint32_t rank,
                                   uint32_t ranks, struct muster_launch *ret_launch)
{
    struct muster_launch launch = {.shape = muster_request_key_shape(key, rank, ranks),
                                   .keeps = keeps_in_place(key),
                                   .contributions = ranks};
    TRY(muster_shape_check(&launch.shape));
    muster_status status = key->collective == MUSTER_BARRIER
                               ? check_compression(key)
                               : check_data(key, &launch.shape, &launch.sizes);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "%s", muster_collective_name(launch.shape.collective));
    }
    launch.call = describe(key, &launch.shape);
    *ret_launch = launch;
    return MUSTER_OK;
}
