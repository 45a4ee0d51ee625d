/*
 * Copies past the caches: an output that they do not hold anyway is written to memory without being
 * read from there first, which an ordinary store does, and what is still to be read stays in them.
 */
#include "worker/device/memory_parts.h"

#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>

enum { LINE_BYTES = 64 };

/* Whole cache lines. */
static void stream_lines(char *target, const char *source, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += LINE_BYTES) {
        __m128i parts[LINE_BYTES / sizeof(__m128i)];
        memcpy(parts, source + at, sizeof parts);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            _mm_stream_si128((__m128i *)(void *)(target + at) + i, parts[i]);
        }
    }
    _mm_sfence(); /* the processor does not order such stores by itself */
}
#endif

static void stream(char *target, const char *source, size_t size_bytes)
{
#ifdef __x86_64__
    size_t head = -(uintptr_t)target % LINE_BYTES;
    head = head < size_bytes ? head : size_bytes;
    size_t lines = (size_bytes - head) / LINE_BYTES * LINE_BYTES;
    memcpy(target, source, head);
    stream_lines(target + head, source + head, lines);
    memcpy(target + head + lines, source + head + lines, size_bytes - head - lines);
#else /* where the compilers have no such stores, or processors find out by themselves */
    memcpy(target, source, size_bytes);
#endif
}

void muster_memory_copy(bool streams, void *target, const void *source, size_t size_bytes)
{
    if (streams) {
        stream(target, source, size_bytes);
    } else {
        memcpy(target, source, size_bytes);
    }
}
