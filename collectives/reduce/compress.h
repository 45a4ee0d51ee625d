/* Encoding, decoding and reducing packs (collectives/call/compression.h). The same inputs give the
 * same bytes on every processor. */
#ifndef MUSTER_COLLECTIVES_REDUCE_COMPRESS_H
#define MUSTER_COLLECTIVES_REDUCE_COMPRESS_H

#include "collectives/call/compression.h"

/* Encodes `count` elements; the rest of the last pack stands for zeros. A pack of int8 that has a
 * NaN or an infinity becomes NaN as a whole, and one whose elements are all below 2^-110 becomes
 * zeros. */
void muster_compress(muster_compression compression, void *packs, const float *elements,
                     size_t count);

/* Decodes the first `count` elements. */
void muster_decompress(muster_compression compression, float *elements, const void *packs,
                       size_t count);

/* target = left op right: decoded, reduced as float32, and encoded. The result has the same bytes
 * for either order of the two. The target may be left or right. op: SUM, AVERAGE (reduces like
 * SUM), MIN, MAX. */
void muster_compress_combine(muster_compression compression, muster_op op, void *target,
                             const void *left, const void *right, size_t pack_count);

#endif
