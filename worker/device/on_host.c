/* What devices share: work on their memory that is done on the host, where block by block the data
 * are copied to the host, reduced there, and copied back. */
#include "worker/device/device.h"

#include <stdlib.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

enum { BLOCK_BYTES = 128 * 1024 }; /* a segment of a link over RDMA */

static struct muster_device_place advance(struct muster_device_place place, uint64_t offset_bytes)
{
    place.at += offset_bytes;
    return place;
}

/* One of the two is memory of a device. */
static muster_status copy(const struct muster_combination *combination,
                          struct muster_device_place to, struct muster_device_place from,
                          size_t size_bytes)
{
    const struct muster_device_memory *memory = to.memory != NULL ? to.memory : from.memory;
    int64_t started_ns = muster_timeline_clock(combination->timeline);
    TRY(memory->device->copy(memory, to.at, from.at, size_bytes));
    muster_timeline_add_local(combination->timeline, MUSTER_TIMELINE_DEVICE_COPY, started_ns,
                              size_bytes, combination->of);
    return MUSTER_OK;
}

/* *ret_here: the data where the CPU can read them, which is `block` if `from` is on a device. */
static muster_status bring(const struct muster_combination *combination,
                           struct muster_device_place from, struct muster_device_place block,
                           size_t size_bytes, struct muster_device_place *ret_here)
{
    *ret_here = from.memory != NULL ? block : from;
    return from.memory != NULL ? copy(combination, block, from, size_bytes) : MUSTER_OK;
}

muster_status muster_device_combine_on_host(const struct muster_combination *combination)
{
    size_t element_bytes = muster_type_size_bytes(combination->reduction->type);
    uint64_t size_bytes = combination->count * element_bytes;
    size_t most = BLOCK_BYTES / element_bytes * element_bytes;
    AUTO_FREE char *blocks = malloc(2 * (size_t)BLOCK_BYTES);
    if (blocks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to reduce what is in memory of a device");
    }
    const struct muster_device_place block = {.at = blocks};
    const struct muster_device_place second = {.at = blocks + BLOCK_BYTES};
    for (uint64_t done = 0; done < size_bytes; done += most) {
        size_t size = size_bytes - done < most ? (size_t)(size_bytes - done) : most;
        struct muster_device_place to = advance(combination->target, done);
        struct muster_device_place result = to.memory != NULL ? block : to;
        struct muster_device_place left;
        struct muster_device_place right;
        TRY(bring(combination, advance(combination->left, done), block, size, &left));
        TRY(bring(combination, advance(combination->right, done), second, size, &right));
        muster_reduction_combine(combination->reduction, result.at, left.at, right.at,
                                 size / element_bytes);
        if (to.memory != NULL) {
            TRY(copy(combination, to, result, size));
        }
    }
    return MUSTER_OK;
}

muster_status muster_device_finish_on_host(const struct muster_device_memory *memory,
                                           const struct muster_reduction *reduction, void *data,
                                           uint64_t count, uint64_t contributions)
{
    size_t element_bytes = muster_type_size_bytes(reduction->type);
    uint64_t most = BLOCK_BYTES / element_bytes;
    AUTO_FREE char *block = malloc(BLOCK_BYTES);
    if (block == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to scale what is in memory of a device");
    }
    for (uint64_t done = 0; done < count; done += most) {
        uint64_t here = count - done < most ? count - done : most;
        char *at = (char *)data + done * element_bytes;
        TRY(memory->device->copy(memory, block, at, here * element_bytes));
        muster_reduction_finish(reduction, block, here, contributions);
        TRY(memory->device->copy(memory, at, block, here * element_bytes));
    }
    return MUSTER_OK;
}

bool muster_device_reduces_nothing(const struct muster_device_memory *memory,
                                   const struct muster_reduction *reduction)
{
    (void)memory;
    (void)reduction;
    return false;
}

/* NOLINTBEGIN(readability-non-const-parameter): the type of the slot */
muster_status muster_device_export_nothing(const struct muster_device_memory *memory,
                                           const void *base, size_t size_bytes, int *ret_fd)
{
    (void)base;
    (void)ret_fd;
    return muster_error_set(MUSTER_INVALID, "%zu bytes of %s: it has no dma-buf", size_bytes,
                            memory->device->name);
}
/* NOLINTEND(readability-non-const-parameter) */
