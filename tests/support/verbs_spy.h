/*
 * Looks over the RDMA transport's shoulder, and breaks what it uses: stands between the transport
 * and libibverbs, by the table of its symbols, so that it serves whatever the transport makes of
 * them. For a whole program, from verbs_spy_start() on; any thread.
 */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_SPY_H
#define MUSTER_TESTS_SUPPORT_VERBS_SPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before the first fabric. Fails the program where there is no libibverbs. */
void verbs_spy_start(void);

/* What the transport holds at the moment. */
uint32_t verbs_spy_pairs(void); /* queue pairs */
uint32_t verbs_spy_regions(void);
size_t verbs_spy_region_bytes(void); /* registered */
uint32_t verbs_spy_shared(void);     /* open devices, completion queues, channels, domains */

/* Fails the test if it holds anything. */
void verbs_spy_expect_nothing_held(void);

/* Moves all queue pairs to the state of error, as a device does that has met one. The n-th of those
 * there are, in the order in which they were made. */
void verbs_spy_break_pair(uint32_t index);

/* How many more queue pairs can be made before the device says that it has no more; UINT32_MAX: as
 * many as it has. */
void verbs_spy_limit_pairs(uint32_t more);

/* From now on a port that goes down is told as the end of the whole device. */
void verbs_spy_make_fatal(bool fatal);

#endif
