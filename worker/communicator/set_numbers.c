/* Numbers of process sets: hashes of their names. */
#include "worker/communicator/set_numbers.h"

#include <string.h>

#include <uthash.h>
#include <zlib.h>

#include "worker/base/bytes.h"

/* Values that are hashed before the name: equal names have other hashes for other purposes. */
enum { SALT_CREATION = 0x100, SALT_NAME = 0x101 };

/* Jenkins' hash: not linear, unlike a CRC, so names that collide under one salt do not under
 * others. */
static uint32_t hash(uint32_t salt, uint32_t creation, const char *name)
{
    unsigned char bytes[8 + 256];
    size_t length = strnlen(name, sizeof bytes - 8);
    unsigned value = 0;
    muster_bytes_put(bytes, salt, 4);
    muster_bytes_put(bytes + 4, creation, 4);
    memcpy(bytes + 8, name, length);
    HASH_JEN(bytes, 8 + length, value);
    return value;
}

void muster_set_candidates(const char *name, uint32_t creation,
                           uint32_t ret_numbers[MUSTER_SET_CANDIDATES])
{
    for (uint32_t i = 0; i < MUSTER_SET_CANDIDATES; i++) {
        uint32_t low = hash(i, creation, name) & ((UINT32_C(1) << MUSTER_SET_HASH_BITS) - 1);
        ret_numbers[i] = MUSTER_SET_NUMBERS | low;
    }
}

void muster_set_creation_key(const char *name, uint32_t creation, uint32_t *ret_context,
                             uint64_t *ret_sequence)
{
    const uint32_t mask = MUSTER_SET_NUMBERS - 1;
    *ret_context = MUSTER_SET_CREATION_NUMBERS | (hash(SALT_CREATION, 0, name) & mask);
    *ret_sequence = (uint64_t)hash(SALT_NAME, 0, name) << 31 | creation;
}

static uLong checksum_ranks(uLong start, const uint32_t *ranks, size_t count)
{
    uLong checksum = start;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[4];
        muster_bytes_put(bytes, ranks[i], sizeof bytes);
        checksum = crc32(checksum, bytes, sizeof bytes);
    }
    return checksum;
}

uint32_t muster_set_list_checksum(const uint32_t *ranks, size_t count)
{
    return (uint32_t)checksum_ranks(crc32(0, NULL, 0), ranks, count);
}

uint64_t muster_set_digest(const char *name, const uint32_t *ranks, size_t count)
{
    uLong start = crc32(0, (const Bytef *)name, (uInt)strlen(name) + 1);
    return (uint64_t)hash(SALT_NAME, (uint32_t)count, name) << 32 |
           (uint32_t)checksum_ranks(start, ranks, count);
}
