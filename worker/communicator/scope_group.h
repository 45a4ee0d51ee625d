/*
 * The members of a scope: all ranks, those of this host, or those with the same local rank on the
 * other hosts. Pure.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_SCOPE_GROUP_H
#define MUSTER_WORKER_COMMUNICATOR_SCOPE_GROUP_H

#include "collectives/call/topology.h"
#include "worker/muster.h"

struct muster_scope_group {
    uint32_t *ranks;                /* owned [topology.ranks]: global, ascending */
    uint32_t *contribution_numbers; /* owned [topology.ranks] */
    uint32_t rank;                  /* this member's in the group */
    struct muster_topology topology;
};

/* The group that `rank` belongs to, of all the members in `all`, whose contribution numbers stand
 * in global order. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_scope_group_init(const struct muster_topology *all,
                                                     const uint32_t *contribution_numbers,
                                                     uint32_t rank, muster_scope scope,
                                                     struct muster_scope_group *ret_group);

/* Accepts zeroed storage. */
void muster_scope_group_finish(struct muster_scope_group *group);

#endif
