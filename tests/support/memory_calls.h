/*
 * Random operations in shared memory, drawn from a seed in the same way on all ranks, and their
 * expected results. They reduce with a function that is not associative, so that the result depends
 * on the order.
 */
#ifndef MUSTER_TESTS_SUPPORT_MEMORY_CALLS_H
#define MUSTER_TESTS_SUPPORT_MEMORY_CALLS_H

#include "worker/device/host/group_memory.h"

enum { MEMORY_CALLS_RANKS_MAX = 9, MEMORY_CALLS_COUNT_MAX = 100000 };

/* One rank's part of operation number `sequence`. */
struct memory_call {
    uint64_t seed, sequence;
    const uint32_t *order; /* [ranks], borrowed */
    struct muster_shape shape;
    uint64_t bounds[MEMORY_CALLS_RANKS_MAX + 1];
    struct muster_call call;
    struct muster_reduction reduction;
    unsigned method;
    bool in_place, buffers;
    uint64_t *in, *out;          /* in the caller's memory */
    struct muster_launch launch; /* filled by memory_call_step() */
};

/* The elements of memory that the calls of a rank need. */
size_t memory_calls_elements(uint32_t ranks);

/* Draws a call and fills its input. Only if `buffers` may its method read buffers. order is
 * [ranks]. */
void memory_call_make(uint64_t seed, uint64_t sequence, const uint32_t *order, uint32_t rank,
                      uint32_t ranks, bool buffers, uint64_t *memory, struct memory_call *ret_call);

/* Borrows call->launch. */
struct muster_group_launch memory_call_step(struct memory_call *call, int64_t deadline_ns,
                                            muster_group_check check, void *user);

/* Runs the step as one in flight, by polls, until it has ended or its deadline has passed. memory
 * is a second part, or one in which all operations are polled. */
muster_status memory_call_poll(struct muster_group_memory *memory,
                               const struct muster_group_launch *step, bool announces,
                               uint32_t *ret_suspect);

/* Check the output, or the input. False: ret_text (size bytes) says which element is wrong. */
bool memory_call_check(const struct memory_call *call, char *ret_text, size_t size);
bool memory_call_check_input(const struct memory_call *call, char *ret_text, size_t size);

#endif
