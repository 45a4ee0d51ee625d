/* Memory of the host as a device: the CPU itself copies and reduces. */
#include <string.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/status.h"
#include "worker/device/device.h"
#include "worker/device/host/group_memory.h"

extern const struct muster_device muster_host_device;

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

static muster_status run_group_step(void *group, const struct muster_group_launch *step,
                                    uint32_t *ret_suspect)
{
    return muster_group_memory_run(group, step, ret_suspect);
}

static muster_status announce_to_group(void *group, const struct muster_group_launch *step,
                                       uint32_t *ret_suspect)
{
    return muster_group_memory_announce(group, step, ret_suspect);
}

static void begin_in_flight(void *group, const struct muster_group_launch *step, bool announces)
{
    muster_group_memory_begin_step(group, step, announces);
}

static muster_status poll_in_flight(void *group, int64_t spin_ns, bool *ret_advanced)
{
    return muster_group_memory_poll(group, spin_ns, ret_advanced);
}

static muster_status check_in_flight(void *group)
{
    return muster_group_memory_check(group);
}

static muster_status end_in_flight(void *group, muster_status status, uint32_t *ret_suspect)
{
    return muster_group_memory_end_step(group, status, ret_suspect);
}

static void withdraw(void *group, uint64_t sequence)
{
    muster_group_memory_withdraw(group, sequence);
}

static void leave(void *group, uint64_t call)
{
    muster_group_memory_leave(group, call);
}

static const struct muster_group_flight flight = {.begin = begin_in_flight,
                                                  .poll = poll_in_flight,
                                                  .check = check_in_flight,
                                                  .end = end_in_flight,
                                                  .withdraw = withdraw,
                                                  .leave = leave};

const struct muster_device muster_host_device = {
    .name = "host",
    .is_active = is_active,
    .find = find,
    .copy = copy,
    .combine = combine,
    .finish = finish,
    .wait = wait_for_work,
    .export_pages = muster_device_export_nothing,
    .run_group_step = run_group_step,
    .announce_to_group = announce_to_group,
    .flight = &flight,
    .rdma_advice = "Raise the limit of locked memory (ulimit -l)",
};
