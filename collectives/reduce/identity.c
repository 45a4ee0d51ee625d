/* The element of each type and operation that changes nothing: what a rank without an input brings
 * to a reduction. */
#include <assert.h>
#include <string.h>

#include "collectives/reduce/reduce.h"

/* Of the type's size, in the lowest bytes. */
typedef uint64_t element_bits;

static element_bits all_ones(muster_type type)
{
    return UINT64_MAX >> (64 - 8 * muster_type_size_bytes(type));
}

/* The bits of a float: -0 keeps the sign of every zero, as +0 would not. */
struct float_bits {
    element_bits minus_zero, one, infinity, largest;
};

static struct float_bits float_bits_of(muster_type type)
{
    switch (type) {
    case MUSTER_FLOAT32:
        return (struct float_bits){0x80000000, 0x3f800000, 0x7f800000, 0x7f7fffff};
    case MUSTER_FLOAT64:
        return (struct float_bits){UINT64_C(1) << 63, UINT64_C(0x3ff) << 52, UINT64_C(0x7ff) << 52,
                                   (UINT64_C(0x7ff) << 52) - 1};
    case MUSTER_FLOAT16:
        return (struct float_bits){0x8000, 0x3c00, 0x7c00, 0x7bff};
    default: /* bfloat16 */
        return (struct float_bits){0x8000, 0x3f80, 0x7f80, 0x7f7f};
    }
}

static bool is_signed(muster_type type)
{
    return type == MUSTER_INT8 || type == MUSTER_INT16 || type == MUSTER_INT32 ||
           type == MUSTER_INT64;
}

/* The smallest and the largest value of a type. */
static element_bits extreme(muster_type type, bool largest, bool finite)
{
    if (muster_type_is_float(type)) {
        const struct float_bits bits = float_bits_of(type);
        return (finite ? bits.largest : bits.infinity) | (largest ? 0 : bits.minus_zero);
    }
    if (type == MUSTER_BOOL) {
        return largest ? 1 : 0;
    }
    element_bits ones = all_ones(type);
    element_bits top = is_signed(type) ? ones >> 1 : ones;
    return largest ? top : is_signed(type) ? top + 1 : 0;
}

static element_bits identity_of(muster_type type, muster_op op, bool finite)
{
    bool is_float = muster_type_is_float(type);
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        return is_float ? float_bits_of(type).minus_zero : 0;
    case MUSTER_PROD:
        return is_float ? float_bits_of(type).one : 1;
    case MUSTER_MIN:
        return extreme(type, true, finite);
    case MUSTER_MAX:
        return extreme(type, false, finite);
    case MUSTER_BITWISE_AND:
        return type == MUSTER_BOOL ? 1 : all_ones(type);
    case MUSTER_LOGICAL_AND:
        return 1;
    default:
        return 0;
    }
}

void muster_reduction_fill_identity(muster_type type, muster_op op, bool finite, void *target,
                                    size_t count)
{
    assert(op != MUSTER_USER);
    element_bits bits = identity_of(type, op, finite);
    size_t size = muster_type_size_bytes(type);
    const uint8_t bytes1 = (uint8_t)bits;
    const uint16_t bytes2 = (uint16_t)bits;
    const uint32_t bytes4 = (uint32_t)bits;
    const void *element = size == 1   ? (const void *)&bytes1
                          : size == 2 ? (const void *)&bytes2
                          : size == 4 ? (const void *)&bytes4
                                      : (const void *)&bits;
    for (size_t i = 0; i < count; i++) {
        memcpy((char *)target + i * size, element, size);
    }
}
