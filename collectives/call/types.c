/* Element types and reduce operations: names, which type has which operation, single elements. */
#include <assert.h>
#include <stdio.h>

#include "collectives/call/collective.h"
#include "collectives/call/floats16.h"
#include "collectives/call/names.h"

enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4, NUMBERS = FLOATS | INTEGERS };

static const char *const type_names[MUSTER_TYPE_COUNT] = {
    "float32", "float64", "int32",  "int64",   "uint8",    "int8", "int16",
    "uint16",  "uint32",  "uint64", "float16", "bfloat16", "bool"};
static const unsigned char type_sizes[MUSTER_TYPE_COUNT] = {4, 8, 4, 8, 1, 1, 2, 2, 4, 8, 2, 2, 1};
static const unsigned char type_kinds[MUSTER_TYPE_COUNT] = {
    FLOATS,   FLOATS,   INTEGERS, INTEGERS, INTEGERS, INTEGERS, INTEGERS,
    INTEGERS, INTEGERS, INTEGERS, FLOATS,   FLOATS,   BOOLS};

static const char *const op_names[MUSTER_OP_COUNT] = {
    "sum",        "average",     "prod",        "min",        "max", "bitwise_and",
    "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "user"};
/* The kinds of types that have each operation. */
static const unsigned char op_kinds[MUSTER_OP_COUNT] = {
    NUMBERS,          NUMBERS,          NUMBERS,          NUMBERS | BOOLS,
    NUMBERS | BOOLS,  INTEGERS | BOOLS, INTEGERS | BOOLS, INTEGERS | BOOLS,
    INTEGERS | BOOLS, INTEGERS | BOOLS, NUMBERS | BOOLS,
};

const char *muster_type_name(muster_type type)
{
    return (unsigned)type < MUSTER_TYPE_COUNT ? type_names[type] : "unknown";
}

const char *muster_op_name(muster_op op)
{
    return (unsigned)op < MUSTER_OP_COUNT ? op_names[op] : "unknown";
}

muster_status muster_type_parse(const char *name, muster_type *ret_type)
{
    unsigned index = 0;
    TRY(muster_name_parse("element type", name, type_names, MUSTER_TYPE_COUNT, &index));
    *ret_type = (muster_type)index;
    return MUSTER_OK;
}

muster_status muster_op_parse(const char *name, muster_op *ret_op)
{
    unsigned index = 0;
    TRY(muster_name_parse("operation", name, op_names, MUSTER_OP_COUNT, &index));
    *ret_op = (muster_op)index;
    return MUSTER_OK;
}

size_t muster_type_size_bytes(muster_type type)
{
    return (unsigned)type < MUSTER_TYPE_COUNT ? type_sizes[type] : 0;
}

bool muster_type_is_float(muster_type type)
{
    return (unsigned)type < MUSTER_TYPE_COUNT && type_kinds[type] == FLOATS;
}

muster_status muster_op_check(muster_type type, muster_op op)
{
    if ((unsigned)type >= MUSTER_TYPE_COUNT) {
        return muster_error_set(MUSTER_INVALID, "there is no type %u", (unsigned)type);
    }
    if ((unsigned)op >= MUSTER_OP_COUNT) {
        return muster_error_set(MUSTER_INVALID, "there is no operation %u", (unsigned)op);
    }
    if ((op_kinds[op] & type_kinds[type]) != 0) {
        return MUSTER_OK;
    }
    char fitting[256] = "";
    size_t used = 0;
    for (unsigned i = 0; i < MUSTER_OP_COUNT; i++) {
        if ((op_kinds[i] & type_kinds[type]) != 0) {
            used += (size_t)snprintf(fitting + used, sizeof fitting - used, "%s%s",
                                     used == 0 ? "" : ", ", op_names[i]);
        }
    }
    return muster_error_set(MUSTER_INVALID, "%s has no operation %s; it has %s", type_names[type],
                            op_names[op], fitting);
}

void muster_type_store(void *data, size_t index, muster_type type, double value)
{
    switch (type) {
    case MUSTER_FLOAT32:
        ((float *)data)[index] = (float)value;
        break;
    case MUSTER_FLOAT64:
        ((double *)data)[index] = value;
        break;
    case MUSTER_INT32:
        ((int32_t *)data)[index] = (int32_t)value;
        break;
    case MUSTER_INT64:
        ((int64_t *)data)[index] = (int64_t)value;
        break;
    case MUSTER_UINT8:
        ((uint8_t *)data)[index] = (uint8_t)value;
        break;
    case MUSTER_INT8:
        ((int8_t *)data)[index] = (int8_t)value;
        break;
    case MUSTER_INT16:
        ((int16_t *)data)[index] = (int16_t)value;
        break;
    case MUSTER_UINT16:
        ((uint16_t *)data)[index] = (uint16_t)value;
        break;
    case MUSTER_UINT32:
        ((uint32_t *)data)[index] = (uint32_t)value;
        break;
    case MUSTER_UINT64:
        ((uint64_t *)data)[index] = (uint64_t)value;
        break;
    case MUSTER_FLOAT16:
        ((uint16_t *)data)[index] = muster_float16_narrow((float)value);
        break;
    case MUSTER_BFLOAT16:
        ((uint16_t *)data)[index] = muster_bfloat16_narrow((float)value);
        break;
    case MUSTER_BOOL:
        ((uint8_t *)data)[index] = value != 0;
        break;
    }
}

double muster_type_load(const void *data, size_t index, muster_type type)
{
    switch (type) {
    case MUSTER_FLOAT32:
        return (double)((const float *)data)[index];
    case MUSTER_FLOAT64:
        return ((const double *)data)[index];
    case MUSTER_INT32:
        return (double)((const int32_t *)data)[index];
    case MUSTER_INT64:
        return (double)((const int64_t *)data)[index];
    case MUSTER_UINT8:
    case MUSTER_BOOL:
        return (double)((const uint8_t *)data)[index];
    case MUSTER_INT8:
        return (double)((const int8_t *)data)[index];
    case MUSTER_INT16:
        return (double)((const int16_t *)data)[index];
    case MUSTER_UINT16:
        return (double)((const uint16_t *)data)[index];
    case MUSTER_UINT32:
        return (double)((const uint32_t *)data)[index];
    case MUSTER_UINT64:
        return (double)((const uint64_t *)data)[index];
    case MUSTER_FLOAT16:
        return (double)muster_float16_widen(((const uint16_t *)data)[index]);
    case MUSTER_BFLOAT16:
        return (double)muster_bfloat16_widen(((const uint16_t *)data)[index]);
    }
    return 0;
}
