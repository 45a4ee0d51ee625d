/* Frame headers: encoded, and decoded with all checks. */
#include "worker/fabric/wire/frame.h"

#include "worker/base/bytes.h"
#include "worker/base/checksum.h"

#include <inttypes.h>
#include <string.h>

enum { MAGIC = 0x4d46 }; /* "FM" */

enum {
    AT_MAGIC = 0,      /* 2 */
    AT_VERSION = 2,    /* 1 */
    AT_KIND = 3,       /* 1 */
    AT_LANE = 4,       /* 2 */
    AT_COLLECTIVE = 6, /* 1 */
    AT_TYPE = 7,       /* 1 */
    AT_GENERATION = 8, /* 8 */
    AT_SEQUENCE = 16,  /* 8 */
    AT_CONTEXT = 24,   /* 4 */
    AT_ORDINAL = 28,   /* 4 */
    AT_OFFSET = 32,    /* 8 */
    AT_TOTAL = 40,     /* 8 */
    AT_COUNT = 48,     /* 8 */
    AT_ROOT = 56,      /* 4 */
    AT_LENGTH = 60,    /* 4 */
    AT_CREDIT = 64,    /* 4 */
    AT_OP = 68,        /* 1 */
    AT_ALGORITHM = 69, /* 4 */
    AT_FLAGS = 73,     /* 1 */
    AT_COUNTING = 74,  /* 1: the low half; the high one is `memory` */
    AT_RESERVED = 75,  /* 1, zero */
    RESERVED_BYTES = 1,
    AT_PRESCALE = 76,  /* 8 */
    AT_POSTSCALE = 84, /* 8 */
    AT_CHECKSUM = 92,  /* 4 */
    IDENTITY_BYTES = AT_OFFSET,
};

void muster_frame_encode_unchecked(const struct muster_frame *frame,
                                   unsigned char ret_bytes[MUSTER_FRAME_SIZE])
{
    unsigned char *b = ret_bytes;
    muster_bytes_put(b + AT_MAGIC, MAGIC, 2);
    b[AT_VERSION] = MUSTER_WIRE_VERSION;
    b[AT_KIND] = (unsigned char)frame->kind;
    muster_bytes_put(b + AT_LANE, frame->key.lane, 2);
    b[AT_COLLECTIVE] = frame->call.collective;
    b[AT_TYPE] = frame->call.type;
    muster_bytes_put(b + AT_GENERATION, frame->key.generation, 8);
    muster_bytes_put(b + AT_SEQUENCE, frame->key.sequence, 8);
    muster_bytes_put(b + AT_CONTEXT, frame->key.context, 4);
    muster_bytes_put(b + AT_ORDINAL, frame->key.ordinal, 4);
    muster_bytes_put(b + AT_OFFSET, frame->offset, 8);
    muster_bytes_put(b + AT_TOTAL, frame->total, 8);
    muster_bytes_put(b + AT_COUNT, frame->call.count, 8);
    muster_bytes_put(b + AT_ROOT, frame->call.root, 4);
    muster_bytes_put(b + AT_LENGTH, frame->length, 4);
    muster_bytes_put(b + AT_CREDIT, frame->credit, 4);
    b[AT_OP] = frame->call.op;
    muster_bytes_put(b + AT_ALGORITHM, frame->call.algorithm, 4);
    b[AT_FLAGS] = frame->call.flags;
    b[AT_COUNTING] = (unsigned char)(frame->call.counting | frame->call.memory << 4);
    memset(b + AT_RESERVED, 0, RESERVED_BYTES);
    muster_bytes_put_double(b + AT_PRESCALE, frame->call.prescale);
    muster_bytes_put_double(b + AT_POSTSCALE, frame->call.postscale);
    memset(b + AT_CHECKSUM, 0, 4);
}

/* The first half line: what identifies a frame. */
static void encode_identity(const struct muster_message_key *key, uint8_t type,
                            unsigned char ret_bytes[IDENTITY_BYTES])
{
    muster_bytes_put(ret_bytes + AT_MAGIC,
                     MAGIC | MUSTER_WIRE_VERSION << 16 | MUSTER_FRAME_EAGER << 24, 4);
    muster_bytes_put(ret_bytes + AT_LANE, key->lane | (uint32_t)type << 24, 4);
    muster_bytes_put(ret_bytes + AT_GENERATION, key->generation, 8);
    muster_bytes_put(ret_bytes + AT_SEQUENCE, key->sequence, 8);
    muster_bytes_put(ret_bytes + AT_CONTEXT, key->context | (uint64_t)key->ordinal << 32, 8);
}

