/*
 * Counts what the RDMA transport holds, and breaks it on request: sits between the transport and
 * libibverbs, in the table of its symbols. For a whole program, from verbs_spy_start() on; any
 * thread.
 */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_SPY_H
#define MUSTER_TESTS_SUPPORT_VERBS_SPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before the first fabric. Fails the program if there is no libibverbs. */
void verbs_spy_start(void);

/* What the transport holds at the moment. */
uint32_t verbs_spy_pairs(void); /* queue pairs */
uint32_t verbs_spy_regions(void);
size_t verbs_spy_region_bytes(void); /* registered */
uint32_t verbs_spy_shared(void);     /* open devices, completion queues, channels, domains */

/* Fails the test if it holds anything. */
void verbs_spy_expect_nothing_held(void);

/* Moves all queue pairs to the error state, as a device does after an error; or the n-th, in the
 * order of creation. */
void verbs_spy_break_pair(uint32_t index);

/* How many more queue pairs can be created before the device refuses; UINT32_MAX: no limit of this.
 */
void verbs_spy_limit_pairs(uint32_t more);

/* From now on a port that goes down is reported as the end of the whole device. */
void verbs_spy_make_fatal(bool fatal);

#endif
