/*
 * Ranges in memory of a device: each is staged in memory of the host, one behind the other. So
 * those of a list that are all a device's become one ordinary buffer; ranges of the host stay
 * where they are.
 *
 * Private to the context. May use: device, collectives, trace, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_STAGED_RANGES_H
#define MUSTER_WORKER_CONTEXT_STAGED_RANGES_H

#include "collectives/call/request_ranges.h"
#include "worker/context/scratch.h"

struct muster_timeline;

/* One list. Zeroed: an empty one. */
struct muster_staged_list {
    muster_range *ranges;    /* [count] as the call uses them: memory of the host */
    void **device_addresses; /* [count] the caller's; NULL: the range is not staged */
    size_t count, room;
};

/* The staged ranges of one call. Zeroed: none. Kept from call to call, for its memory. */
struct muster_staged_ranges {
    bool active;     /* there are some */
    bool sends;      /* this member has input: it is not the receiver of a broadcast */
    bool sends_outs; /* the input is in outs: in place, or of a broadcast; ins are then empty */
    struct muster_staged_list ins, outs;
    size_t element_size_bytes;
    struct muster_scratch memory;
};

void muster_staged_ranges_finish(struct muster_staged_ranges *staged);

/* A call on ranges that have been checked; they are not needed after the begin. */
struct muster_staging_call {
    struct muster_given_ranges given;
    size_t element_size_bytes;
    bool in_place; /* ins are outs */
    bool sends;
};

/* Stages the ranges in memory of a device, if there are any: fills ret_given with lists of memory
 * of the host, borrowed from `staged`; nothing is copied yet. Else ret_given is unchanged.
 * MUSTER_INVALID: a range goes beyond the end of its allocation. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_staged_ranges_begin(struct muster_staged_ranges *staged,
                                                        const struct muster_staging_call *call,
                                                        struct muster_given_ranges *ret_given);

/* Copy the input from the device, and the output to it. Both block, and do nothing where no range
 * is staged. Any thread. MUSTER_FATAL: the device's name of the error. */
MUSTER_CHECKED muster_status muster_staged_ranges_fetch(const struct muster_staged_ranges *staged,
                                                        struct muster_timeline *timeline);
MUSTER_CHECKED muster_status muster_staged_ranges_store(const struct muster_staged_ranges *staged,
                                                        struct muster_timeline *timeline);

#endif