void muster_frame_encode_eager_unchecked(const struct muster_message_key *key,
                                         const struct muster_call *call, uint32_t length,
                                         uint32_t credit,
                                         unsigned char ret_bytes[MUSTER_FRAME_SIZE])
{
    encode_identity(key, call->type, ret_bytes);
    memset(ret_bytes + IDENTITY_BYTES, 0, MUSTER_FRAME_SIZE - IDENTITY_BYTES);
    muster_bytes_put(ret_bytes + AT_TOTAL, length, 8);
    muster_bytes_put(ret_bytes + AT_COUNT, call->count, 8);
    muster_bytes_put(ret_bytes + AT_ROOT, call->root | (uint64_t)length << 32, 8);
    muster_bytes_put(ret_bytes + AT_CREDIT, credit, 4);
}

bool muster_frame_decode_eager_unchecked(const unsigned char bytes[MUSTER_FRAME_SIZE],
                                         const struct muster_message_key *key, uint8_t type,
                                         struct muster_call *ret_call, uint32_t *ret_length,
                                         uint32_t *ret_credit)
{
    static const unsigned char zeros[MUSTER_FRAME_SIZE - AT_OP];
    unsigned char identity[IDENTITY_BYTES];
    encode_identity(key, type, identity);
    uint32_t length = (uint32_t)muster_bytes_get(bytes + AT_LENGTH, 4);
    uint32_t credit = (uint32_t)muster_bytes_get(bytes + AT_CREDIT, 4);
    if (memcmp(bytes, identity, sizeof identity) != 0 ||
        muster_bytes_get(bytes + AT_OFFSET, 8) != 0 ||
        muster_bytes_get(bytes + AT_TOTAL, 8) != length || length > MUSTER_EAGER_MAX ||
        credit > MUSTER_EAGER_WINDOW_BYTES || memcmp(bytes + AT_OP, zeros, sizeof zeros) != 0) {
        return false;
    }
    *ret_call = (struct muster_call){.type = type,
                                     .root = (uint32_t)muster_bytes_get(bytes + AT_ROOT, 4),
                                     .count = muster_bytes_get(bytes + AT_COUNT, 8)};
    *ret_length = length;
    *ret_credit = credit;
    return true;
}

void muster_frame_encode(const struct muster_frame *frame,
                         unsigned char ret_bytes[MUSTER_FRAME_SIZE])
{
    muster_frame_encode_unchecked(frame, ret_bytes);
    muster_bytes_put(ret_bytes + AT_CHECKSUM, muster_checksum(ret_bytes, AT_CHECKSUM), 4);
}

uint32_t muster_frame_length(const unsigned char bytes[MUSTER_FRAME_SIZE])
{
    return (uint32_t)muster_bytes_get(bytes + AT_LENGTH, 4);
}

static muster_status check_magic(const unsigned char *b)
{
    if (muster_bytes_get(b + AT_MAGIC, 2) != MAGIC) {
        return muster_error_set(MUSTER_INVALID, "not a frame");
    }
    if (b[AT_VERSION] != MUSTER_WIRE_VERSION) {
        return muster_error_set(MUSTER_INVALID, "frame of version %u, this is version %d",
                                b[AT_VERSION], MUSTER_WIRE_VERSION);
    }
    return MUSTER_OK;
}

static muster_status check_header(const unsigned char *b)
{
    TRY(check_magic(b));
    for (size_t i = 0; i < RESERVED_BYTES; i++) {
        if (b[AT_RESERVED + i] != 0) {
            return muster_error_set(MUSTER_INVALID, "frame with reserved bytes set");
        }
    }
    return MUSTER_OK;
}

/* The longest payload of the kind; -1: no such kind. */
static int64_t payload_max(enum muster_frame_kind kind)
{
    switch (kind) {
    case MUSTER_FRAME_EAGER:
        return MUSTER_EAGER_MAX;
    case MUSTER_FRAME_SEGMENT:
        return MUSTER_FRAME_PAYLOAD_MAX;
    case MUSTER_FRAME_ABORT:
    case MUSTER_FRAME_REFUSAL:
        return MUSTER_REASON_SIZE - 1;
    case MUSTER_FRAME_OFFER:
        return MUSTER_OFFER_MAX;
    case MUSTER_FRAME_GRANT:
    case MUSTER_FRAME_CREDIT:
    case MUSTER_FRAME_GOODBYE:
    case MUSTER_FRAME_GET_DONE:
    case MUSTER_FRAME_SIGNATURE:
    case MUSTER_FRAME_RANK:
        return 0;
    }
    return -1;
}

