/* Reference arithmetic: an element at a time, by way of double or 64-bit integers. */
#include "tests/support/elements.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/schedules.h"

/* The layout of a 16-bit float. */
struct layout {
    int fraction_bits, bias;
};

static struct layout layout_of(muster_type type)
{
    return type == MUSTER_FLOAT16 ? (struct layout){10, 15} : (struct layout){7, 127};
}

uint16_t elements_nearest16(muster_type type, double value)
{
    struct layout layout = layout_of(type);
    uint16_t infinite = (uint16_t)(0x7fff >> layout.fraction_bits << layout.fraction_bits);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) {
        return (uint16_t)(infinite | 1U << (layout.fraction_bits - 1));
    }
    value = fabs(value);
    if (isinf(value) || value == 0) {
        return (uint16_t)(sign | (value > 0 ? infinite : 0));
    }
    int exponent = ilogb(value);
    exponent = exponent > 1 - layout.bias ? exponent : 1 - layout.bias;
    /* nearbyint() rounds ties to even. A fraction that is rounded up to the next power of two
     * carries into the exponent, and from there into infinity. */
    double steps = nearbyint(ldexp(value, layout.fraction_bits - exponent));
    double bits = steps + ldexp(exponent - 1 + layout.bias, layout.fraction_bits);
    return (uint16_t)(sign | (bits >= infinite ? infinite : (uint16_t)bits));
}

double elements_value16(muster_type type, uint16_t bits)
{
    struct layout layout = layout_of(type);
    int fraction = bits & ((1 << layout.fraction_bits) - 1);
    int exponent = (bits & 0x7fff) >> layout.fraction_bits;
    double value;
    if (exponent == 0x7fff >> layout.fraction_bits) {
        value = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        value = ldexp(fraction, 1 - layout.bias - layout.fraction_bits);
    } else {
        value = ldexp(fraction + (1 << layout.fraction_bits),
                      exponent - layout.bias - layout.fraction_bits);
    }
    return (bits & 0x8000) != 0 ? -value : value;
}

/* Single elements ----------------------------------------------------------------------------- */

static double load_float(muster_type type, const void *data, size_t i)
{
    switch (type) {
    case MUSTER_FLOAT64:
        return ((const double *)data)[i];
    case MUSTER_FLOAT32:
        return (double)((const float *)data)[i];
    default:
        return elements_value16(type, ((const uint16_t *)data)[i]);
    }
}

/* All NaNs become one: quiet, with a clear sign. */
static void store_float(muster_type type, void *data, size_t i, double value)
{
    value = isnan(value) ? (double)NAN : value;
    switch (type) {
    case MUSTER_FLOAT64:
        ((double *)data)[i] = value;
        break;
    case MUSTER_FLOAT32:
        ((float *)data)[i] = (float)value;
        break;
    default: /* the kernels compute in float32 */
        ((uint16_t *)data)[i] = elements_nearest16(type, (double)(float)value);
    }
}

static double reduce_floats(muster_op op, double a, double b)
{
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        return a + b;
    case MUSTER_PROD:
        return a * b;
    case MUSTER_MIN:
        return isnan(a) || a < b || (a == b && signbit(a)) ? a : b;
    case MUSTER_MAX:
        return isnan(a) || a > b || (a == b && !signbit(a)) ? a : b;
    default:
        abort();
    }
}

static bool is_signed(muster_type type)
{
    return type == MUSTER_INT8 || type == MUSTER_INT16 || type == MUSTER_INT32 ||
           type == MUSTER_INT64;
}

/* An integer of any size as 64 bits, its sign extended. */
static uint64_t load_integer(muster_type type, const void *data, size_t i)
{
    size_t size = muster_type_size_bytes(type);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + size * i, size); /* little-endian */
    unsigned unused = 64 - 8 * (unsigned)size;
    bits <<= unused;
    return is_signed(type) ? (uint64_t)((int64_t)bits >> unused) : bits >> unused;
}

static uint64_t reduce_integers(muster_op op, bool less, uint64_t a, uint64_t b)
{
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        return a + b;
    case MUSTER_PROD:
        return a * b;
    case MUSTER_MIN:
        return less ? a : b;
    case MUSTER_MAX:
        return less ? b : a;
    case MUSTER_BITWISE_AND:
        return a & b;
    case MUSTER_BITWISE_OR:
        return a | b;
    case MUSTER_BITWISE_XOR:
        return a ^ b;
    case MUSTER_LOGICAL_AND:
        return a != 0 && b != 0;
    case MUSTER_LOGICAL_OR:
        return a != 0 || b != 0;
    case MUSTER_USER:
        break;
    }
    abort();
}

void elements_reduce(muster_type type, muster_op op, void *target, const void *left,
                     const void *right, size_t count)
{
    size_t size = muster_type_size_bytes(type);
    for (size_t i = 0; i < count; i++) {
        if (muster_type_is_float(type)) {
            double a = load_float(type, left, i);
            double b = load_float(type, right, i);
            store_float(type, target, i, reduce_floats(op, a, b));
            continue;
        }
        uint64_t a = load_integer(type, left, i);
        uint64_t b = load_integer(type, right, i);
        if (type == MUSTER_BOOL) {
            a = a != 0;
            b = b != 0;
        }
        bool less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
        uint64_t result = reduce_integers(op, less, a, b);
        memcpy((char *)target + size * i, &result, size);
    }
}

/* Random elements ----------------------------------------------------------------------------- */

static const float special_floats[] = {
    0.0F, -0.0F,   1.0F,     -1.0F,     1e-40F, -1e-45F,    INFINITY,  -INFINITY, NAN,
    -NAN, 3.4e38F, -3.4e38F, 1.17e-38F, 2.0F,   16777216.F, 0.333333F, -2.5e-7F};
static const double special_doubles[] = {0.0,      -0.0,      1.0,    -1.0,    5e-324,  -1e-310,
                                         INFINITY, -INFINITY, NAN,    -NAN,    1.7e308, -1.7e308,
                                         2.3e-308, 2.0,       9.0e15, 1.0 / 3, -2.5e-7};
enum { SPECIAL = sizeof special_floats / sizeof special_floats[0] };

static void fill_one(muster_type type, void *data, size_t i, bool special, uint64_t bits)
{
    static const uint64_t ends[] = {0, 1, UINT64_MAX, (uint64_t)1 << 63, INT64_MAX};
    size_t size = muster_type_size_bytes(type);
    size_t pick = (size_t)(bits >> 8);
    if (type == MUSTER_FLOAT32) {
        ((float *)data)[i] = special ? special_floats[pick % SPECIAL]
                                     : (float)((int64_t)(bits >> 20) - (INT64_C(1) << 43)) / 977;
    } else if (type == MUSTER_FLOAT64) {
        ((double *)data)[i] = special ? special_doubles[pick % SPECIAL]
                                      : (double)((int64_t)(bits >> 2) - (INT64_C(1) << 61)) / 977;
    } else if (muster_type_is_float(type) || !special) {
        memcpy((char *)data + size * i, &bits, size); /* 16 random bits are special often enough */
    } else {
        uint64_t end = ends[pick % 5];
        memcpy((char *)data + size * i, (char *)&end + 8 - size, size);
    }
}

void elements_fill(muster_type type, void *data, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = test_random(random);
        bool special = bits % 4 == 0;
        fill_one(type, data, i, special, special ? bits : test_random(random));
    }
}
