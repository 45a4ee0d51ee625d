/* Groups of the host as a device: its ranks' shared memory (group_memory.h) in the slots of
 * group.h. */
#include "worker/base/status.h"
#include "worker/device/host/group_memory.h"

extern const struct muster_group_ops muster_host_groups;

static muster_status invite(const struct muster_group_options *options,
                            struct muster_group_invitation *ret_invitation)
{
    int fd;
    TRY(muster_group_memory_invite(options->ranks, &fd));
    *ret_invitation = (struct muster_group_invitation){.fd = fd};
    return MUSTER_OK;
}

static muster_status open_group(const struct muster_group_options *options,
                                const struct muster_group_invitation *invitation, void **ret_group)
{
    struct muster_group_memory *memory = NULL;
    TRY(muster_group_memory_open(options, invitation->fd, &memory));
    *ret_group = memory;
    return MUSTER_OK;
}

static muster_status open_channel(void *group, uint32_t number, void **ret_channel)
{
    struct muster_group_memory *part = NULL;
    TRY(muster_group_memory_create_part(group, number, &part));
    *ret_channel = part;
    return MUSTER_OK;
}

/* The cost model has the figures of the memory. */
static void price(void *group, struct muster_memory_reach *ret_reach)
{
    *ret_reach =
        (struct muster_memory_reach){.staging_bytes = MUSTER_GROUP_STAGING_BYTES,
                                     .buffers = group == NULL || muster_group_memory_probe(group)};
}

static void start(void *group, uint64_t sequence, bool parts)
{
    if (parts) {
        muster_group_memory_begin_calls(group, sequence);
    } else {
        muster_group_memory_begin(group, sequence);
    }
}

static void abort_group(void *group, int64_t until_ns)
{
    (void)until_ns; /* nothing here can hang */
    muster_group_memory_abort(group);
}

static void close_group(void *group)
{
    muster_group_memory_destroy(group);
}

static muster_status run(void *group, const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    return muster_group_memory_run(group, step, ret_suspect);
}

static muster_status announce(void *group, const struct muster_group_launch *step,
                              uint32_t *ret_suspect)
{
    return muster_group_memory_announce(group, step, ret_suspect);
}

static void begin(void *group, const struct muster_group_launch *step, bool announces)
{
    muster_group_memory_begin_step(group, step, announces);
}

static muster_status poll(void *group, int64_t spin_ns, bool *ret_advanced)
{
    return muster_group_memory_poll(group, spin_ns, ret_advanced);
}

static muster_status check(void *group)
{
    return muster_group_memory_check(group);
}

static muster_status end(void *group, muster_status status, uint32_t *ret_suspect)
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

const struct muster_group_ops muster_host_groups = {.members_max = MUSTER_GROUP_RANKS_MAX,
                                                    .needs_descriptor = true,
                                                    .invite = invite,
                                                    .open = open_group,
                                                    .open_channel = open_channel,
                                                    .price = price,
                                                    .start = start,
                                                    .abort = abort_group,
                                                    .close = close_group,
                                                    .run = run,
                                                    .announce = announce,
                                                    .begin = begin,
                                                    .poll = poll,
                                                    .check = check,
                                                    .end = end,
                                                    .withdraw = withdraw,
                                                    .leave = leave};
