/* A call, as all members must make it: the words that travel in frames and are compared. */
#ifndef MUSTER_COLLECTIVES_CALL_CALL_H
#define MUSTER_COLLECTIVES_CALL_CALL_H

#include "collectives/call/collective.h"

/* Flags of a call. */
enum {
    MUSTER_CALL_ORDERED = 1, /* reproducible: reduced in the reduction order (shape.h) */
    MUSTER_CALL_TUNED = 2,   /* which algorithm suits such calls is still being found out */
};

/* What all members of a context must agree on for one operation; travels in every frame. */
struct muster_call {
    uint8_t collective; /* enum muster_collective */
    uint8_t type;       /* muster_type */
    uint8_t op;         /* muster_op; 0 where the collective does not reduce */
    uint8_t flags;      /* MUSTER_CALL_ORDERED, MUSTER_CALL_TUNED */
    uint8_t inputs;     /* that each member reduces on its own before; 0 where nothing is reduced */
    uint32_t algorithm; /* its number: see collectives/algorithms/algorithm.h */
    uint32_t root;      /* 0 where there is none */
    uint64_t count;     /* the caller's count, elements; or MUSTER_CALL_LISTED with a checksum */
    double prescale, postscale; /* 0 where nothing is reduced, 1 where there are none */
};

/* In muster_call.count: the call has a count for each rank, and the low half is a checksum of them.
 * Counts are far below it (MUSTER_ELEMENTS_MAX). */
#define MUSTER_CALL_LISTED (UINT64_C(1) << 63)

/* True if both say the same. Else false, and ret_text (size bytes) says what differs, for example
 * "count 100 here, 128 there". */
bool muster_call_matches(const struct muster_call *here, const struct muster_call *there,
                         char *ret_text, size_t size);

#endif
