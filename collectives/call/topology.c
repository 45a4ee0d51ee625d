/* Topologies: ranks on hosts, hosts in racks. */
#include "collectives/call/topology.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Groups of the given sizes, one after the other: copies the sizes, and finds where each group
 * begins and how many items there are. unit and item are for error texts: "host", "ranks". */
static muster_status lay_out(const char *unit, const char *item, uint32_t groups,
                             const uint32_t *sizes, uint32_t **ret_sizes, uint32_t **ret_first,
                             uint32_t *ret_items)
{
    if (groups == 0 || groups > MUSTER_RANKS_MAX) {
        return muster_error_set(MUSTER_INVALID, "topology: %" PRIu32 " %ss, must be 1..%d", groups,
                                unit, MUSTER_RANKS_MAX);
    }
    AUTO_FREE uint32_t *copies = calloc(groups, sizeof *copies);
    AUTO_FREE uint32_t *first = calloc(groups, sizeof *first);
    if (copies == NULL || first == NULL) {
        return muster_error_set(MUSTER_FATAL, "topology: no memory for %" PRIu32 " %ss", groups,
                                unit);
    }
    uint32_t items = 0;
    for (uint32_t i = 0; i < groups; i++) {
        if (sizes[i] == 0) {
            return muster_error_set(MUSTER_INVALID, "topology: %s %" PRIu32 " has no %s", unit, i,
                                    item);
        }
        if (sizes[i] > MUSTER_RANKS_MAX - items) {
            return muster_error_set(MUSTER_INVALID, "topology: more than %d %s", MUSTER_RANKS_MAX,
                                    item);
        }
        copies[i] = sizes[i];
        first[i] = items;
        items += sizes[i];
    }
    *ret_sizes = TAKE(copies);
    *ret_first = TAKE(first);
    *ret_items = items;
    return MUSTER_OK;
}

