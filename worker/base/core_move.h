/* The floor: moves a thread to another core. */
#ifndef MUSTER_WORKER_BASE_CORE_MOVE_H
#define MUSTER_WORKER_BASE_CORE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* Moves the calling thread to one of the cores that its affinity names, counted from 0 and round
 * again, and leaves the affinity as it was: the scheduler may move it on. An affinity that somebody
 * else sets meanwhile stays, unless that happens in one of two moments, of some 100 ns each,
 * between a look and a change, which the kernel cannot do at once. False: it stays, because it is
 * there, because that one is of another NUMA node, or because the kernel does not let it. Asks by a
 * thread that it starts and joins: to be called seldom. */
bool muster_core_move(uint32_t place);

#endif
