/* Ranks grouped by host, and hosts by rack, as a value. The ranks of a host are contiguous, and
 * hosts are in order: with host sizes {3, 1, 4} ranks 0-2 are on host 0, 3 on host 1, 4-7 on
 * host 2. Hosts may have different sizes (ragged), and so may racks. The hosts of a rack are
 * contiguous in the same way; by default all hosts are in one rack. */
#ifndef MUSTER_COLLECTIVES_CALL_TOPOLOGY_H
#define MUSTER_COLLECTIVES_CALL_TOPOLOGY_H

#include "collectives/call/collective.h"

/* The most ranks in one topology. */
enum { MUSTER_RANKS_MAX = 1 << 20 };

struct muster_topology {
    uint32_t hosts;       /* at least 1 */
    uint32_t ranks;       /* sum of the sizes, at least 1 */
    uint32_t *host_sizes; /* [hosts], each at least 1 */
    uint32_t *host_first; /* [hosts], the first rank of each */
    uint32_t racks;       /* at least 1 */
    uint32_t *rack_sizes; /* [racks], hosts in each, at least 1 */
    uint32_t *rack_first; /* [racks], the first host of each */
};

/* The position of one rank. */
struct muster_position {
    uint32_t host;       /* index of its host */
    uint32_t local_rank; /* among the ranks of its host */
    uint32_t local_size;
    uint32_t cross_rank; /* among the ranks with its local rank, in the order of hosts */
    uint32_t cross_size;
    uint32_t rack; /* index of its host's rack */
};

/* All hosts in one rack. Copies host_sizes. MUSTER_INVALID: no host, a host of size 0, more than
 * MUSTER_RANKS_MAX ranks; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_topology_init(uint32_t hosts, const uint32_t *host_sizes,
                                                  struct muster_topology *ret_topology);

/* Spreads ranks over hosts as evenly as possible, larger hosts first: 7 over 2 is {4, 3}. */
MUSTER_CHECKED muster_status muster_topology_init_even(uint32_t ranks, uint32_t hosts,
                                                       struct muster_topology *ret_topology);

/* Groups the hosts into racks of these sizes. Copies rack_sizes. MUSTER_INVALID: no rack, an empty
 * rack, or sizes that do not add up to the number of hosts; MUSTER_FATAL: no memory. The topology
 * is unchanged then. */
MUSTER_CHECKED muster_status muster_topology_set_racks(struct muster_topology *topology,
                                                       uint32_t racks, const uint32_t *rack_sizes);

/* The topology of some of its ranks, which increase in ranks[]: they keep their hosts and racks;
 * hosts and racks without any of them are left out. MUSTER_INVALID: no ranks, a rank out of range
 * or one that does not increase; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_topology_init_some(const struct muster_topology *all,
                                                       const uint32_t *ranks, uint32_t count,
                                                       struct muster_topology *ret_topology);

MUSTER_CHECKED muster_status muster_topology_init_copy(const struct muster_topology *topology,
                                                       struct muster_topology *ret_topology);

/* Accepts NULL and zeroed storage. */
void muster_topology_finish(struct muster_topology *topology);

/* The position of a rank, which is below topology->ranks. */
struct muster_position muster_topology_locate(const struct muster_topology *topology,
                                              uint32_t rank);

/* The index of a rank's host, by binary search. rank < topology->ranks. */
uint32_t muster_topology_host(const struct muster_topology *topology, uint32_t rank);

/* Ranks on the largest host and on the smallest one; hosts in the largest rack and in the smallest.
 */
uint32_t muster_topology_largest_host(const struct muster_topology *topology);
uint32_t muster_topology_smallest_host(const struct muster_topology *topology);
uint32_t muster_topology_largest_rack(const struct muster_topology *topology);
uint32_t muster_topology_smallest_rack(const struct muster_topology *topology);

/* The rack of a host, by its index. host < topology->hosts. */
uint32_t muster_topology_rack(const struct muster_topology *topology, uint32_t host);

/* The rank at (host, local_rank). Both must exist. */
uint32_t muster_topology_rank(const struct muster_topology *topology, uint32_t host,
                              uint32_t local_rank);

#endif
