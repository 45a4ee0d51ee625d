/* A call, as all members must make it: the values that are sent in frames and compared. */
#ifndef MUSTER_COLLECTIVES_CALL_CALL_H
#define MUSTER_COLLECTIVES_CALL_CALL_H

#include "collectives/call/collective.h"

/* Flags of a call. */
enum {
    MUSTER_CALL_ORDERED = 1, /* reproducible: reduced in the reduction order (shape.h) */
    MUSTER_CALL_TUNED = 2,   /* an autotune run is measuring such calls */
    /* Promises that all members ask for (call_plan.h). */
    MUSTER_CALL_KEEPS_INPUT = 4,
    MUSTER_CALL_FINISHES_TOGETHER = 8,
    MUSTER_CALL_COMPRESSION = 7 << 4, /* muster_compression, 0 for none */
    MUSTER_CALL_COMPRESSION_SHIFT = 4,
    MUSTER_CALL_SET = 128, /* creates a process set: `root` is how many members it has, and `count`
                              MUSTER_CALL_LISTED with a checksum of their ranks */
};

/* How many buffers an average divides by. Lists of buffers may differ in length between members, so
 * their lengths are added up by an exchange of its own. */
enum muster_counting {
    MUSTER_COUNTS_NOTHING = 0, /* it is known; or the number does not matter */
    MUSTER_COUNTS_BUFFERS = 1, /* an average over lists of buffers */
    MUSTER_COUNTS_ALONE = 2,   /* the exchange of the lengths */
};

/* Where the buffers of a call are. It matters where a device performs the call: then all members
 * must have theirs in its memory, as only members of the group can wait for each other there. */
enum muster_call_memory {
    MUSTER_CALL_ANYWHERE = 0,  /* memory of the host; or it makes no difference */
    MUSTER_CALL_ON_DEVICE = 1, /* all in memory of the device, which can perform such calls */
    MUSTER_CALL_MIXED = 2,     /* in memory of several devices, or of a device and of the host */
    MUSTER_CALL_BY_DEVICE = 4, /* a flag: the device performs the call */
};

/* What all members of a context must agree on for one operation; sent in every frame. */
struct muster_call {
    uint8_t collective; /* enum muster_collective */
    uint8_t type;       /* muster_type */
    uint8_t op;         /* muster_op; 0 where the collective does not reduce */
    uint8_t flags;      /* the above, MUSTER_CALL_ORDERED to MUSTER_CALL_SET */
    uint8_t counting;   /* enum muster_counting */
    uint8_t memory;     /* enum muster_call_memory; compared where a device performs the call */
    uint32_t algorithm; /* its number: see collectives/algorithms/algorithm.h */
    uint32_t root;      /* 0 if the collective has none; of a point-to-point message the tag */
    uint64_t count;     /* the caller's count, elements; or MUSTER_CALL_LISTED with a checksum */
    double prescale, postscale; /* 1: no scaling; 0 where nothing is reduced */
};

/* A flag in muster_call.count: the call has a count for each rank, and the low half is a checksum
 * of the list. Counts are far below it (MUSTER_ELEMENTS_MAX). */
#define MUSTER_CALL_LISTED (UINT64_C(1) << 63)

/* True if the two are equal. Else ret_text (size bytes) gets the first difference, for example
 * "count 100 here, 128 there". */
bool muster_call_matches(const struct muster_call *here, const struct muster_call *there,
                         char *ret_text, size_t size);

#endif
