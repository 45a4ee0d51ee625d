/* Ranks grouped by host, and hosts by rack, as a value. Ranks are contiguous on a host, hosts in
 * order: with host sizes {3, 1, 4} ranks 0-2 are on host 0, 3 on host 1, 4-7 on host 2. Hosts may
 * have different sizes (ragged), and so may racks. Hosts are contiguous in a rack in the same way;
 * where nobody says otherwise all of them are in one. */
#ifndef MUSTER_COLLECTIVES_CALL_TOPOLOGY_H
#define MUSTER_COLLECTIVES_CALL_TOPOLOGY_H

#include "collectives/call/collective.h"

/* Ranks in one topology at most. */
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

/* Where one rank stands. */
struct muster_position {
    uint32_t host;       /* index of its host */
    uint32_t local_rank; /* among the ranks of its host */
    uint32_t local_size;
    uint32_t cross_rank; /* among the hosts that have its local rank, in host order */
    uint32_t cross_size;
    uint32_t rack; /* index of its host's rack */
};

/* All hosts in one rack. Copies host_sizes. MUSTER_INVALID: no host, a host of size 0, more than
 * MUSTER_RANKS_MAX ranks; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_topology_init(uint32_t hosts, const uint32_t *host_sizes,
                                                  struct muster_topology *ret_topology);

/* Spreads ranks over hosts as evenly as can be, earlier hosts first: 7 over 2 is {4, 3}. */
MUSTER_CHECKED muster_status muster_topology_init_even(uint32_t ranks, uint32_t hosts,
                                                       struct muster_topology *ret_topology);

/* Puts the hosts into racks of so many hosts each. Copies rack_sizes. MUSTER_INVALID: no rack, a
 * rack of no hosts, or not as many hosts in all as there are; MUSTER_FATAL: no memory; nothing has
 * changed then. */
MUSTER_CHECKED muster_status muster_topology_set_racks(struct muster_topology *topology,
                                                       uint32_t racks, const uint32_t *rack_sizes);

/* Where so many of its ranks stand, which rise in ranks[]: they keep their hosts and racks; hosts
 * and racks without any of them are left out. MUSTER_INVALID: no ranks, a rank that is not there or
 * does not rise; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_topology_init_some(const struct muster_topology *all,
                                                       const uint32_t *ranks, uint32_t count,
                                                       struct muster_topology *ret_topology);

MUSTER_CHECKED muster_status muster_topology_init_copy(const struct muster_topology *topology,
                                                       struct muster_topology *ret_topology);

/* Accepts NULL and zeroed storage. */
void muster_topology_finish(struct muster_topology *topology);

/* rank < topology->ranks. */
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
