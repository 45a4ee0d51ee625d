/*
 * Remembers how operations are called: by a transfer posted here, or by what a peer has sent ahead.
 * So members that disagree find out even if no message of the one meets a message of the other: two
 * roots of one broadcast only send.
 *
 * Bounded: an operation gives way to another one in its place. A disagreement about it is then
 * found only where its messages meet.
 */
#ifndef MUSTER_WORKER_FABRIC_KNOWN_CALLS_H
#define MUSTER_WORKER_FABRIC_KNOWN_CALLS_H

#include "worker/fabric/transfers.h"

enum { MUSTER_CALLS_MAX = 64 };

/* As a rank: this member itself. */
#define MUSTER_CALLED_HERE UINT32_MAX

struct muster_known_call {
    struct muster_operation_id operation; /* sequence 0: unused */
    struct muster_call call;
    uint32_t rank; /* who calls so */
};

struct muster_calls {
    struct muster_known_call known[MUSTER_CALLS_MAX];
};

/* Notes that this rank calls the operation so. NULL, or what is known if that differs and one of
 * the two is this member. */
const struct muster_known_call *muster_calls_note(struct muster_calls *calls,
                                                  const struct muster_operation_id *operation,
                                                  const struct muster_call *call, uint32_t rank);

#endif
