/*
 * Compression: float32 elements that travel in fewer bits. Pure.
 *
 * A pack is a fixed number of elements in encoded form, and what a schedule of a compressed call
 * counts instead of elements. Each block of a call begins with a new pack; its last pack may be
 * partly empty, which stands for zeros.
 *
 *   bfloat16, float16  128 elements, rounded to nearest even            256 bytes
 *   int8               a float32 scale, and 240 elements as int8:       244 bytes
 *                      element = scale x int8, scale = largest / 127
 */
#ifndef MUSTER_COLLECTIVES_CALL_COMPRESSION_H
#define MUSTER_COLLECTIVES_CALL_COMPRESSION_H

#include "collectives/call/collective.h"

enum {
    MUSTER_COMPRESSION_COUNT = 5,
    MUSTER_PACK_ELEMENTS_MAX = 240,
    MUSTER_PACK_BYTES_MAX = 256,
};

/* How the blocks of one call are cut into packs. Zeroed: the call is not compressed. */
struct muster_packing {
    muster_compression compression;
    const uint32_t *order;   /* the caller's number of each block of the schedule, in a buffer that
                                has blocks; borrowed; NULL: the same */
    uint64_t block_elements; /* of each block; of the whole call where there are no blocks */
    uint64_t block_packs;
};

/* "none", "bfloat16", "float16", "int8"; "default" for the session's. "unknown" for values out of
 * range. */
const char *muster_compression_name(unsigned compression);
/* MUSTER_INVALID lists the names. */
MUSTER_CHECKED muster_status muster_compression_parse(const char *name,
                                                      muster_compression *ret_compression);

/* Whether elements are encoded: neither "default" nor "none". */
bool muster_compresses(muster_compression compression);

/* Why calls like this one cannot be compressed; NULL: they can. */
const char *muster_compression_obstacle(enum muster_collective collective, muster_type type,
                                        muster_op op);

/* MUSTER_INVALID: there is no such compression, or calls like this one cannot be compressed; the
 * text says which can. */
MUSTER_CHECKED muster_status muster_compression_check(muster_compression compression,
                                                      enum muster_collective collective,
                                                      muster_type type, muster_op op);

uint32_t muster_pack_elements(muster_compression compression);
uint32_t muster_pack_bytes(muster_compression compression);

/* For blocks of so many elements. */
struct muster_packing muster_packing_of(muster_compression compression, uint64_t block_elements);

/* The elements in the packs of the span, as far as the block of its first pack reaches: where they
 * are in the caller's buffer. blocks: the buffer has a block for each rank. *ret_packs: how many
 * packs those are. */
struct muster_span muster_packing_elements(const struct muster_packing *packing, bool blocks,
                                           struct muster_span packs, uint64_t *ret_packs);

#endif
