/* The floor: moves a thread to another core. */
#ifndef MUSTER_WORKER_BASE_CORE_MOVE_H
#define MUSTER_WORKER_BASE_CORE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* Moves the calling thread to one of the cores in its affinity, counted from 0, modulo their
 * number. The affinity is restored: the scheduler may move the thread on. An affinity that another
 * thread sets during the call is not overwritten, except in two windows of some 100 ns each,
 * between a read and the write after it: the kernel has no call that does both at once. False, and
 * the thread stays: it is on that core already, the core is on another NUMA node, or the kernel
 * refuses. Starts and joins a helper thread, so it is to be called seldom. */
bool muster_core_move(uint32_t index);

#endif
