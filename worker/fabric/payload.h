/*
 * Where the bytes of a message are: in one piece, or in several ranges (struct muster_transfer).
 * Transports that have lists of parts move ranges as such a list; others copy them, one after the
 * other, into or out of what they copy anyway.
 */
#ifndef MUSTER_WORKER_FABRIC_PAYLOAD_H
#define MUSTER_WORKER_FABRIC_PAYLOAD_H

#include <sys/uio.h>

#include "worker/fabric/fabric.h"

/* The bytes of the message from this one on. */
static inline struct muster_place muster_transfer_place(const struct muster_transfer *transfer,
                                                        uint64_t offset_bytes)
{
    if (transfer->ranges == NULL) {
        return (struct muster_place){.base = (char *)transfer->data + offset_bytes};
    }
    return (struct muster_place){.ranges = transfer->ranges,
                                 .at_bytes = transfer->ranges_at_bytes + offset_bytes};
}

/* Where the message goes on from this byte, and how many bytes of it follow there. The byte is in
 * the message. */
static inline unsigned char *muster_transfer_at(const struct muster_transfer *transfer,
                                                uint64_t offset_bytes, uint64_t *ret_size_bytes)
{
    const struct muster_place place = muster_transfer_place(transfer, offset_bytes);
    *ret_size_bytes = transfer->size_bytes - offset_bytes;
    return (unsigned char *)muster_place_at(&place, ret_size_bytes);
}

/* Adds the parts of a place to a list of `count` parts, which has room for `most`. Returns the
 * bytes that were added: fewer than size_bytes if there is no room for more. */
static inline uint64_t muster_place_add_parts(struct muster_place place, uint64_t size_bytes,
                                              struct iovec *parts, int most, int *count)
{
    uint64_t added = 0;
    while (added < size_bytes && *count < most) {
        uint64_t size = size_bytes - added;
        parts[*count].iov_base = muster_place_at(&place, &size);
        parts[(*count)++].iov_len = size;
        place = muster_place_advance(place, size);
        added += size;
    }
    return added;
}

#endif
