/*
 * The order of ranks by host: from ranks as a caller numbers them, which may lie on hosts in any
 * order, to a topology, whose ranks of a host follow each other. Pure.
 *
 * May use: topology, base.
 */
#ifndef MUSTER_COLLECTIVES_CALL_HOST_ORDER_H
#define MUSTER_COLLECTIVES_CALL_HOST_ORDER_H

#include "collectives/call/topology.h"

/* Racks, and hosts within a rack, come in the order of their lowest caller's ranks, and the ranks
 * of a host keep the caller's order: ranks that are contiguous by host keep their numbers, as do
 * all ranks of one host.
 *
 * hosts[i], racks[i]: the host and the rack of the caller's rank i, as any number below `ranks`;
 * racks may be NULL (all in one), and is read for the lowest rank of each host. ret_callers has
 * room for [ranks]: the caller's rank of each rank of the topology. MUSTER_INVALID: no ranks or too
 * many, a number out of range; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_host_order(uint32_t ranks, const uint32_t *hosts,
                                               const uint32_t *racks, uint32_t *ret_callers,
                                               struct muster_topology *ret_topology);

/* Whether callers[i] == i for all ranks. */
bool muster_ranks_are_in_order(const uint32_t *callers, uint32_t ranks);

#endif
