/* What match.c, which says what goes out, and match_arrived.c, which takes what comes in, share. */
#ifndef MUSTER_WORKER_FABRIC_WIRE_MATCH_PARTS_H
#define MUSTER_WORKER_FABRIC_WIRE_MATCH_PARTS_H

#include "worker/fabric/wire/match.h"

/* transfer->link_word of a send: the offset of the next segment, and EAGER; of a receive: GRANTED.
 */
#define MUSTER_WORD_EAGER (UINT64_C(1) << 63)
enum {
    MUSTER_WORD_GRANTED = 1, /* it is to be sent */
    MUSTER_WORD_GET = 2,     /* the transport takes it */
};

/* frame.offset of a GRANT: the receive is posted, and would rather take than be sent. */
enum { MUSTER_GRANT_BY_GET = 1 };

/* A frame without data about the transfer, to go out before the others. */
void muster_match_queue_about(struct muster_match *match, enum muster_frame_kind kind,
                              const struct muster_transfer *transfer);

/* Its transfer is posted: muster_match_progress() is to deal with it. */
void muster_match_queue_matched(struct muster_match *match, struct muster_unexpected *unexpected);

/* It is not offered any more. */
void muster_match_retract_offer(struct muster_match *match, const struct muster_transfer *transfer);

#endif
