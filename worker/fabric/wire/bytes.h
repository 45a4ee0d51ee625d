/* Little-endian numbers in byte strings, of 8 bytes at most. With a size that the compiler knows
 * each is one instruction or two. */
#ifndef MUSTER_WORKER_FABRIC_WIRE_BYTES_H
#define MUSTER_WORKER_FABRIC_WIRE_BYTES_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

#endif
