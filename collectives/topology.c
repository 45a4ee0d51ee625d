#include "collectives/topology.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

muster_status muster_topology_init(uint32_t hosts, const uint32_t *host_sizes,
                                   struct muster_topology *ret_topology)
{
    if (hosts == 0 || hosts > MUSTER_RANKS_MAX) {
        return muster_error_set(MUSTER_INVALID, "topology: %" PRIu32 " hosts, must be 1..%d", hosts,
                                MUSTER_RANKS_MAX);
    }
    AUTO_FREE uint32_t *sizes = calloc(hosts, sizeof *sizes);
    AUTO_FREE uint32_t *first = calloc(hosts, sizeof *first);
    if (sizes == NULL || first == NULL) {
        return muster_error_set(MUSTER_FATAL, "topology: no memory for %" PRIu32 " hosts", hosts);
    }
    uint32_t ranks = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        if (host_sizes[host] == 0) {
            return muster_error_set(MUSTER_INVALID, "topology: host %" PRIu32 " has no ranks",
                                    host);
        }
        if (host_sizes[host] > MUSTER_RANKS_MAX - ranks) {
            return muster_error_set(MUSTER_INVALID, "topology: more than %d ranks",
                                    MUSTER_RANKS_MAX);
        }
        sizes[host] = host_sizes[host];
        first[host] = ranks;
        ranks += host_sizes[host];
    }
    *ret_topology = (struct muster_topology){
        .hosts = hosts, .ranks = ranks, .host_sizes = TAKE(sizes), .host_first = TAKE(first)};
    return MUSTER_OK;
}

muster_status muster_topology_init_even(uint32_t ranks, uint32_t hosts,
                                        struct muster_topology *ret_topology)
{
    if (hosts == 0 || ranks < hosts) {
        return muster_error_set(
            MUSTER_INVALID, "topology: %" PRIu32 " ranks cannot be spread over %" PRIu32 " hosts",
            ranks, hosts);
    }
    AUTO_FREE uint32_t *sizes = calloc(hosts, sizeof *sizes);
    if (sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "topology: no memory for %" PRIu32 " hosts", hosts);
    }
    for (uint32_t host = 0; host < hosts; host++) {
        sizes[host] = ranks / hosts + (host < ranks % hosts ? 1 : 0);
    }
    return muster_topology_init(hosts, sizes, ret_topology);
}

void muster_topology_finish(struct muster_topology *topology)
{
    if (topology != NULL) {
        free(topology->host_sizes);
        free(topology->host_first);
        *topology = (struct muster_topology){0};
    }
}

/* The last host whose first rank is not after this one. */
static uint32_t host_of(const struct muster_topology *topology, uint32_t rank)
{
    uint32_t low = 0;
    uint32_t high = topology->hosts;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (topology->host_first[middle] <= rank) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

struct muster_position muster_topology_locate(const struct muster_topology *topology, uint32_t rank)
{
    struct muster_position position = {.host = host_of(topology, rank)};
    position.local_rank = rank - topology->host_first[position.host];
    position.local_size = topology->host_sizes[position.host];
    for (uint32_t host = 0; host < topology->hosts; host++) {
        if (topology->host_sizes[host] > position.local_rank) {
            position.cross_rank += host < position.host ? 1 : 0;
            position.cross_size++;
        }
    }
    return position;
}

uint32_t muster_topology_rank(const struct muster_topology *topology, uint32_t host,
                              uint32_t local_rank)
{
    return topology->host_first[host] + local_rank;
}
