/*
 * Collectives of ranks that share memory, done in it as one: host-local group steps.
 *
 * One struct muster_group_memory is one rank's part of one group (a context) in one generation. All
 * ranks call the same operations in the same order, as in any context.
 *
 * Threads: one at a time, but for muster_group_memory_create() and _open().
 *
 * May use: base, the words and kernels of collectives. May not know: schedules, fabrics, contexts.
 */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_MEMORY_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_MEMORY_H

#include "collectives/call/call.h"
#include "collectives/call/shape.h"
#include "collectives/reduce/reduce.h"

struct muster_group_memory;

enum {
    MUSTER_GROUP_RANKS_MAX = 64,
    MUSTER_GROUP_STAGING_BYTES = 256 << 10, /* of input that a rank can lay down */
    MUSTER_GROUP_STREAM_BYTES = 4 << 20,    /* an output that a core's caches do not hold */
};

struct muster_group_memory_options {
    uint32_t rank, ranks;  /* 2 to MUSTER_GROUP_RANKS_MAX */
    const uint32_t *names; /* [ranks] how texts call them; borrowed for its life */
    const uint32_t *order; /* [ranks] in which their inputs are reduced; borrowed likewise */
    uint32_t cores;        /* that they may use */
    size_t stream_bytes;   /* from this size on outputs go past the caches */
};

/* Makes the memory, for one rank; the others get the descriptor from it and open that.
 * MUSTER_FATAL: no memory or descriptors; MUSTER_INVALID: the descriptor is not of such memory, or
 * the seat is taken. */
MUSTER_CHECKED muster_status muster_group_memory_create(
    const struct muster_group_memory_options *options, struct muster_group_memory **ret_memory);
/* Takes the descriptor, also on failure. */
MUSTER_CHECKED muster_status
muster_group_memory_open(const struct muster_group_memory_options *options, int fd,
                         struct muster_group_memory **ret_memory);
/* Says so to those who would wait for this rank. Accepts NULL. */
void muster_group_memory_destroy(struct muster_group_memory *memory);

/* To be handed to the others; the memory's own. */
int muster_group_memory_descriptor(const struct muster_group_memory *memory);

/* Once all have opened it: true if this process may read the others' own buffers. */
bool muster_group_memory_probe(struct muster_group_memory *memory);

/* Operations are numbered from the one after this. All say the same, before the first of them. */
void muster_group_memory_begin(struct muster_group_memory *memory, uint64_t sequence);

/* Ends a wait early. Asked every now and then; MUSTER_OK: go on waiting. */
typedef muster_status (*muster_group_memory_check)(void *user, uint32_t *ret_suspect);

/* One operation, on one rank. Everything is borrowed for the call. */
struct muster_group_step {
    uint64_t sequence;
    const struct muster_call *call; /* compared with the others' */
    const struct muster_shape *shape;
    const struct muster_reduction *reduction; /* NULL where nothing is reduced */
    unsigned method;                          /* enum muster_memory_method; alike on all ranks */
    bool buffers;                             /* all can read the others'; likewise */
    const void *in;
    void *out;
    int64_t deadline_ns;
    muster_group_memory_check check;
    void *user; /* of look */
};

/* Blocks until this rank's part is done. MUSTER_INVALID: the ranks call differently; every rank
 * that takes part finds it out; MUSTER_RETRY: the deadline has passed; MUSTER_REJOIN: a rank died
 * or gave up, or `look` said so. ret_suspect: who died or is waited for, by its name, else
 * unchanged. The input is intact, unless the call was in place. After MUSTER_RETRY and
 * MUSTER_REJOIN this rank takes part no more. */
MUSTER_CHECKED muster_status muster_group_memory_run(struct muster_group_memory *memory,
                                                     const struct muster_group_step *step,
                                                     uint32_t *ret_suspect);

/* For an operation that is done elsewhere: says so to those who do something else here, so that
 * they end with MUSTER_INVALID. Waits until all have begun the operation before. Of work it needs
 * the sequence, the call, the deadline and look. */
MUSTER_CHECKED muster_status muster_group_memory_announce(struct muster_group_memory *memory,
                                                          const struct muster_group_step *step,
                                                          uint32_t *ret_suspect);

#endif
