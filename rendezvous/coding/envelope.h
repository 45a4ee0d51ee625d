/* Envelopes of the Connect protocol's streams: a byte of flags, the length in four bytes (the
 * highest first), the message. */
#ifndef MUSTER_RENDEZVOUS_CODING_ENVELOPE_H
#define MUSTER_RENDEZVOUS_CODING_ENVELOPE_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    MUSTER_ENVELOPE_HEAD_BYTES = 5,
    MUSTER_ENVELOPE_PACKED = 1, /* the message is packed */
    MUSTER_ENVELOPE_END = 2,    /* the last of a stream: JSON, with the error if there is one */
};

/* Finds the one message of a request. *ret_message is borrowed. MUSTER_INVALID: not exactly one
 * envelope, or an unknown flag. */
MUSTER_CHECKED muster_status muster_envelope_open(const char *bytes, size_t size_bytes,
                                                  const char **ret_message, size_t *ret_size_bytes,
                                                  bool *ret_packed);

/* A new envelope, owned by the caller. NULL: no memory. */
char *muster_envelope_close(unsigned flags, const char *message, size_t size_bytes,
                            size_t *ret_size_bytes);

#endif
