/* Envelopes: heads are written and checked here. */
#include "rendezvous/coding/envelope.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

muster_status muster_envelope_open(const char *bytes, size_t size_bytes, const char **ret_message,
                                   size_t *ret_size_bytes, bool *ret_packed)
{
    uint32_t length = 0;
    if (size_bytes < MUSTER_ENVELOPE_HEAD_BYTES) {
        return muster_error_set(MUSTER_INVALID,
                                "envelope: %zu bytes, and its head alone has %d; a stream's "
                                "request is one envelope",
                                size_bytes, MUSTER_ENVELOPE_HEAD_BYTES);
    }
    memcpy(&length, bytes + 1, sizeof length);
    length = ntohl(length);
    unsigned char flags = (unsigned char)bytes[0];
    if ((flags & ~(unsigned)MUSTER_ENVELOPE_PACKED) != 0) {
        return muster_error_set(MUSTER_INVALID, "envelope: flags %u, only 0 and 1 are known",
                                flags);
    }
    if (length != size_bytes - MUSTER_ENVELOPE_HEAD_BYTES) {
        return muster_error_set(MUSTER_INVALID,
                                "envelope: says %u bytes, and %zu follow its head; a stream's "
                                "request is one envelope",
                                length, size_bytes - MUSTER_ENVELOPE_HEAD_BYTES);
    }
    *ret_message = bytes + MUSTER_ENVELOPE_HEAD_BYTES;
    *ret_size_bytes = length;
    *ret_packed = (flags & MUSTER_ENVELOPE_PACKED) != 0;
    return MUSTER_OK;
}

char *muster_envelope_close(unsigned flags, const char *message, size_t size_bytes,
                            size_t *ret_size_bytes)
{
    char *bytes = malloc(MUSTER_ENVELOPE_HEAD_BYTES + size_bytes);
    if (bytes == NULL) {
        return NULL;
    }
    uint32_t length = htonl((uint32_t)size_bytes);
    bytes[0] = (char)flags;
    memcpy(bytes + 1, &length, sizeof length);
    memcpy(bytes + MUSTER_ENVELOPE_HEAD_BYTES, message, size_bytes);
    *ret_size_bytes = MUSTER_ENVELOPE_HEAD_BYTES + size_bytes;
    return bytes;
}