muster_status muster_topology_init(uint32_t hosts, const uint32_t *host_sizes,
                                   struct muster_topology *ret_topology)
{
    struct muster_topology topology = {.hosts = hosts};
    TRY(lay_out("host", "ranks", hosts, host_sizes, &topology.host_sizes, &topology.host_first,
                &topology.ranks));
    muster_status status = muster_topology_set_racks(&topology, 1, &hosts);
    if (status != MUSTER_OK) {
        muster_topology_finish(&topology);
        return status;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

muster_status muster_topology_set_racks(struct muster_topology *topology, uint32_t racks,
                                        const uint32_t *rack_sizes)
{
    AUTO_FREE uint32_t *sizes = NULL;
    AUTO_FREE uint32_t *first = NULL;
    uint32_t hosts = 0;
    TRY(lay_out("rack", "hosts", racks, rack_sizes, &sizes, &first, &hosts));
    if (hosts != topology->hosts) {
        return muster_error_set(MUSTER_INVALID,
                                "topology: racks for %" PRIu32 " hosts, but there are %" PRIu32,
                                hosts, topology->hosts);
    }
    free(topology->rack_sizes);
    free(topology->rack_first);
    topology->racks = racks;
    topology->rack_sizes = TAKE(sizes);
    topology->rack_first = TAKE(first);
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

muster_status muster_topology_init_copy(const struct muster_topology *topology,
                                        struct muster_topology *ret_topology)
{
    struct muster_topology copy = {0};
    TRY(muster_topology_init(topology->hosts, topology->host_sizes, &copy));
    muster_status status = muster_topology_set_racks(&copy, topology->racks, topology->rack_sizes);
    if (status != MUSTER_OK) {
        muster_topology_finish(&copy);
        return status;
    }
    *ret_topology = copy;
    return MUSTER_OK;
}

/* The group that contains the item: the last one that does not begin after it. */
static uint32_t group_of(uint32_t groups, const uint32_t *first, uint32_t item)
{
    uint32_t low = 0;
    uint32_t high = groups;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (first[middle] <= item) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Counts the ranks on each host, and these hosts in each rack; the arrays are large enough. */
static muster_status count_some(const struct muster_topology *all, const uint32_t *ranks,
                                uint32_t count, struct muster_topology *some)
{
    uint32_t last_host = UINT32_MAX;
    uint32_t last_rack = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= all->ranks || (i > 0 && ranks[i] <= ranks[i - 1])) {
            return muster_error_set(MUSTER_INVALID,
                                    "topology: rank %" PRIu32 " of %" PRIu32
                                    " is out of range or order",
                                    ranks[i], all->ranks);
        }
        uint32_t host = group_of(all->hosts, all->host_first, ranks[i]);
        uint32_t rack = muster_topology_rack(all, host);
        some->racks += rack != last_rack;
        some->rack_sizes[some->racks - 1] += host != last_host;
        some->hosts += host != last_host;
        some->host_sizes[some->hosts - 1]++;
        last_host = host;
        last_rack = rack;
    }
    return MUSTER_OK;
}

muster_status muster_topology_init_some(const struct muster_topology *all, const uint32_t *ranks,
                                        uint32_t count, struct muster_topology *ret_topology)
{
    AUTO_FREE uint32_t *host_sizes = calloc(all->hosts, sizeof *host_sizes);
    AUTO_FREE uint32_t *rack_sizes = calloc(all->racks, sizeof *rack_sizes);
    if (host_sizes == NULL || rack_sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "topology: no memory for %" PRIu32 " hosts",
                                all->hosts);
    }
    struct muster_topology some = {.host_sizes = host_sizes, .rack_sizes = rack_sizes};
    TRY(count_some(all, ranks, count, &some));
    struct muster_topology topology = {0};
    TRY(muster_topology_init(some.hosts, host_sizes, &topology));
    muster_status status = muster_topology_set_racks(&topology, some.racks, rack_sizes);
    if (status != MUSTER_OK) {
        muster_topology_finish(&topology);
        return status;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

void muster_topology_finish(struct muster_topology *topology)
{
    if (topology != NULL) {
        free(topology->host_sizes);
        free(topology->host_first);
        free(topology->rack_sizes);
        free(topology->rack_first);
        *topology = (struct muster_topology){0};
    }
}

struct muster_position muster_topology_locate(const struct muster_topology *topology, uint32_t rank)
{
    struct muster_position position = {.host =
                                           group_of(topology->hosts, topology->host_first, rank)};
    position.local_rank = rank - topology->host_first[position.host];
    position.local_size = topology->host_sizes[position.host];
    position.rack = muster_topology_rack(topology, position.host);
    for (uint32_t host = 0; host < topology->hosts; host++) {
        if (topology->host_sizes[host] > position.local_rank) {
            position.cross_rank += host < position.host ? 1 : 0;
            position.cross_size++;
        }
    }
    return position;
}

uint32_t muster_topology_host(const struct muster_topology *topology, uint32_t rank)
{
    return group_of(topology->hosts, topology->host_first, rank);
}

static uint32_t largest(uint32_t count, const uint32_t *sizes)
{
    uint32_t size = sizes[0];
    for (uint32_t i = 1; i < count; i++) {
        size = sizes[i] > size ? sizes[i] : size;
    }
    return size;
}

static uint32_t smallest(uint32_t count, const uint32_t *sizes)
{
    uint32_t size = sizes[0];
    for (uint32_t i = 1; i < count; i++) {
        size = sizes[i] < size ? sizes[i] : size;
    }
    return size;
}

uint32_t muster_topology_largest_host(const struct muster_topology *topology)
{
    return largest(topology->hosts, topology->host_sizes);
}

uint32_t muster_topology_smallest_host(const struct muster_topology *topology)
{
    return smallest(topology->hosts, topology->host_sizes);
}

uint32_t muster_topology_largest_rack(const struct muster_topology *topology)
{
    return largest(topology->racks, topology->rack_sizes);
}

uint32_t muster_topology_smallest_rack(const struct muster_topology *topology)
{
    return smallest(topology->racks, topology->rack_sizes);
}

uint32_t muster_topology_rack(const struct muster_topology *topology, uint32_t host)
{
    return group_of(topology->racks, topology->rack_first, host);
}

uint32_t muster_topology_rank(const struct muster_topology *topology, uint32_t host,
                              uint32_t local_rank)
{
    return topology->host_first[host] + local_rank;
}
