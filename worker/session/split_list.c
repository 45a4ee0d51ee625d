/* The parts of a split, by colour and key. */
#include "worker/session/split_list.h"

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

int32_t muster_split_name_checksum(const char *name)
{
    return (int32_t)crc32(crc32(0, NULL, 0), (const Bytef *)name, (uInt)strlen(name));
}

muster_status muster_split_check(const struct muster_split_entry *entries, const uint32_t *members,
                                 uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (entries[i].name_checksum != entries[0].name_checksum) {
            return muster_error_set(MUSTER_INVALID,
                                    "ranks %u and %u pass different names (checksums %08x, %08x)",
                                    members[0], members[i], (unsigned)entries[0].name_checksum,
                                    (unsigned)entries[i].name_checksum);
        }
    }
    return MUSTER_OK;
}

struct keyed_rank {
    int32_t key;
    uint32_t rank;
};

static int compare_keyed_ranks(const void *left, const void *right)
{
    const struct keyed_rank *a = left;
    const struct keyed_rank *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return (a->rank > b->rank) - (a->rank < b->rank);
}

muster_status muster_split_part(const struct muster_split_entry *entries, uint32_t count,
                                int32_t colour, uint32_t *ret_ranks, uint32_t *ret_count)
{
    uint32_t size = 0;
    AUTO_FREE struct keyed_rank *part = calloc(count, sizeof *part);
    if (part == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", count);
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        if (entries[rank].colour == colour) {
            part[size++] = (struct keyed_rank){entries[rank].key, rank};
        }
    }
    qsort(part, size, sizeof *part, compare_keyed_ranks);
    for (uint32_t i = 0; i < size; i++) {
        ret_ranks[i] = part[i].rank;
    }
    *ret_count = size;
    return MUSTER_OK;
}
