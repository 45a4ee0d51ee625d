#include "collectives/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/status.h"

static const char *const type_names[MUSTER_TYPE_COUNT] = {"float32", "float64", "int32", "int64",
                                                          "uint8"};
static const char *const op_names[MUSTER_OP_COUNT] = {"sum", "average", "prod", "min", "max"};

enum { COLLECTIVE_COUNT = MUSTER_COLLECTIVE_END - MUSTER_ALLREDUCE };
static const char *const collective_names[COLLECTIVE_COUNT] = {
    "allreduce",  "reduce_scatter", "allgather",        "broadcast", "barrier",
    "allgatherv", "reduce",         "gather",           "gatherv",   "scatter",
    "alltoall",   "alltoallv",      "pairwise_exchange"};

const char *muster_collective_name(enum muster_collective collective)
{
    unsigned index = (unsigned)collective - MUSTER_ALLREDUCE;
    return index < COLLECTIVE_COUNT ? collective_names[index] : "unknown";
}

const char *muster_type_name(muster_type type)
{
    return (unsigned)type < MUSTER_TYPE_COUNT ? type_names[type] : "unknown";
}

const char *muster_op_name(muster_op op)
{
    return (unsigned)op < MUSTER_OP_COUNT ? op_names[op] : "unknown";
}

/* The index of name among names, or an error that lists them. */
static muster_status parse(const char *what, const char *name, const char *const *names,
                           unsigned count, unsigned *ret_index)
{
    char all[512] = "";
    size_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_index = i;
            return MUSTER_OK;
        }
        int wrote = snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ", names[i]);
        used += (size_t)wrote; /* the tables above fit by far */
    }
    return muster_error_set(MUSTER_INVALID, "no %s is called \"%.64s\": there are %s", what, name,
                            all);
}

struct muster_span muster_span_part(struct muster_span whole, uint64_t parts, uint64_t index)
{
    uint64_t each = whole.count / parts;
    uint64_t larger = whole.count % parts;
    uint64_t before = index < larger ? index : larger;
    return (struct muster_span){.offset = whole.offset + index * each + before,
                                .count = each + (index < larger ? 1 : 0)};
}

muster_status muster_collective_parse(const char *name, enum muster_collective *ret_collective)
{
    unsigned index = 0;
    TRY(parse("collective", name, collective_names, COLLECTIVE_COUNT, &index));
    *ret_collective = (enum muster_collective)(index + MUSTER_ALLREDUCE);
    return MUSTER_OK;
}

muster_status muster_type_parse(const char *name, muster_type *ret_type)
{
    unsigned index = 0;
    TRY(parse("element type", name, type_names, MUSTER_TYPE_COUNT, &index));
    *ret_type = (muster_type)index;
    return MUSTER_OK;
}

muster_status muster_op_parse(const char *name, muster_op *ret_op)
{
    unsigned index = 0;
    TRY(parse("operation", name, op_names, MUSTER_OP_COUNT, &index));
    *ret_op = (muster_op)index;
    return MUSTER_OK;
}

size_t muster_type_size_bytes(muster_type type)
{
    static const size_t sizes[MUSTER_TYPE_COUNT] = {4, 8, 4, 8, 1};
    return (unsigned)type < MUSTER_TYPE_COUNT ? sizes[type] : 0;
}

/* The other side's index may be anything. */
static const char *algorithm_name(uint8_t index)
{
    return index < muster_algorithm_count ? muster_algorithms[index].name : "unknown";
}

bool muster_call_matches(const struct muster_call *here, const struct muster_call *there,
                         char *ret_text, size_t size)
{
    if (here->collective != there->collective) {
        (void)snprintf(ret_text, size, "collective %s here, %s there",
                       muster_collective_name((enum muster_collective)here->collective),
                       muster_collective_name((enum muster_collective)there->collective));
    } else if (here->count != there->count) {
        (void)snprintf(ret_text, size, "count %" PRIu64 " here, %" PRIu64 " there", here->count,
                       there->count);
    } else if (here->type != there->type) {
        (void)snprintf(ret_text, size, "type %s here, %s there",
                       muster_type_name((muster_type)here->type),
                       muster_type_name((muster_type)there->type));
    } else if (here->op != there->op) {
        (void)snprintf(ret_text, size, "operation %s here, %s there",
                       muster_op_name((muster_op)here->op), muster_op_name((muster_op)there->op));
    } else if (here->root != there->root) {
        (void)snprintf(ret_text, size, "root %" PRIu32 " here, %" PRIu32 " there", here->root,
                       there->root);
    } else if (here->algorithm != there->algorithm) {
        (void)snprintf(ret_text, size, "algorithm %s here, %s there",
                       algorithm_name(here->algorithm), algorithm_name(there->algorithm));
    } else {
        return true;
    }
    return false;
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
        return (double)((const uint8_t *)data)[index];
    }
    return 0;
}
