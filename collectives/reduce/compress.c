/* Packs: encoded, decoded and reduced block by block, so that what is decoded stays in the cache.
 */
#include "collectives/reduce/compress.h"

#include <string.h>

#include "collectives/reduce/float_environment.h"
#include "collectives/reduce/tables.h"

enum { BLOCK_PACKS = 4 };

static muster_type type_of(muster_compression compression)
{
    return compression == MUSTER_COMPRESSION_FLOAT16 ? MUSTER_FLOAT16 : MUSTER_BFLOAT16;
}

/* Whole packs. */
static void encode(muster_compression compression, void *packs, const float *elements,
                   size_t pack_count)
{
    const struct muster_kernels *kernels = muster_kernels_best();
    size_t count = pack_count * muster_pack_elements(compression);
    switch (compression) {
    case MUSTER_COMPRESSION_INT8:
        kernels->pack_int8(packs, elements, pack_count);
        break;
    case MUSTER_COMPRESSION_FLOAT16:
        kernels->narrow_float16(packs, elements, count);
        break;
    default:
        kernels->narrow_bfloat16(packs, elements, count);
        break;
    }
}

static void decode(muster_compression compression, float *elements, const void *packs,
                   size_t pack_count)
{
    const struct muster_kernels *kernels = muster_kernels_best();
    size_t count = pack_count * muster_pack_elements(compression);
    switch (compression) {
    case MUSTER_COMPRESSION_INT8:
        kernels->unpack_int8(elements, packs, pack_count);
        break;
    case MUSTER_COMPRESSION_FLOAT16:
        kernels->widen_float16(elements, packs, count);
        break;
    default:
        kernels->widen_bfloat16(elements, packs, count);
        break;
    }
}

void muster_compress(muster_compression compression, void *packs, const float *elements,
                     size_t count)
{
    AUTO_FLOAT_ENVIRONMENT();
    size_t each = muster_pack_elements(compression);
    size_t whole = count / each;
    encode(compression, packs, elements, whole);
    if (whole * each < count) {
        _Alignas(64) float last[MUSTER_PACK_ELEMENTS_MAX] = {0};
        memcpy(last, elements + whole * each, (count - whole * each) * sizeof *last);
        encode(compression, (char *)packs + whole * muster_pack_bytes(compression), last, 1);
    }
}

void muster_decompress(muster_compression compression, float *elements, const void *packs,
                       size_t count)
{
    AUTO_FLOAT_ENVIRONMENT();
    size_t each = muster_pack_elements(compression);
    size_t whole = count / each;
    decode(compression, elements, packs, whole);
    if (whole * each < count) {
        _Alignas(64) float last[MUSTER_PACK_ELEMENTS_MAX];
        decode(compression, last, (const char *)packs + whole * muster_pack_bytes(compression), 1);
        memcpy(elements + whole * each, last, (count - whole * each) * sizeof *last);
    }
}

void muster_compress_combine(muster_compression compression, muster_op op, void *target,
                             const void *left, const void *right, size_t pack_count)
{
    AUTO_FLOAT_ENVIRONMENT();
    const struct muster_kernels *kernels = muster_kernels_best();
    size_t each = muster_pack_elements(compression);
    size_t bytes = muster_pack_bytes(compression);
    if (compression != MUSTER_COMPRESSION_INT8) {
        kernels->reduce[type_of(compression)][op](target, left, right, pack_count * each);
        return;
    }
    _Alignas(64) float one[BLOCK_PACKS * MUSTER_PACK_ELEMENTS_MAX];
    _Alignas(64) float other[BLOCK_PACKS * MUSTER_PACK_ELEMENTS_MAX];
    for (size_t first = 0; first < pack_count; first += BLOCK_PACKS) {
        size_t some = pack_count - first < BLOCK_PACKS ? pack_count - first : BLOCK_PACKS;
        decode(compression, one, (const char *)left + first * bytes, some);
        decode(compression, other, (const char *)right + first * bytes, some);
        kernels->reduce[MUSTER_FLOAT32][op](one, one, other, some * each);
        encode(compression, (char *)target + first * bytes, one, some);
    }
}
