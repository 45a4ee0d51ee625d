/*
 * What the source of a sync sends besides the state itself, as bytes. Numbers are little-endian.
 *
 *   number of buffers  4
 *   outline            72  name (64, ends with a zero), size in bytes (8)
 *   state header       16  version (8), generation of its commit (8)
 *
 * A change of a record is a new wire version (fabric/fabric.h).
 *
 * Pure. May use: state, base.
 */
#ifndef MUSTER_WORKER_SESSION_SYNC_WIRE_H
#define MUSTER_WORKER_SESSION_SYNC_WIRE_H

#include "worker/session/state.h"

enum {
    MUSTER_BUFFER_COUNT_SIZE = 4,
    MUSTER_OUTLINE_SIZE = MUSTER_REGISTERED_BUFFER_NAME_SIZE + 8,
    MUSTER_STATE_HEADER_SIZE = 16,
};

/* Name and size of one of the source's buffers. */
struct muster_outline {
    char name[MUSTER_REGISTERED_BUFFER_NAME_SIZE];
    uint64_t size_bytes;
};

/* Which state the source sends. */
struct muster_state_header {
    uint64_t version; /* 0: never committed; the source's registered buffers are the state */
    uint64_t committed_generation;
};

/* The decoders: MUSTER_FATAL: another size, or a value that no member encodes; the text names it.
 */

void muster_buffer_count_encode(uint32_t count, unsigned char ret_bytes[MUSTER_BUFFER_COUNT_SIZE]);
MUSTER_CHECKED muster_status muster_buffer_count_decode(const unsigned char *bytes,
                                                        size_t size_bytes, uint32_t *ret_count);

/* Of all buffers; ret_bytes: [state->count * MUSTER_OUTLINE_SIZE]. */
void muster_outlines_encode(const struct muster_state *state, unsigned char *ret_bytes);
/* ret_outlines: [count]. */
MUSTER_CHECKED muster_status muster_outlines_decode(const unsigned char *bytes, size_t size_bytes,
                                                    uint32_t count,
                                                    struct muster_outline *ret_outlines);

void muster_state_header_encode(const struct muster_state_header *header,
                                unsigned char ret_bytes[MUSTER_STATE_HEADER_SIZE]);
MUSTER_CHECKED muster_status muster_state_header_decode(const unsigned char *bytes,
                                                        size_t size_bytes,
                                                        struct muster_state_header *ret_header);

#endif
