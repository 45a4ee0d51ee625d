/* muster bench: the input of the ranks and the expected output. The values are small whole numbers
 * that repeat, so that every order of reduction gives the same result, and the sum over 128 ranks
 * fits into a byte. */
#include "worker/cli/bench/bench_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "collectives/call/request.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

enum { PERIOD = 64 };

/* True if the count is that of a block, and the largest buffer has a block for each rank. */
static bool has_blocks(const struct muster_bench_options *options)
{
    switch (options->collective) {
    case MUSTER_ALLREDUCE:
    case MUSTER_REDUCE:
    case MUSTER_BROADCAST:
    case MUSTER_PAIRWISE_EXCHANGE:
    case MUSTER_BARRIER:
        return false;
    default:
        return true;
    }
}

uint64_t muster_bench_count(const struct muster_bench_options *options, uint64_t size_bytes,
                            uint64_t *ret_size_bytes)
{
    uint64_t unit =
        muster_type_size_bytes(options->type) * (has_blocks(options) ? options->ranks : 1);
    uint64_t count = (size_bytes + unit - 1) / unit;
    *ret_size_bytes = count * unit;
    return count;
}

static double value_of(const struct muster_request *request, uint32_t rank, uint64_t index)
{
    uint64_t phase = (index + rank) % PERIOD;
    bool multiplies = request->op == MUSTER_PROD || request->op == MUSTER_BITWISE_AND;
    return multiplies && request->type != MUSTER_BOOL ? (phase == 0 ? 2 : 1) : (double)(phase % 2);
}

/* The operations in double, which has all of the values exactly. */
static double combine(muster_op op, double left, double right)
{
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        return left + right;
    case MUSTER_PROD:
        return left * right;
    case MUSTER_MIN:
        return fmin(left, right);
    case MUSTER_MAX:
    case MUSTER_USER:
        return fmax(left, right);
    case MUSTER_BITWISE_AND:
        return (double)((unsigned)left & (unsigned)right);
    case MUSTER_BITWISE_OR:
        return (double)((unsigned)left | (unsigned)right);
    case MUSTER_BITWISE_XOR:
        return (double)((unsigned)left ^ (unsigned)right);
    case MUSTER_LOGICAL_AND:
        return left != 0 && right != 0;
    case MUSTER_LOGICAL_OR:
        return left != 0 || right != 0;
    }
    return 0;
}

void muster_bench_user_function(void *out, const void *left, const void *right, size_t count,
                                muster_type type, void *user_data)
{
    (void)user_data;
    muster_reduce_kernel(type, MUSTER_MAX)(out, left, right, count);
}

static double reduced(const struct muster_request *request, uint32_t ranks, uint64_t index)
{
    double result = value_of(request, 0, index);
    for (uint32_t i = 1; i < ranks; i++) {
        result = combine(request->op, result, value_of(request, i, index));
    }
    if (request->op == MUSTER_AVERAGE) {
        result /= ranks;
        result = muster_type_is_float(request->type) ? result : trunc(result);
    }
    return result;
}

void muster_bench_fill(const struct muster_request *request, void *in, uint32_t rank,
                       uint32_t ranks)
{
    double values[PERIOD];
    for (uint64_t i = 0; i < PERIOD; i++) {
        values[i] = value_of(request, rank, i);
    }
    const struct muster_shape shape = muster_request_shape(request, rank, ranks);
    uint64_t count = muster_shape_input_count(&shape);
    for (uint64_t i = 0; i < count; i++) {
        muster_type_store(in, i, request->type, values[i % PERIOD]);
    }
}

/* The values that must repeat in the expected range of the output, from its first element on. */
static void expected_values(const struct muster_request *request, uint32_t ranks,
                            const struct muster_expected *expected, double values[PERIOD])
{
    for (uint64_t i = 0; i < PERIOD; i++) {
        uint64_t index = expected->origin + i;
        values[i] = expected->reduced ? reduced(request, ranks, index)
                                      : value_of(request, expected->rank, index);
    }
}

static muster_status check_range(const struct muster_request *request, uint64_t first,
                                 uint64_t count, const double *values)
{
    /* 16-bit floats round products of many twos, and quotients; int8 rounds everything, each time
     * that it is encoded. */
    bool coarse = request->compression == MUSTER_COMPRESSION_INT8;
    double tolerance = coarse ? 0.25
                       : request->type == MUSTER_BFLOAT16 || muster_compresses(request->compression)
                           ? 1.0 / 256
                       : request->type == MUSTER_FLOAT16 ? 1.0 / 2048
                                                         : 1e-6;
    for (uint64_t i = 0; i < count; i++) {
        double got = muster_type_load(request->out, first + i, request->type);
        double wanted = values[i % PERIOD];
        if (fabs(got - wanted) > tolerance * fabs(wanted)) {
            return muster_error_set(
                MUSTER_FATAL, "wrong result: element %" PRIu64 " of %s is %g, not %g", first + i,
                muster_collective_name(request->collective), got, wanted);
        }
    }
    return MUSTER_OK;
}

muster_status muster_bench_check(const struct muster_request *request, uint32_t rank,
                                 uint32_t ranks)
{
    AUTO_FREE struct muster_shape *shapes = calloc(ranks, sizeof *shapes);
    if (shapes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %" PRIu32 " ranks", ranks);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        shapes[i] = muster_request_shape(request, i, ranks);
    }
    uint64_t count = muster_shape_output_count(&shapes[rank]);
    for (uint64_t first = 0; first < count;) {
        double values[PERIOD];
        struct muster_expected expected = muster_shape_expected(shapes, rank, first);
        expected_values(request, ranks, &expected, values);
        TRY(check_range(request, first, expected.count, values));
        first += expected.count;
    }
    return MUSTER_OK;
}
