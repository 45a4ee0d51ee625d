/* The names of collectives; cutting spans into parts. */
#include "collectives/call/collective.h"

#include <stdio.h>
#include <string.h>

#include "collectives/call/names.h"
#include "worker/base/status.h"

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

struct muster_span muster_span_part(struct muster_span whole, uint64_t parts, uint64_t index)
{
    uint64_t each = whole.count / parts;
    uint64_t larger = whole.count % parts;
    uint64_t before = index < larger ? index : larger;
    return (struct muster_span){.offset = whole.offset + index * each + before,
                                .count = each + (index < larger ? 1 : 0)};
}

uint64_t muster_span_part_with(struct muster_span whole, uint64_t parts, uint64_t element)
{
    uint64_t each = whole.count / parts;
    uint64_t larger = whole.count % parts;
    uint64_t index = element - whole.offset;
    uint64_t in_larger = larger * (each + 1);
    return index < in_larger ? index / (each + 1) : larger + (index - in_larger) / each;
}

muster_status muster_collective_parse(const char *name, enum muster_collective *ret_collective)
{
    unsigned index = 0;
    TRY(muster_name_parse("collective", name, collective_names, COLLECTIVE_COUNT, &index));
    *ret_collective = (enum muster_collective)(index + MUSTER_ALLREDUCE);
    return MUSTER_OK;
}
