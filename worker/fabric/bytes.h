/* Little-endian numbers in byte strings. */
#ifndef MUSTER_WORKER_FABRIC_BYTES_H
#define MUSTER_WORKER_FABRIC_BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline void muster_bytes_put(unsigned char *bytes, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
}

static inline uint64_t muster_bytes_get(const unsigned char *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

#endif
