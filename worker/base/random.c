/* Random numbers of the kernel, and the texts made of them. */
#include "worker/base/random.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

void muster_random_bytes(void *ret_bytes, size_t size_bytes)
{
    unsigned char *bytes = ret_bytes;
    while (size_bytes > 0) {
        ssize_t got = getrandom(bytes, size_bytes, 0);
        assert(got > 0 || errno == EINTR);
        if (got > 0) {
            bytes += got;
            size_bytes -= (size_t)got;
        }
    }
}

uint32_t muster_random_below(uint32_t bound)
{
    uint32_t number;
    muster_random_bytes(&number, sizeof number);
    return (uint32_t)(((uint64_t)number * bound) >> 32);
}

void muster_random_hex(size_t size_bytes, char *ret_hex)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size_bytes; i++) {
        unsigned char byte;
        muster_random_bytes(&byte, 1);
        ret_hex[2 * i] = digits[byte >> 4];
        ret_hex[2 * i + 1] = digits[byte & 15];
    }
    ret_hex[2 * size_bytes] = '\0';
}

void muster_random_uuid(char ret_uuid[MUSTER_UUID_SIZE])
{
    unsigned char b[16];
    muster_random_bytes(b, sizeof b);
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* RFC 4122: version 4, variant 1 */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(ret_uuid, MUSTER_UUID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
}
