/* Test patterns for every collective, type and operation, and their expected results. */
#include "tests/support/pattern.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/call/request.h"
#include "tests/support/blocks.h"

/* Values repeat with this period, which divides no usual size of a block. */
enum { PERIOD = 56 };

static double combine(muster_op op, double left, double right)
{
    switch (op) {
    case MUSTER_PROD:
        return left * right;
    case MUSTER_MIN:
        return left < right ? left : right;
    case MUSTER_MAX:
        return left > right ? left : right;
    case MUSTER_BITWISE_AND:
        return (double)((int64_t)left & (int64_t)right);
    case MUSTER_BITWISE_OR:
        return (double)((int64_t)left | (int64_t)right);
    case MUSTER_BITWISE_XOR:
        return (double)((int64_t)left ^ (int64_t)right);
    case MUSTER_LOGICAL_AND:
        return left != 0 && right != 0;
    case MUSTER_LOGICAL_OR:
        return left != 0 || right != 0;
    case MUSTER_USER:
        return left > right ? left : right;
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        break;
    }
    return left + right;
}

void pattern_user(void *out, const void *left, const void *right, size_t count, muster_type type,
                  void *user_data)
{
    (void)user_data;
    for (size_t i = 0; i < count; i++) {
        double a = muster_type_load(left, i, type);
        double b = muster_type_load(right, i, type);
        muster_type_store(out, i, type, combine(MUSTER_USER, a, b));
    }
}

size_t pattern_pairs(void)
{
    size_t pairs = 0;
    for (unsigned i = 0; i < MUSTER_TYPE_COUNT * MUSTER_OP_COUNT; i++) {
        pairs += muster_op_check((muster_type)(i % MUSTER_TYPE_COUNT),
                                 (muster_op)(i / MUSTER_TYPE_COUNT)) == MUSTER_OK;
    }
    return pairs;
}

void pattern_pair(size_t index, muster_type *ret_type, muster_op *ret_op)
{
    for (unsigned i = 0;; i++) {
        *ret_type = (muster_type)(i % MUSTER_TYPE_COUNT);
        *ret_op = (muster_op)(i / MUSTER_TYPE_COUNT);
        if (muster_op_check(*ret_type, *ret_op) == MUSTER_OK && index-- == 0) {
            return;
        }
    }
}

static bool is_signed(muster_type type)
{
    double value;
    uint64_t bits = UINT64_MAX; /* a NaN as a float */
    value = muster_type_load(&bits, 0, type);
    return !(value > 0);
}

/* Negative values, too, if the type has them: integer averages truncate toward zero. */
static double value_of(const struct muster_request *request, uint32_t rank, uint64_t index)
{
    if (request->type == MUSTER_BOOL) {
        return (double)((index / (1 + (uint64_t)rank) + rank) % 2);
    }
    bool has_sign = is_signed(request->type);
    if (request->op == MUSTER_PROD) {
        uint64_t phase = (index + rank) % 8;
        return phase == 0 ? 2 : phase == 3 && has_sign ? -1 : 1;
    }
    double small = (double)((index + 3 * (uint64_t)rank) % 7);
    return has_sign ? small - 4 : small;
}

static double reduced(const struct muster_request *request, uint32_t ranks, uint64_t index)
{
    double result = value_of(request, 0, index);
    for (uint32_t i = 1; i < ranks; i++) {
        result = combine(request->op, result, value_of(request, i, index));
    }
    if (request->op == MUSTER_LOGICAL_AND || request->op == MUSTER_LOGICAL_OR) {
        return result != 0;
    }
    if (request->op == MUSTER_AVERAGE) {
        result /= ranks;
        return muster_type_is_float(request->type) ? result : trunc(result);
    }
    return result;
}

/* The shapes of all ranks. */
struct shapes {
    uint32_t ranks;
    struct muster_shape *shapes; /* [ranks] */
    struct test_blocks *blocks;  /* [ranks] */
};

static struct shapes shapes_of(const struct muster_request *request, uint32_t ranks)
{
    struct shapes all = {.ranks = ranks,
                         .shapes = calloc(ranks, sizeof *all.shapes),
                         .blocks = calloc(ranks, sizeof *all.blocks)};
    if (all.shapes == NULL || all.blocks == NULL) {
        abort();
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        all.shapes[rank] = muster_request_shape(request, rank, ranks);
        if (request->in_counts != NULL || request->out_counts != NULL) {
            all.blocks[rank] = test_blocks_make(&all.shapes[rank]);
        }
    }
    return all;
}

