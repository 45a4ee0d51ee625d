/*
 * Pretended hosts: `muster run --hosts a:2,b:2` places its workers on them, though all of them run
 * on this machine. Each worker gets the name of its host (MUSTER_HOST), so that ranks, contexts and
 * algorithms see several hosts.
 */
#ifndef MUSTER_WORKER_CLI_RUN_HOSTS_H
#define MUSTER_WORKER_CLI_RUN_HOSTS_H

#include "elastic/membership/membership.h"
#include "worker/base/status.h"

#include <stdint.h>

enum {
    MUSTER_HOSTS_MAX = 256,
    MUSTER_RUN_SIZE_MAX = 1024, /* running workers of one launcher, and slots of its hosts */
};

struct muster_host_slots {
    char name[MUSTER_HOST_SIZE];
    uint32_t slots;
    uint32_t running; /* workers that run now */
};

struct muster_hosts {
    uint32_t count; /* 0: no pretended hosts */
    uint32_t slots; /* of all hosts */
    struct muster_host_slots items[MUSTER_HOSTS_MAX];
};

/* "a:2,b:2"; a name without a number has one slot. MUSTER_INVALID names the entry and the reason.
 */
MUSTER_CHECKED muster_status muster_hosts_parse(const char *text, struct muster_hosts *ret_hosts);

/* The host for the next worker: the first one with a free slot, else the one with the lowest ratio
 * of running workers to slots. NULL: there are no pretended hosts. */
struct muster_host_slots *muster_hosts_choose(struct muster_hosts *hosts);

#endif