static muster_status check_frame(const struct muster_frame *frame)
{
    int64_t most = payload_max(frame->kind);
    if (most < 0) {
        return muster_error_set(MUSTER_INVALID, "frame of unknown kind %u", frame->kind);
    }
    if (frame->length > most) {
        return muster_error_set(MUSTER_INVALID,
                                "frame with a payload of %u bytes, at most %" PRId64, frame->length,
                                most);
    }
    bool has_text = frame->kind == MUSTER_FRAME_ABORT || frame->kind == MUSTER_FRAME_REFUSAL;
    if (frame->offset > frame->total ||
        (!has_text && frame->length > frame->total - frame->offset)) {
        return muster_error_set(MUSTER_INVALID,
                                "frame with bytes %" PRIu64 "+%u of a message of %" PRIu64,
                                frame->offset, frame->length, frame->total);
    }
    if (frame->kind == MUSTER_FRAME_EAGER && frame->length != frame->total) {
        return muster_error_set(MUSTER_INVALID, "eager frame with a part of a message");
    }
    if (frame->kind == MUSTER_FRAME_SEGMENT && frame->length == 0 && frame->total > 0) {
        return muster_error_set(MUSTER_INVALID, "empty segment");
    }
    if (frame->credit > MUSTER_EAGER_WINDOW_BYTES) {
        return muster_error_set(MUSTER_INVALID, "frame with a credit of %u bytes", frame->credit);
    }
    return MUSTER_OK;
}

muster_status muster_frame_decode_unchecked(const unsigned char bytes[MUSTER_FRAME_SIZE],
                                            struct muster_frame *ret_frame)
{
    const unsigned char *b = bytes;
    TRY(check_header(b));
    struct muster_frame frame = {
        .kind = (enum muster_frame_kind)b[AT_KIND],
        .key = {.generation = muster_bytes_get(b + AT_GENERATION, 8),
                .sequence = muster_bytes_get(b + AT_SEQUENCE, 8),
                .context = (uint32_t)muster_bytes_get(b + AT_CONTEXT, 4),
                .ordinal = (uint32_t)muster_bytes_get(b + AT_ORDINAL, 4),
                .lane = (uint16_t)muster_bytes_get(b + AT_LANE, 2)},
        .call = {.collective = b[AT_COLLECTIVE],
                 .type = b[AT_TYPE],
                 .op = b[AT_OP],
                 .counting = b[AT_COUNTING] & 15,
                 .memory = b[AT_COUNTING] >> 4,
                 .algorithm = (uint32_t)muster_bytes_get(b + AT_ALGORITHM, 4),
                 .flags = b[AT_FLAGS],
                 .root = (uint32_t)muster_bytes_get(b + AT_ROOT, 4),
                 .count = muster_bytes_get(b + AT_COUNT, 8),
                 .prescale = muster_bytes_get_double(b + AT_PRESCALE),
                 .postscale = muster_bytes_get_double(b + AT_POSTSCALE)},
        .offset = muster_bytes_get(b + AT_OFFSET, 8),
        .total = muster_bytes_get(b + AT_TOTAL, 8),
        .length = (uint32_t)muster_bytes_get(b + AT_LENGTH, 4),
        .credit = (uint32_t)muster_bytes_get(b + AT_CREDIT, 4),
    };
    TRY(check_frame(&frame));
    *ret_frame = frame;
    return MUSTER_OK;
}

muster_status muster_frame_decode(const unsigned char bytes[MUSTER_FRAME_SIZE],
                                  struct muster_frame *ret_frame)
{
    TRY(check_magic(bytes));
    if (muster_bytes_get(bytes + AT_CHECKSUM, 4) != muster_checksum(bytes, AT_CHECKSUM)) {
        return muster_error_set(MUSTER_INVALID, "frame with a wrong checksum");
    }
    return muster_frame_decode_unchecked(bytes, ret_frame);
}
