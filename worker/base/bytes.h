/* Little-endian numbers in byte strings, of 8 bytes at most. With a size that the compiler knows
 * each is one instruction or two. */
#ifndef MUSTER_WORKER_BASE_BYTES_H
#define MUSTER_WORKER_BASE_BYTES_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "worker/base/status.h"

static inline void muster_bytes_put(unsigned char *bytes, uint64_t value, size_t size)
{
    const uint64_t little = htole64(value);
    memcpy(bytes, &little, size);
}

static inline uint64_t muster_bytes_get(const unsigned char *bytes, size_t size)
{
    uint64_t little = 0;
    memcpy(&little, bytes, size);
    return le64toh(little);
}

/* IEEE 754 binary64, 8 bytes. All bits are kept, also those of a NaN. */
static inline void muster_bytes_put_double(unsigned char *bytes, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    muster_bytes_put(bytes, bits, sizeof bits);
}

static inline double muster_bytes_get_double(const unsigned char *bytes)
{
    const uint64_t bits = muster_bytes_get(bytes, sizeof bits);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* MUSTER_FATAL: a record, named for the error text, has another size. */
MUSTER_CHECKED muster_status muster_bytes_check_size(const char *what, size_t size_bytes,
                                                     size_t expected_bytes);

#endif
