/* Base64 (RFC 4648) for the bytes fields of the service's JSON. Written here because libmuster
 * links no library that has it. */
#ifndef MUSTER_ELASTIC_MESSAGES_BASE64_H
#define MUSTER_ELASTIC_MESSAGES_BASE64_H

#include "worker/base/status.h"

#include <stddef.h>

/* The characters that size_bytes become, with the terminator; the most bytes that length characters
 * become. */
#define MUSTER_BASE64_SIZE(size_bytes) (((size_bytes) + 2) / 3 * 4 + 1)
#define MUSTER_BASE64_BYTES(length) (((length) + 3) / 4 * 3)

/* Standard alphabet, padded. */
void muster_base64_encode(const void *bytes, size_t size_bytes, char *ret_text);

/* Accepts the standard and the URL-safe alphabet, padded or not. ret_bytes has room for
 * MUSTER_BASE64_BYTES(length). MUSTER_INVALID names the wrong character. */
MUSTER_CHECKED muster_status muster_base64_decode(const char *text, size_t length, void *ret_bytes,
                                                  size_t *ret_size_bytes);

#endif
