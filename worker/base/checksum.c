/* CRC-32C: bits are reflected, and the register begins and ends inverted. */
#include "worker/base/checksum.h"

#include <string.h>

enum { NIBBLE_BITS = 4, NIBBLES = 1 << NIBBLE_BITS };

uint32_t muster_checksum_by_table(const unsigned char *bytes, size_t size)
{
    /* Of each value of four bits: its remainder by the polynomial 0x82f63b78 (reflected). */
    static const uint32_t remainders[NIBBLES] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> NIBBLE_BITS ^ remainders[crc % NIBBLES];
        crc = crc >> NIBBLE_BITS ^ remainders[crc % NIBBLES];
    }
    return ~crc;
}

#if defined(__x86_64__)
static __attribute__((target("sse4.2"))) uint32_t by_instruction(const unsigned char *bytes,
                                                                 size_t size)
{
    uint64_t crc = UINT32_MAX;
    size_t at = 0;
    for (; size - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; at < size; at++) {
        crc = __builtin_ia32_crc32qi((uint32_t)crc, bytes[at]);
    }
    return ~(uint32_t)crc;
}

uint32_t muster_checksum(const unsigned char *bytes, size_t size)
{
    return __builtin_cpu_supports("sse4.2") ? by_instruction(bytes, size)
                                            : muster_checksum_by_table(bytes, size);
}
#else
uint32_t muster_checksum(const unsigned char *bytes, size_t size)
{
    return muster_checksum_by_table(bytes, size);
}
#endif
