/*
 * A cache of signatures: the calls by which operations were started, from a transfer posted here or
 * from a peer's unexpected message. With it members that call one operation with different
 * arguments find out even if none of their messages match: two roots of one broadcast only send.
 *
 * Bounded: an operation replaces an older one in its slot. A disagreement about the older one is
 * then found only where two of its messages match. Operations that create a process set have slots
 * of their own: they are few, and a member may disagree about a set long after the others have
 * created it.
 */
#ifndef MUSTER_WORKER_FABRIC_SIGNATURES_H
#define MUSTER_WORKER_FABRIC_SIGNATURES_H

#include "worker/fabric/transfers.h"

enum { MUSTER_SIGNATURES_MAX = 64, MUSTER_SET_SIGNATURES_MAX = 256 };

/* In place of a rank: this member. */
#define MUSTER_SIGNATURE_HERE UINT32_MAX

struct muster_signature {
    struct muster_operation_id operation; /* sequence 0: unused */
    struct muster_call call;
    uint32_t rank; /* of the caller */
};

struct muster_signatures {
    struct muster_signature slots[MUSTER_SIGNATURES_MAX];
    struct muster_signature sets[MUSTER_SET_SIGNATURES_MAX];
};

/* Stores the call of this rank. Returns the stored signature if it differs and one of the two is
 * this member's, else NULL. */
const struct muster_signature *muster_signatures_note(struct muster_signatures *signatures,
                                                      const struct muster_operation_id *operation,
                                                      const struct muster_call *call,
                                                      uint32_t rank);

#endif
