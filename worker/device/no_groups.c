/* The groups of a device that has none: no context opens one. */
#include "worker/base/status.h"
#include "worker/device/device.h"

static muster_status refuse(void)
{
    return muster_error_set(MUSTER_INVALID, "this device performs no group steps");
}

static muster_status invite(const struct muster_group_options *options,
                            struct muster_group_invitation *ret_invitation)
{
    (void)options;
    (void)ret_invitation;
    return refuse();
}

/* NOLINTBEGIN(readability-non-const-parameter): the types of the slots */
static muster_status open_group(const struct muster_group_options *options,
                                const struct muster_group_invitation *invitation, void **ret_group)
{
    (void)options;
    (void)invitation;
    (void)ret_group;
    return refuse();
}

static muster_status open_channel(void *group, uint32_t number, void **ret_channel)
{
    (void)group;
    (void)number;
    (void)ret_channel;
    return refuse();
}

static void price(void *group, struct muster_memory_reach *ret_reach)
{
    (void)group;
    (void)ret_reach;
}

static void start(void *group, uint64_t sequence, bool parts)
{
    (void)group;
    (void)sequence;
    (void)parts;
}

static void abort_group(void *group, int64_t until_ns)
{
    (void)group;
    (void)until_ns;
}

static void close_group(void *group)
{
    (void)group;
}

static muster_status run(void *group, const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    (void)group;
    (void)step;
    (void)ret_suspect;
    return refuse();
}

static void begin(void *group, const struct muster_group_launch *step, bool announces)
{
    (void)group;
    (void)step;
    (void)announces;
}

static muster_status poll(void *group, int64_t spin_ns, bool *ret_advanced)
{
    (void)group;
    (void)spin_ns;
    *ret_advanced = false;
    return refuse();
}

static muster_status check(void *group)
{
    (void)group;
    return MUSTER_OK;
}

static muster_status end(void *group, muster_status status, uint32_t *ret_suspect)
{
    (void)group;
    (void)ret_suspect;
    return status;
}

static void note(void *group, uint64_t number)
{
    (void)group;
    (void)number;
}
/* NOLINTEND(readability-non-const-parameter) */

const struct muster_group_ops muster_device_no_groups = {.members_max = 0,
                                                         .invite = invite,
                                                         .open = open_group,
                                                         .open_channel = open_channel,
                                                         .price = price,
                                                         .start = start,
                                                         .abort = abort_group,
                                                         .close = close_group,
                                                         .run = run,
                                                         .announce = run,
                                                         .begin = begin,
                                                         .poll = poll,
                                                         .check = check,
                                                         .end = end,
                                                         .withdraw = note,
                                                         .leave = note};
