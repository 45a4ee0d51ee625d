/* What match.c, which sends, and match_arrived.c, which receives, have in common. */
#ifndef MUSTER_WORKER_FABRIC_WIRE_MATCH_PARTS_H
#define MUSTER_WORKER_FABRIC_WIRE_MATCH_PARTS_H

#include "worker/fabric/wire/match.h"

/* transfer->link_word of a send: the offset of the next segment, with EAGER in state EAGER. Of a
 * receive: 0 in state POSTED, or one of these. */
#define MUSTER_WORD_EAGER (UINT64_C(1) << 63)
enum {
    MUSTER_WORD_GRANTED = 1,
    MUSTER_WORD_GET = 2,
};

/* frame.offset of a GRANT by get. */
enum { MUSTER_GRANT_BY_GET = 1 };

/* Queues a frame without data about the transfer; such frames are sent first. */
void muster_match_queue_about(struct muster_match *match, enum muster_frame_kind kind,
                              const struct muster_transfer *transfer);

/* Encodes the header; every frame carries the credit that is owed. */
void muster_match_encode(struct muster_match *match, struct muster_frame *frame,
                         unsigned char ret_header[MUSTER_FRAME_SIZE]);

/* The transfer of a stored frame is posted: muster_match_progress() handles it. */
void muster_match_queue_matched(struct muster_match *match, struct muster_unexpected *unexpected);

/* The message is not offered any more. */
void muster_match_retract_offer(struct muster_match *match, const struct muster_transfer *transfer);

#endif
