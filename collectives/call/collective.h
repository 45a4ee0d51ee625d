/* What schedules and fabrics both know: collectives, element types, operations, spans. */
#ifndef MUSTER_COLLECTIVES_CALL_COLLECTIVE_H
#define MUSTER_COLLECTIVES_CALL_COLLECTIVE_H

#include "worker/muster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values are sent in frames: append only. */
enum muster_collective {
    MUSTER_ALLREDUCE = 1,
    MUSTER_REDUCE_SCATTER = 2,
    MUSTER_ALLGATHER = 3,
    MUSTER_BROADCAST = 4,
    MUSTER_BARRIER = 5,
    MUSTER_ALLGATHERV = 6,
    MUSTER_REDUCE = 7,
    MUSTER_GATHER = 8,
    MUSTER_GATHERV = 9,
    MUSTER_SCATTER = 10,
    MUSTER_ALLTOALL = 11,
    MUSTER_ALLTOALLV = 12,
    MUSTER_PAIRWISE_EXCHANGE = 13, /* its result depends on the algorithm's `steps` */
    MUSTER_COLLECTIVE_END = 14,    /* one more than the last */
};

enum { MUSTER_TYPE_COUNT = 13, MUSTER_OP_COUNT = 11 };

/* "allreduce", "float32", "sum"; "unknown" for values out of range. */
const char *muster_collective_name(enum muster_collective collective);
const char *muster_type_name(muster_type type);
const char *muster_op_name(muster_op op);

/* From a name to its value. MUSTER_INVALID lists the known names. */
MUSTER_CHECKED muster_status muster_collective_parse(const char *name,
                                                     enum muster_collective *ret_collective);
MUSTER_CHECKED muster_status muster_type_parse(const char *name, muster_type *ret_type);
MUSTER_CHECKED muster_status muster_op_parse(const char *name, muster_op *ret_op);

/* Bytes of one element; 0 for values out of range. */
size_t muster_type_size_bytes(muster_type type);

/* False for integers and bool. */
bool muster_type_is_float(muster_type type);

/* MUSTER_INVALID: one of the two is out of range, or the type does not have this operation; the
 * text lists those that it has. */
MUSTER_CHECKED muster_status muster_op_check(muster_type type, muster_op op);

/* Reads and writes one element of an array as a double, for code that makes up data or checks it.
 * The value must be one that the type can hold. */
double muster_type_load(const void *data, size_t index, muster_type type);
void muster_type_store(void *data, size_t index, muster_type type, double value);

/* A range of elements of one of a call's buffers; not an address. */
struct muster_span {
    uint64_t offset; /* elements from the start of the buffer */
    uint64_t count;  /* elements */
};

/* Part number `index` of the span, cut into parts whose sizes differ by at most one, larger ones
 * first. */
struct muster_span muster_span_part(struct muster_span whole, uint64_t parts, uint64_t index);

/* The index of the part that contains this element of the span. */
uint64_t muster_span_part_with(struct muster_span whole, uint64_t parts, uint64_t element);

enum { MUSTER_BUFFERS_MAX = 64 }; /* of one member in one call */

#endif
