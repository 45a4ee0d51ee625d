/* The members of a scope, from the topology of all members. */
#include "worker/communicator/scope_group.h"

#include <stdlib.h>

#include "worker/base/status.h"

static uint32_t local_ranks(const struct muster_topology *all, const struct muster_position *here,
                            uint32_t *ranks)
{
    for (uint32_t i = 0; i < here->local_size; i++) {
        ranks[i] = muster_topology_rank(all, here->host, i);
    }
    return here->local_size;
}

static uint32_t cross_ranks(const struct muster_topology *all, const struct muster_position *here,
                            uint32_t *ranks)
{
    uint32_t count = 0;
    for (uint32_t host = 0; host < all->hosts; host++) {
        if (all->host_sizes[host] > here->local_rank) {
            ranks[count++] = muster_topology_rank(all, host, here->local_rank);
        }
    }
    return count;
}

static uint32_t global_ranks(const struct muster_topology *all, uint32_t *ranks)
{
    for (uint32_t i = 0; i < all->ranks; i++) {
        ranks[i] = i;
    }
    return all->ranks;
}

static muster_status fill(const struct muster_topology *all, const uint32_t *contribution_numbers,
                          uint32_t rank, muster_scope scope, struct muster_scope_group *group)
{
    struct muster_position here = muster_topology_locate(all, rank);
    uint32_t count = 0;
    switch (scope) {
    case MUSTER_LOCAL:
        count = local_ranks(all, &here, group->ranks);
        group->rank = here.local_rank;
        break;
    case MUSTER_CROSS:
        count = cross_ranks(all, &here, group->ranks);
        group->rank = here.cross_rank;
        break;
    case MUSTER_GLOBAL:
        count = global_ranks(all, group->ranks);
        group->rank = rank;
        break;
    }
    for (uint32_t i = 0; i < count; i++) {
        group->contribution_numbers[i] = contribution_numbers[group->ranks[i]];
    }
    return muster_topology_init_some(all, group->ranks, count, &group->topology);
}

muster_status muster_scope_group_init(const struct muster_topology *all,
                                      const uint32_t *contribution_numbers, uint32_t rank,
                                      muster_scope scope, struct muster_scope_group *ret_group)
{
    struct muster_scope_group group = {
        .ranks = calloc(all->ranks, sizeof *group.ranks),
        .contribution_numbers = calloc(all->ranks, sizeof *group.contribution_numbers),
    };
    muster_status status = MUSTER_FATAL;
    if (group.ranks == NULL || group.contribution_numbers == NULL) {
        status = muster_error_set(MUSTER_FATAL, "no memory for a group of %u ranks", all->ranks);
    } else {
        status = fill(all, contribution_numbers, rank, scope, &group);
    }
    if (status != MUSTER_OK) {
        muster_scope_group_finish(&group);
        return status;
    }
    *ret_group = group;
    return MUSTER_OK;
}

void muster_scope_group_finish(struct muster_scope_group *group)
{
    free(group->ranks);
    free(group->contribution_numbers);
    muster_topology_finish(&group->topology);
}
