/* Base64 (RFC 4648) for the bytes fields of the service's JSON. Here so that libmuster needs no
 * further library for sixty lines. */
#ifndef MUSTER_ELASTIC_MESSAGES_BASE64_H
#define MUSTER_ELASTIC_MESSAGES_BASE64_H

#include "worker/base/status.h"

#include <stddef.h>

/* Characters for so many bytes, the terminator included; and the most bytes in so many characters.
 */
#define MUSTER_BASE64_SIZE(size_bytes) (((size_bytes) + 2) / 3 * 4 + 1)
#define MUSTER_BASE64_BYTES(length) (((length) + 3) / 4 * 3)

/* Standard alphabet, padded. */
void muster_base64_encode(const void *bytes, size_t size_bytes, char *ret_text);

/* Takes the standard and the URL-safe alphabet, padded or not. ret_bytes has room for
 * MUSTER_BASE64_BYTES(length). MUSTER_INVALID says at which character it goes wrong. */
MUSTER_CHECKED muster_status muster_base64_decode(const char *text, size_t length, void *ret_bytes,
                                                  size_t *ret_size_bytes);

#endif
