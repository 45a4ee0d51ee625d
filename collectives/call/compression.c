/* Which calls can be compressed, and how their elements are cut into packs. */
#include "collectives/call/compression.h"

#include "collectives/call/names.h"
#include "worker/base/status.h"

static const char *const names[MUSTER_COMPRESSION_COUNT] = {"default", "none", "bfloat16",
                                                            "float16", "int8"};

const char *muster_compression_name(unsigned compression)
{
    return compression < MUSTER_COMPRESSION_COUNT ? names[compression] : "unknown";
}

muster_status muster_compression_parse(const char *name, muster_compression *ret_compression)
{
    unsigned index = 0;
    TRY(muster_name_parse("compression", name, names + 1, MUSTER_COMPRESSION_COUNT - 1, &index));
    *ret_compression = (muster_compression)(index + 1);
    return MUSTER_OK;
}

bool muster_compresses(muster_compression compression)
{
    return compression > MUSTER_COMPRESSION_NONE;
}

const char *muster_compression_obstacle(enum muster_collective collective, muster_type type,
                                        muster_op op)
{
    bool reduces = collective == MUSTER_ALLREDUCE || collective == MUSTER_REDUCE_SCATTER;
    if (!reduces && collective != MUSTER_ALLGATHER) {
        return "only allreduce, reduce_scatter and allgather are compressed";
    }
    if (type != MUSTER_FLOAT32) {
        return "only float32 is compressed";
    }
    bool fits = op == MUSTER_SUM || op == MUSTER_AVERAGE || op == MUSTER_MIN || op == MUSTER_MAX;
    return reduces && !fits ? "only sum, average, min and max are compressed" : NULL;
}

muster_status muster_compression_check(muster_compression compression,
                                       enum muster_collective collective, muster_type type,
                                       muster_op op)
{
    if ((unsigned)compression >= MUSTER_COMPRESSION_COUNT) {
        return muster_error_set(MUSTER_INVALID, "there is no compression %u",
                                (unsigned)compression);
    }
    const char *obstacle = muster_compression_obstacle(collective, type, op);
    return !muster_compresses(compression) || obstacle == NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "compression %s of %s, %s: %s",
                                  muster_compression_name(compression), muster_type_name(type),
                                  muster_op_name(op), obstacle);
}

uint32_t muster_pack_elements(muster_compression compression)
{
    return compression == MUSTER_COMPRESSION_INT8 ? 240 : 128;
}

uint32_t muster_pack_bytes(muster_compression compression)
{
    return compression == MUSTER_COMPRESSION_INT8 ? 244 : 256;
}

struct muster_packing muster_packing_of(muster_compression compression, uint64_t block_elements)
{
    uint64_t elements = muster_pack_elements(compression);
    return (struct muster_packing){.compression = compression,
                                   .block_elements = block_elements,
                                   .block_packs = (block_elements + elements - 1) / elements};
}

struct muster_span muster_packing_elements(const struct muster_packing *packing, bool blocks,
                                           struct muster_span packs, uint64_t *ret_packs)
{
    uint64_t each = muster_pack_elements(packing->compression);
    uint64_t block = packs.offset / packing->block_packs;
    uint64_t first = packs.offset % packing->block_packs;
    uint64_t left = packing->block_packs - first;
    uint64_t count = packs.count < left ? packs.count : left;
    uint64_t elements = packing->block_elements - first * each;
    *ret_packs = count;
    block = blocks && packing->order != NULL ? packing->order[block] : block;
    return (struct muster_span){
        .offset = block * packing->block_elements + first * each,
        .count = elements < count * each ? elements : count * each,
    };
}
