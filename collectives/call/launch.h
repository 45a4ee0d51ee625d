/*
 * A launch: one collective as the executor and the devices carry it out on this rank. A request
 * (request.h) is what the caller asked for; a launch is what came out of checking it.
 *
 * The first part is the same for all launches of a cached operation, and muster_request_check()
 * fills it. The second part belongs to one launch, and the context fills it.
 */
#ifndef MUSTER_COLLECTIVES_CALL_LAUNCH_H
#define MUSTER_COLLECTIVES_CALL_LAUNCH_H

#include "collectives/call/call.h"
#include "collectives/call/compression.h"
#include "collectives/call/range_list.h"
#include "collectives/call/reduction.h"
#include "collectives/call/shape.h"

struct muster_device_memory; /* worker/device/devices.h */
struct muster_launch_moves;  /* worker/executor/executor.h */

/* The sizes of the caller's buffers on this rank; all buffers of a side have the same size. */
struct muster_buffer_sizes {
    uint64_t in_count, out_count; /* elements */
    uint64_t in_bytes, out_bytes;
    int64_t
        in_place_bytes; /* where the input of an in-place call starts, counted from its output */
};

struct muster_launch {
    struct muster_shape shape; /* its bounds are borrowed from the key of the operation */
    struct muster_buffer_sizes sizes;
    struct muster_packing packing; /* zeroed: the call is not compressed; else its schedule counts
                                      packs, and scratch is for packs */
    uint64_t contributions;        /* how many inputs an average divides by: one a rank, or the
                                      buffers of all ranks, which the context adds up */
    /* The call is in place, and keeps its input: `out` gets whole elements of the result only
     * (collectives/schedule/keep_input.h). */
    bool keeps;

    uint64_t generation;
    uint64_t sequence;       /* of the operation in its context */
    uint32_t context;        /* its number in the generation */
    struct muster_call call; /* compared with the peers' */
    struct muster_reduction reduction;
    const void
        *in;   /* INPUT of the schedule; the caller's buffer, or what was gathered from several */
    void *out; /* OUTPUT of the schedule */
    /* Several ranges as INPUT or OUTPUT; in and out are then only the first ones of them, and the
     * two lists are one if the call is in place. Borrowed. NULL: in and out are all there is. */
    const struct muster_range_list *in_ranges, *out_ranges;
    void *scratch; /* SCRATCH of the schedule, as long as it needs */
    /* Of a compressed call, whose schedule counts packs: room for the packs of INPUT and then of
     * OUTPUT. */
    void *packs;
    /* The allocation that `in` or `out` lies in, if it is memory of a device that all links of the
     * operation can read; NULL: memory of the host. Borrowed. */
    const struct muster_device_memory *in_memory, *out_memory;
    /* The caller's buffers are memory of a device, from which `in` and to which `out` is copied
     * while the operation runs; then it finishes the results, too. Borrowed. NULL: not so. */
    struct muster_launch_moves *moves;
    int64_t deadline_ns; /* of muster_clock_ns() */
    int32_t priority;    /* of its messages */
    /* Only the sequence and the deadline differ from the launch of the same operation before, which
     * was this record, too. */
    bool repeats;
};

#endif