static void finish_shapes(struct shapes *all)
{
    for (uint32_t rank = 0; rank < all->ranks; rank++) {
        test_blocks_finish(&all->blocks[rank]);
    }
    free(all->shapes);
    free(all->blocks);
}

static size_t *counts_of(const uint64_t *bounds, uint32_t ranks)
{
    if (bounds == NULL) {
        return NULL;
    }
    size_t *counts = calloc(ranks, sizeof *counts);
    if (counts == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < ranks; i++) {
        counts[i] = bounds[i + 1] - bounds[i];
    }
    return counts;
}

void pattern_make_counts(struct muster_request *request, uint32_t rank, uint32_t ranks)
{
    struct muster_shape shape = muster_request_shape(request, rank, ranks);
    struct test_blocks blocks = test_blocks_make(&shape);
    request->in_counts = counts_of(shape.input_bounds, ranks);
    request->out_counts = counts_of(shape.output_bounds, ranks);
    test_blocks_finish(&blocks);
}

void pattern_free_counts(struct muster_request *request)
{
    free((size_t *)request->in_counts);
    free((size_t *)request->out_counts);
    request->in_counts = request->out_counts = NULL;
}

int64_t pattern_in_place_offset(const struct muster_request *request, uint32_t rank, uint32_t ranks)
{
    struct shapes all = shapes_of(request, ranks);
    int64_t offset = muster_shape_in_place_offset(&all.shapes[rank]);
    finish_shapes(&all);
    return offset;
}

static bool differs(muster_type type, double wanted, double got)
{
    double tolerance = type == MUSTER_FLOAT32    ? 1e-6
                       : type == MUSTER_FLOAT16  ? 1.0 / 2048
                       : type == MUSTER_BFLOAT16 ? 1.0 / 256
                                                 : 1e-14;
    return !(fabs(wanted - got) <= tolerance * fabs(wanted));
}

void pattern_fill(const struct muster_request *request, void *in, uint32_t rank, uint32_t ranks)
{
    struct shapes all = shapes_of(request, ranks);
    for (uint64_t i = 0; i < muster_shape_input_count(&all.shapes[rank]); i++) {
        muster_type_store(in, i, request->type, value_of(request, rank, i % PERIOD));
    }
    finish_shapes(&all);
}

size_t pattern_check(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                     char *ret_text, size_t size)
{
    struct shapes all = shapes_of(request, ranks);
    uint64_t count = muster_shape_output_count(&all.shapes[rank]);
    size_t wrong = 0;
    double sums[PERIOD];
    for (uint64_t i = 0; i < PERIOD; i++) {
        sums[i] = reduced(request, ranks, i);
    }
    for (uint64_t i = 0; i < count;) {
        struct muster_expected expected = muster_shape_expected(all.shapes, rank, i);
        for (uint64_t end = i + expected.count; i < end; i++, expected.origin++) {
            uint64_t index = expected.origin % PERIOD;
            double wanted =
                expected.reduced ? sums[index] : value_of(request, expected.rank, index);
            double got = muster_type_load(request->out, i, request->type);
            if (differs(request->type, wanted, got) && wrong++ == 0) {
                (void)snprintf(ret_text, size, "out[%llu] is %g, not %g", (unsigned long long)i,
                               got, wanted);
            }
        }
    }
    finish_shapes(&all);
    return wrong;
}

size_t pattern_check_input(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                           char *ret_text, size_t size)
{
    struct shapes all = shapes_of(request, ranks);
    size_t wrong = 0;
    for (uint64_t i = 0; i < muster_shape_input_count(&all.shapes[rank]); i++) {
        double wanted = value_of(request, rank, i % PERIOD);
        double got = muster_type_load(request->in, i, request->type);
        if (differs(request->type, wanted, got) && wrong++ == 0) {
            (void)snprintf(ret_text, size, "in[%llu] became %g, was %g", (unsigned long long)i, got,
                           wanted);
        }
    }
    finish_shapes(&all);
    return wrong;
}
