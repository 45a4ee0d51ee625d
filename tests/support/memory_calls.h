/*
 * Random operations in shared memory, made up from a seed alike on all ranks, and what must come of
 * them. They reduce with a function that is not associative, so that the order shows in the result.
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
    uint64_t *in, *out; /* in the caller's room */
};

/* Elements of the room that a rank's calls need. */
size_t memory_calls_room(uint32_t ranks);

/* Makes it up and fills the input. Methods that read buffers only if `buffers`. order is [ranks].
 */
void memory_call_make(uint64_t seed, uint64_t sequence, const uint32_t *order, uint32_t rank,
                      uint32_t ranks, bool buffers, uint64_t *room, struct memory_call *ret_call);

struct muster_group_step memory_call_work(const struct memory_call *call, int64_t deadline_ns,
                                          muster_group_memory_check look, void *user);

/* False: ret_text (size bytes) says what is wrong with the output; or with the input. */
bool memory_call_check(const struct memory_call *call, char *ret_text, size_t size);
bool memory_call_check_input(const struct memory_call *call, char *ret_text, size_t size);

#endif
