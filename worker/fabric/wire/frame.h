/*
 * The wire header: what stands before every payload on a byte stream. README.md has the table.
 * Numbers are little-endian; the last field is the CRC-32 of those before it. Nothing that is read
 * is believed before muster_frame_decode() has passed it.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_FRAME_H
#define MUSTER_WORKER_FABRIC_WIRE_FRAME_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

enum {
    MUSTER_FRAME_SIZE = 96,
    MUSTER_FRAME_VERSION = 3,
    MUSTER_FRAME_PAYLOAD_MAX = 256 * 1024,
    MUSTER_OFFER_MAX = 64,        /* payload of an offer: where the data is; on one host only */
    MUSTER_EAGER_MAX = 16 * 1024, /* larger messages wait for a grant */
    MUSTER_EAGER_WINDOW_BYTES = 1024 * 1024, /* sent eagerly and not yet credited, per link */
    MUSTER_EAGER_CHARGE_BYTES = 128,         /* each costs so much beside its size */
};

enum muster_frame_kind {
    MUSTER_FRAME_EAGER = 1,     /* a whole message, unasked */
    MUSTER_FRAME_OFFER = 2,     /* a message waits for a grant */
    MUSTER_FRAME_GRANT = 3,     /* its receive is posted */
    MUSTER_FRAME_SEGMENT = 4,   /* a part of a granted message, in order */
    MUSTER_FRAME_ABORT = 5,     /* the operation has failed at the sender; payload: why */
    MUSTER_FRAME_CREDIT = 6,    /* only carries credit */
    MUSTER_FRAME_GOODBYE = 7,   /* the last frame */
    MUSTER_FRAME_GET_DONE = 8,  /* the receiver has taken what was offered; on one host only */
    MUSTER_FRAME_SIGNATURE = 9, /* how the sender, who waits in it, calls an operation */
};

struct muster_frame {
    enum muster_frame_kind kind;
    struct muster_message_key key;
    struct muster_call call;
    uint64_t offset; /* SEGMENT: of the payload in the message */
    uint64_t total;  /* size of the message */
    uint32_t length; /* of the payload */
    uint32_t credit; /* eager bytes that the sender of this frame has dealt with since the last */
};

void muster_frame_encode(const struct muster_frame *frame,
                         unsigned char ret_bytes[MUSTER_FRAME_SIZE]);

/* The same without a checksum: the bytes do not leave the host, or the device has one of its own.
 */
void muster_frame_encode_unchecked(const struct muster_frame *frame,
                                   unsigned char ret_bytes[MUSTER_FRAME_SIZE]);
MUSTER_CHECKED muster_status muster_frame_decode_unchecked(
    const unsigned char bytes[MUSTER_FRAME_SIZE], struct muster_frame *ret_frame);

/* Of the payload of a frame that was encoded here. */
uint32_t muster_frame_length(const unsigned char bytes[MUSTER_FRAME_SIZE]);

/* MUSTER_INVALID: not a frame, or one with a field out of its bounds; the text names it. */
MUSTER_CHECKED muster_status muster_frame_decode(const unsigned char bytes[MUSTER_FRAME_SIZE],
                                                 struct muster_frame *ret_frame);

#endif
