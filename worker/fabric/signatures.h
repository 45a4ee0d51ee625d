/*
 * Remembers how operations are called: by a transfer posted here, or by what a peer has sent ahead.
 * So members that disagree find out even if no message of the one meets a message of the other: two
 * roots of one broadcast only send.
 *
 * Bounded: an operation gives way to another one in its place. A disagreement about it is then
 * found only where its messages meet.
 */
#ifndef MUSTER_WORKER_FABRIC_SIGNATURES_H
#define MUSTER_WORKER_FABRIC_SIGNATURES_H

#include "worker/fabric/transfers.h"

enum { MUSTER_SIGNATURES_MAX = 64 };

/* As a rank: this member itself. */
#define MUSTER_SIGNATURE_HERE UINT32_MAX

struct muster_signature {
    struct muster_operation_id operation; /* sequence 0: unused */
    struct muster_call call;
    uint32_t rank; /* who calls so */
};

struct muster_signatures {
    struct muster_signature known[MUSTER_SIGNATURES_MAX];
};

/* Notes that this rank calls the operation so. NULL, or what is known if that differs and one of
 * the two is this member. */
const struct muster_signature *muster_signatures_note(struct muster_signatures *calls,
                                                      const struct muster_operation_id *operation,
                                                      const struct muster_call *call,
                                                      uint32_t rank);

#endif
