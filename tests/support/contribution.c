/* A reference implementation of reproducible reductions. */
#include "tests/support/contribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/elements.h"
#include "tests/support/schedules.h"

/* Values --------------------------------------------------------------------------------------- */

struct layout {
    unsigned fraction_bits, exponent_bits;
};

static struct layout layout_of(muster_type type)
{
    switch (type) {
    case MUSTER_FLOAT16:
        return (struct layout){10, 5};
    case MUSTER_BFLOAT16:
        return (struct layout){7, 8};
    case MUSTER_FLOAT32:
        return (struct layout){23, 8};
    default:
        return (struct layout){52, 11};
    }
}

/* Draws the bits of one float: mostly an ordinary number, sometimes a special one. */
static uint64_t draw(struct layout layout, uint64_t *random)
{
    const uint64_t fraction = test_random(random) & ((UINT64_C(1) << layout.fraction_bits) - 1);
    const uint64_t exponent_max = (UINT64_C(1) << layout.exponent_bits) - 1;
    const uint64_t sign = test_random(random) >> 63;
    uint64_t exponent = exponent_max / 2 - 4 + test_random_below(random, 9);
    uint64_t significand = fraction;
    switch (test_random_below(random, 100)) {
    case 0: /* a NaN, quiet or not */
        exponent = exponent_max;
        break;
    case 1: /* infinite */
        exponent = exponent_max;
        significand = 0;
        break;
    case 2: /* denormal */
    case 3:
        exponent = 0;
        break;
    case 4: /* zero */
    case 5:
        exponent = 0;
        significand = 0;
        break;
    default:
        break;
    }
    return (sign << layout.exponent_bits | exponent) << layout.fraction_bits | significand;
}

void contribution_fill(const struct contributions *all, uint32_t contributor, uint32_t buffer,
                       void *ret_data)
{
    const struct layout layout = layout_of(all->type);
    const size_t size = muster_type_size_bytes(all->type);
    uint64_t random = all->seed + 64 * (uint64_t)contributor + buffer + 1;
    random =
        (random * UINT64_C(0x9E3779B97F4A7C15)) | 1; /* similar seeds give unrelated sequences */
    for (uint64_t i = 0; i < all->count; i++) {
        uint64_t bits = draw(layout, &random);
        memcpy((char *)ret_data + i * size, &bits, size); /* little-endian */
    }
}

/* Steps ---------------------------------------------------------------------------------------- */

static void *allocate(uint64_t count)
{
    void *memory = calloc(count + 1, sizeof(double));
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* Within a step float16 and bfloat16 are float32. */
static muster_type type_within(muster_type type)
{
    return type == MUSTER_FLOAT64 ? MUSTER_FLOAT64 : MUSTER_FLOAT32;
}

static void begin_step(muster_type type, void *target, const void *source, uint64_t count)
{
    if (type == MUSTER_FLOAT32 || type == MUSTER_FLOAT64) {
        memmove(target, source, count * muster_type_size_bytes(type));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        ((float *)target)[i] = (float)elements_value16(type, ((const uint16_t *)source)[i]);
    }
}

static void end_step(muster_type type, void *target, const void *source, uint64_t count)
{
    if (type == MUSTER_FLOAT32 || type == MUSTER_FLOAT64) {
        memmove(target, source, count * muster_type_size_bytes(type));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        ((uint16_t *)target)[i] = elements_nearest16(type, (double)((const float *)source)[i]);
    }
}

/* values = values / divisor x factor, with one canonical NaN. Without both nothing changes. */
static void scale(muster_type type, void *values, uint64_t count, uint64_t divisor, double factor)
{
    for (uint64_t i = 0; i < count && (divisor != 1 || factor != 1); i++) {
        if (type == MUSTER_FLOAT64) {
            double *value = (double *)values + i;
            *value = (divisor != 1 ? *value / (double)divisor : *value);
            *value = (factor != 1 ? *value * factor : *value);
            *value = isnan(*value) ? (double)NAN : *value;
        } else {
            float *value = (float *)values + i;
            *value = (divisor != 1 ? *value / (float)divisor : *value);
            *value = (factor != 1 ? *value * (float)factor : *value);
            *value = isnan(*value) ? NAN : *value;
        }
    }
}

/* Reduces a contributor's buffers to one, from the first to the last, in one step. A single buffer
 * that is not scaled stays as it is. */
static void reduce_buffers(const struct contributions *all, uint32_t contributor, void *ret_one)
{
    const muster_type within = type_within(all->type);
    contribution_fill(all, contributor, 0, ret_one);
    if (all->buffers == 1 && all->prescale == 1) {
        return;
    }
    void *next = allocate(all->count);
    void *values = allocate(all->count);
    void *result = allocate(all->count);
    begin_step(all->type, result, ret_one, all->count);
    scale(within, result, all->count, 1, all->prescale);
    for (uint32_t buffer = 1; buffer < all->buffers; buffer++) {
        contribution_fill(all, contributor, buffer, next);
        begin_step(all->type, values, next, all->count);
        scale(within, values, all->count, 1, all->prescale);
        elements_reduce(within, all->op, result, result, values, all->count);
    }
    end_step(all->type, ret_one, result, all->count);
    free(next);
    free(values);
    free(result);
}

/* Reduces 2^level contributors from `first` on: the lower half, then the upper half, then both. */
static void reduce_tree(const struct contributions *all, uint32_t first, uint32_t level,
                        void *ret_result)
{
    const uint32_t half = level == 0 ? 0 : UINT32_C(1) << (level - 1);
    if (level == 0) {
        reduce_buffers(all, first, ret_result);
        return;
    }
    reduce_tree(all, first, level - 1, ret_result);
    if (first + half < all->contributors) {
        void *upper = allocate(all->count);
        reduce_tree(all, first + half, level - 1, upper);
        elements_reduce(all->type, all->op, ret_result, ret_result, upper, all->count);
        free(upper);
    }
}

void contributions_reduce(const struct contributions *all, void *ret_results)
{
    const uint64_t inputs = (uint64_t)all->contributors * all->buffers;
    const uint64_t divisor = all->op == MUSTER_AVERAGE ? inputs : 1;
    uint32_t levels = 0;
    while (UINT32_C(1) << levels < all->contributors) {
        levels++;
    }
    reduce_tree(all, 0, levels, ret_results);
    if (divisor != 1 || all->postscale != 1) {
        void *values = allocate(all->count);
        begin_step(all->type, values, ret_results, all->count);
        scale(type_within(all->type), values, all->count, divisor, all->postscale);
        end_step(all->type, ret_results, values, all->count);
        free(values);
    }
}
