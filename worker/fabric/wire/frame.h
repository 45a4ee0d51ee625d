/*
 * A frame: a header, and a payload of some kinds. README.md has the table of the header. Numbers
 * are little-endian; the last field is the CRC-32 of the others. No received field is used before
 * muster_frame_decode() has checked all of them.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_FRAME_H
#define MUSTER_WORKER_FABRIC_WIRE_FRAME_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

enum {
    MUSTER_FRAME_SIZE = 96,
    MUSTER_FRAME_PAYLOAD_MAX = 256 * 1024,
    MUSTER_OFFER_MAX = 64,        /* payload of an OFFER: where the data is; within one host only */
    MUSTER_EAGER_MAX = 16 * 1024, /* bytes; larger messages are sent by rendezvous */
    MUSTER_EAGER_WINDOW_BYTES = 1024 * 1024, /* of a link: sent eagerly, no credit returned yet */
    MUSTER_EAGER_CHARGE_BYTES = 128,         /* of the window for each message, besides its size */
};

enum muster_frame_kind {
    MUSTER_FRAME_EAGER = 1,     /* a whole message, without a grant */
    MUSTER_FRAME_OFFER = 2,     /* a message waits for its grant */
    MUSTER_FRAME_GRANT = 3,     /* the receive of a message is posted */
    MUSTER_FRAME_SEGMENT = 4,   /* the next part of a granted message */
    MUSTER_FRAME_ABORT = 5,     /* the operation has failed at the sender; payload: the reason */
    MUSTER_FRAME_CREDIT = 6,    /* only for its field credit */
    MUSTER_FRAME_GOODBYE = 7,   /* the last frame of a member that leaves */
    MUSTER_FRAME_GET_DONE = 8,  /* the receiver has got an offered message; within one host only */
    MUSTER_FRAME_SIGNATURE = 9, /* the call of an operation in which the sender waits */
    MUSTER_FRAME_REFUSAL = 10,  /* an offered message will not be received; payload: the reason */
    MUSTER_FRAME_RANK = 11, /* of a link that is kept: the sender's rank (root) in the generation */
};

struct muster_frame {
    enum muster_frame_kind kind;
    struct muster_message_key key;
    struct muster_call call;
    uint64_t offset; /* SEGMENT: of the payload in the message */
    uint64_t total;  /* size of the message */
    uint32_t length; /* of the payload */
    uint32_t credit; /* bytes of the receiver's eager window that are free since the last frame */
};

void muster_frame_encode(const struct muster_frame *frame,
                         unsigned char ret_bytes[MUSTER_FRAME_SIZE]);

/* The same without the checksum, where bytes do not leave the host or the device has its own. */
void muster_frame_encode_unchecked(const struct muster_frame *frame,
                                   unsigned char ret_bytes[MUSTER_FRAME_SIZE]);
MUSTER_CHECKED muster_status muster_frame_decode_unchecked(
    const unsigned char bytes[MUSTER_FRAME_SIZE], struct muster_frame *ret_frame);

/* An EAGER frame without checksum in fewer instructions, for small messages of which every one
 * counts: the call has no factors. */
void muster_frame_encode_eager_unchecked(const struct muster_message_key *key,
                                         const struct muster_call *call, uint32_t length,
                                         uint32_t credit,
                                         unsigned char ret_bytes[MUSTER_FRAME_SIZE]);
/* Whether the bytes are such a frame, with this key and element type, and no field is out of its
 * bounds. Only then *ret_call, *ret_length and *ret_credit are written. */
bool muster_frame_decode_eager_unchecked(const unsigned char bytes[MUSTER_FRAME_SIZE],
                                         const struct muster_message_key *key, uint8_t type,
                                         struct muster_call *ret_call, uint32_t *ret_length,
                                         uint32_t *ret_credit);

/* The length of the payload of a frame that was encoded here. */
uint32_t muster_frame_length(const unsigned char bytes[MUSTER_FRAME_SIZE]);

/* MUSTER_INVALID: not a frame, or a field is out of its bounds; the text names it. */
MUSTER_CHECKED muster_status muster_frame_decode(const unsigned char bytes[MUSTER_FRAME_SIZE],
                                                 struct muster_frame *ret_frame);

#endif
