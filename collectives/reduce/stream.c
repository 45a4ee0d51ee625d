/* Copies and reductions whose results are written past the caches. */
#include "collectives/reduce/stream.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

enum {
    LINE_BYTES = 64,
    /* Small, so that the processor reads the next inputs while it still writes a result. */
    BLOCK_BYTES = 1024,
};

/* The bytes up to the next cache line. */
static size_t head_bytes(const void *target, size_t size_bytes)
{
    size_t head = -(uintptr_t)target % LINE_BYTES;
    return head < size_bytes ? head : size_bytes;
}

#ifdef __x86_64__
/* Writes whole cache lines, which are not ordered with other stores until finish() is called. */
static void write_lines(char *target, const char *source, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += LINE_BYTES) {
        const __m128i *from = (const __m128i *)(const void *)(source + at);
        __m128i *to = (__m128i *)(void *)(target + at);
        __m128i first = _mm_loadu_si128(from);
        __m128i second = _mm_loadu_si128(from + 1);
        __m128i third = _mm_loadu_si128(from + 2);
        __m128i fourth = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, first);
        _mm_stream_si128(to + 1, second);
        _mm_stream_si128(to + 2, third);
        _mm_stream_si128(to + 3, fourth);
    }
}

static void finish(void)
{
    _mm_sfence();
}
#else /* C has no such stores; some processors detect streams themselves */
static void write_lines(char *target, const char *source, size_t size_bytes)
{
    memcpy(target, source, size_bytes);
}

static void finish(void)
{
}
#endif

static void write_past(char *target, const char *source, size_t size_bytes)
{
    size_t head = head_bytes(target, size_bytes);
    size_t lines = (size_bytes - head) / LINE_BYTES * LINE_BYTES;
    memcpy(target, source, head);
    write_lines(target + head, source + head, lines);
    memcpy(target + head + lines, source + head + lines, size_bytes - head - lines);
}

void muster_stream_copy(void *target, const void *source, size_t size_bytes)
{
    write_past(target, source, size_bytes);
    finish();
}

void muster_stream_combine(const struct muster_reduction *reduction, void *target, const void *left,
                           const void *right, size_t count)
{
    _Alignas(LINE_BYTES) char block[BLOCK_BYTES];
    size_t size = muster_type_size_bytes(reduction->type);
    size_t head = head_bytes(target, count * size) / size; /* then blocks are whole lines */
    size_t some = head > 0 ? head : BLOCK_BYTES / size;
    for (size_t done = 0; done < count; done += some, some = BLOCK_BYTES / size) {
        some = some < count - done ? some : count - done;
        size_t at = done * size;
        muster_reduction_combine(reduction, block, (const char *)left + at,
                                 (const char *)right + at, some);
        write_past((char *)target + at, block, some * size);
    }
    finish();
}
