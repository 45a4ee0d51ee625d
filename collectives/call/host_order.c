/* Sorts a caller's ranks by rack and host. */
#include "collectives/call/host_order.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* A caller's rank, and what it is sorted by: the lowest ranks of its rack and of its host. */
struct placed_rank {
    uint32_t rack_first, host_first, rank;
};

static int compare_numbers(uint32_t left, uint32_t right)
{
    return (left > right) - (left < right);
}

static int compare_places(const void *left_rank, const void *right_rank)
{
    const struct placed_rank *left = left_rank;
    const struct placed_rank *right = right_rank;
    if (left->rack_first != right->rack_first) {
        return compare_numbers(left->rack_first, right->rack_first);
    }
    if (left->host_first != right->host_first) {
        return compare_numbers(left->host_first, right->host_first);
    }
    return compare_numbers(left->rank, right->rank);
}

/* host_first, rack_first: [ranks], by number; filled with UINT32_MAX. */
static muster_status place(uint32_t ranks, const uint32_t *hosts, const uint32_t *racks,
                           uint32_t *host_first, uint32_t *rack_first, struct placed_rank *placed)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (hosts[rank] >= ranks || (racks != NULL && racks[rank] >= ranks)) {
            return muster_error_set(MUSTER_INVALID, "rank %u is on host %u, of %u ranks", rank,
                                    hosts[rank], ranks);
        }
        if (host_first[hosts[rank]] == UINT32_MAX) {
            uint32_t rack = racks != NULL ? racks[rank] : 0;
            host_first[hosts[rank]] = rank;
            rack_first[rack] = rack_first[rack] < rank ? rack_first[rack] : rank;
        }
        uint32_t first = host_first[hosts[rank]];
        placed[rank] = (struct placed_rank){
            .rack_first = rack_first[racks != NULL ? racks[first] : 0],
            .host_first = first,
            .rank = rank,
        };
    }
    return MUSTER_OK;
}

/* sizes: room for those of the hosts and then those of the racks. */
static muster_status group(const struct placed_rank *placed, uint32_t ranks, uint32_t *sizes,
                           struct muster_topology *ret_topology)
{
    uint32_t hosts = 0;
    uint32_t racks = 0;
    uint32_t *rack_sizes = sizes + ranks;
    for (uint32_t i = 0; i < ranks; i++) {
        bool new_host = i == 0 || placed[i].host_first != placed[i - 1].host_first;
        bool new_rack = i == 0 || placed[i].rack_first != placed[i - 1].rack_first;
        hosts += new_host;
        racks += new_rack;
        sizes[hosts - 1]++;
        rack_sizes[racks - 1] += new_host;
    }
    struct muster_topology topology = {0};
    TRY(muster_topology_init(hosts, sizes, &topology));
    muster_status status = muster_topology_set_racks(&topology, racks, rack_sizes);
    if (status != MUSTER_OK) {
        muster_topology_finish(&topology);
        return status;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

muster_status muster_host_order(uint32_t ranks, const uint32_t *hosts, const uint32_t *racks,
                                uint32_t *ret_callers, struct muster_topology *ret_topology)
{
    if (ranks == 0 || ranks > MUSTER_RANKS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%u ranks: must be 1 to %d", ranks,
                                MUSTER_RANKS_MAX);
    }
    AUTO_FREE uint32_t *numbers = calloc((size_t)ranks * 2, sizeof *numbers);
    AUTO_FREE struct placed_rank *placed = calloc(ranks, sizeof *placed);
    if (numbers == NULL || placed == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the hosts of %u ranks", ranks);
    }
    for (size_t i = 0; i < (size_t)ranks * 2; i++) {
        numbers[i] = UINT32_MAX;
    }
    TRY(place(ranks, hosts, racks, numbers, numbers + ranks, placed));
    qsort(placed, ranks, sizeof *placed, compare_places);
    for (size_t i = 0; i < (size_t)ranks * 2; i++) {
        numbers[i] = 0;
    }
    TRY(group(placed, ranks, numbers, ret_topology));
    for (uint32_t i = 0; i < ranks; i++) {
        ret_callers[i] = placed[i].rank;
    }
    return MUSTER_OK;
}

bool muster_ranks_are_in_order(const uint32_t *callers, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++) {
        if (callers[i] != i) {
            return false;
        }
    }
    return true;
}
