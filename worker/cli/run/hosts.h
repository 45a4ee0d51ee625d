/*
 * Pretended hosts: where `muster run --hosts a:2,b:2` places its workers, all on this machine. Each
 * worker is told its host's name, so that ranks, contexts and algorithms see several hosts.
 */
#ifndef MUSTER_WORKER_CLI_RUN_HOSTS_H
#define MUSTER_WORKER_CLI_RUN_HOSTS_H

#include "elastic/membership/membership.h"
#include "worker/base/status.h"

#include <stdint.h>

enum {
    MUSTER_HOSTS_MAX = 256,
    MUSTER_RUN_SIZE_MAX = 1024, /* workers of one launcher at a time, and slots of its hosts */
};

struct muster_host_slots {
    char name[MUSTER_HOST_SIZE];
    uint32_t slots;
    uint32_t running; /* workers that are there now */
    uint32_t started; /* workers that ever were: the next one's slot number */
};

struct muster_hosts {
    uint32_t count; /* 0: no pretended hosts */
    uint32_t slots; /* of all */
    struct muster_host_slots items[MUSTER_HOSTS_MAX];
};

/* "a:2,b:2"; a name without a number has one slot. MUSTER_INVALID names the entry and what is wrong
 * with it. */
MUSTER_CHECKED muster_status muster_hosts_parse(const char *text, struct muster_hosts *ret_hosts);

/* The host for the next worker: the first that has a free slot, else the least loaded for its
 * slots. NULL without pretended hosts. */
struct muster_host_slots *muster_hosts_choose(struct muster_hosts *hosts);

#endif
