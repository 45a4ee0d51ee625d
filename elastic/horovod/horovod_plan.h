/*
 * The plan of a Horovod job: its hosts and how many workers each has, as in `horovodrun -H
 * a:2,b:2`; and the six numbers that a worker needs. Ranks are contiguous on a host, in the order
 * of the hosts; the cross ranks of a local rank count the hosts that have it.
 */
#ifndef MUSTER_ELASTIC_HOROVOD_HOROVOD_PLAN_H
#define MUSTER_ELASTIC_HOROVOD_HOROVOD_PLAN_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_HOROVOD_HOST_SIZE = 254, /* a DNS name and its terminator */
    MUSTER_HOROVOD_HOSTS_MAX = 1024,
    MUSTER_HOROVOD_SLOTS_MAX = 4096, /* of all hosts */
    MUSTER_HOROVOD_RANKS_SIZE = 80,  /* of the text */
    MUSTER_HOROVOD_NONE = UINT32_MAX,
};

struct muster_horovod_host {
    char name[MUSTER_HOROVOD_HOST_SIZE];
    uint32_t slot_count;
};

struct muster_horovod_plan {
    struct muster_horovod_host *hosts; /* owned */
    uint32_t host_count;
    uint32_t size; /* workers */
};

/* A worker's place. rank MUSTER_HOROVOD_NONE: it has none, it is removed. */
struct muster_horovod_ranks {
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
};

/* Letters, digits, '.', '-' and '_'; size_bytes without a terminator. */
bool muster_horovod_host_valid(const char *name, size_t size_bytes);

/* "HOST:SLOTS,HOST:SLOTS,...", perhaps with white space at the ends. MUSTER_INVALID names what is
 * wrong: a name, a number, a host that comes twice, a bound. */
MUSTER_CHECKED muster_status muster_horovod_plan_parse(const char *text, size_t size_bytes,
                                                       struct muster_horovod_plan *ret_plan);
MUSTER_CHECKED muster_status muster_horovod_plan_copy(const struct muster_horovod_plan *plan,
                                                      struct muster_horovod_plan *ret_plan);
void muster_horovod_plan_finish(struct muster_horovod_plan *plan);

/* The index of the host; MUSTER_HOROVOD_NONE: the plan has none of this name. */
uint32_t muster_horovod_plan_find(const struct muster_horovod_plan *plan, const char *host);
/* The host has that local rank. */
struct muster_horovod_ranks muster_horovod_plan_ranks(const struct muster_horovod_plan *plan,
                                                      uint32_t host_index, uint32_t local_rank);

/* What rank_and_size answers: "2,4,0,2,1,2", or "-1,-1,-1,-1,-1,-1". */
void muster_horovod_ranks_format(const struct muster_horovod_ranks *ranks,
                                 char ret_text[MUSTER_HOROVOD_RANKS_SIZE]);

#endif
