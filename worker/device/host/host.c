/* Memory of the host as a device: the CPU itself copies and reduces. */
#include <string.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/status.h"
#include "worker/device/device.h"

extern const struct muster_device muster_host_device;
extern const struct muster_group_ops muster_host_groups; /* host_groups.c */

static bool is_active(void)
{
    return true;
}

/* The registry takes as the host's what no other device finds. */
static bool find(const void *data, struct muster_device_memory *ret_memory)
{
    *ret_memory = (struct muster_device_memory){
        .device = &muster_host_device, .begin = (uintptr_t)data, .end = (uintptr_t)data};
    return data != NULL;
}

static muster_status copy(const struct muster_device_memory *memory, void *to, const void *from,
                          size_t size_bytes)
{
    (void)memory;
    if (to != from && size_bytes > 0) {
        memcpy(to, from, size_bytes);
    }
    return MUSTER_OK;
}

static muster_status combine(const struct muster_combination *combination)
{
    muster_reduction_combine(combination->reduction, combination->target.at, combination->left.at,
                             combination->right.at, combination->count);
    return MUSTER_OK;
}

static muster_status finish(const struct muster_device_memory *memory,
                            const struct muster_reduction *reduction, void *data, uint64_t count,
                            uint64_t contributions)
{
    (void)memory;
    muster_reduction_finish(reduction, data, count, contributions);
    return MUSTER_OK;
}

static muster_status wait_for_work(const struct muster_device_memory *memory)
{
    (void)memory;
    return MUSTER_OK;
}

const struct muster_device muster_host_device = {
    .name = "host",
    .is_active = is_active,
    .find = find,
    .copy = copy,
    .combine = combine,
    .reduces = muster_device_reduces_nothing,
    .finish = finish,
    .wait = wait_for_work,
    .export_pages = muster_device_export_nothing,
    .queues = muster_device_without_queues,
    .groups = &muster_host_groups,
    .rdma_advice = "Raise the limit of locked memory (ulimit -l)",
};
