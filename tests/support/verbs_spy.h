/*
 * Counts the objects that the RDMA transport creates, and makes them fail. It wraps the functions
 * in the transport's table of libibverbs' symbols, so that it sees every call. For a whole program,
 * from verbs_spy_start() on; any thread.
 */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_SPY_H
#define MUSTER_TESTS_SUPPORT_VERBS_SPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before the first fabric. Fails the program where there is no libibverbs. */
void verbs_spy_start(void);

/* What the transport holds now. */
uint32_t verbs_spy_pairs(void); /* queue pairs */
uint32_t verbs_spy_regions(void);
size_t verbs_spy_region_bytes(void); /* registered */
uint32_t verbs_spy_shared(void);     /* open devices, completion queues, channels, domains */

/* Fails the test if it holds anything. */
void verbs_spy_expect_nothing_held(void);

/* Moves a queue pair to the error state, as a device does after an error. index: among the existing
 * ones, in the order of their creation. */
void verbs_spy_break_pair(uint32_t index);

/* After `more` further queue pairs the device refuses to create any (ENOMEM); UINT32_MAX: no limit
 * but the device's own. */
void verbs_spy_limit_pairs(uint32_t more);

/* Queue pairs that are connected from now on retransmit for ever, as Soft-RoCE does after seven
 * retries; or give up as the transport asks them to. */
void verbs_spy_never_give_up(bool never);

/* From now on the event that a port went down is reported as a fatal error of the device. */
void verbs_spy_make_fatal(bool fatal);

#endif
