/* gzip (RFC 1952) of whole messages, by zlib. */
#ifndef MUSTER_RENDEZVOUS_CODING_GZIP_H
#define MUSTER_RENDEZVOUS_CODING_GZIP_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* *ret_bytes is owned by the caller. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_gzip_pack(const void *bytes, size_t size_bytes,
                                              char **ret_bytes, size_t *ret_size_bytes);

/* Unpacks one member, and nothing may follow it. *ret_bytes is owned by the caller. MUSTER_INVALID:
 * no gzip, damaged or cut off. MUSTER_RETRY: it becomes more than max_bytes, of which no more is
 * ever in memory. */
MUSTER_CHECKED muster_status muster_gzip_unpack(const void *bytes, size_t size_bytes,
                                                size_t max_bytes, char **ret_bytes,
                                                size_t *ret_size_bytes);

#endif
