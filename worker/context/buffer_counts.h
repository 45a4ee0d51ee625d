/*
 * Averages over lists of buffers, which may differ in length between the ranks: the ranks add up
 * how many buffers there are. A blocking call does so by an operation before its own, a call in
 * flight by messages when its own operation is done: so calls that differ between the ranks end
 * with one number on all of them either way.
 *
 * Private to the context.
 */
#ifndef MUSTER_WORKER_CONTEXT_BUFFER_COUNTS_H
#define MUSTER_WORKER_CONTEXT_BUFFER_COUNTS_H

#include "worker/base/status.h"
#include "worker/context/context_parts.h"

/* The caller has the turn; operations that it has found may be gone afterwards. Counts as a launch
 * of an operation: its number, its failures. */
MUSTER_CHECKED muster_status muster_context_count_buffers(struct muster_context *context,
                                                          const struct muster_request *request,
                                                          uint32_t *ret_suspect, uint64_t *ret_all);

/* For a call in flight: its operation and its launch, but for the number. counts: the number of
 * this rank, that of all, and scratch; they stay as long as the launch. */
enum { MUSTER_BUFFER_COUNTS_SIZE = 4 };
MUSTER_CHECKED muster_status muster_buffer_counts_make(const struct muster_context *context,
                                                       struct muster_operation **ret_operation,
                                                       struct muster_launch *ret_launch);
void muster_buffer_counts_bind(const struct muster_request *request,
                               uint64_t counts[MUSTER_BUFFER_COUNTS_SIZE],
                               struct muster_launch *launch);

#endif
