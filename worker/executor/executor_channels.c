/* Channels of operations in flight: who is next in each, and what has been left. */
#include "worker/executor/executor_channels.h"

#include "worker/device/devices.h"

static struct muster_group_channel *channel_of(const struct muster_operation *operation)
{
    struct muster_group_channels *channels = operation->group->channels;
    return &channels->items[(operation->launch->sequence - 1) % channels->count];
}

uint64_t muster_channel_number(const struct muster_operation *operation)
{
    return (operation->launch->sequence - 1) / operation->group->channels->count + 1;
}

void *muster_channel_group(const struct muster_operation *operation)
{
    return channel_of(operation)->state;
}

/* Publishes up to which operation this rank has nothing left to do. */
static void publish(const struct muster_operation_group *group,
                    struct muster_group_channel *channel)
{
    const struct muster_operation *first = TAILQ_FIRST(&channel->operations);
    uint64_t left = first == NULL ? channel->started : muster_channel_number(first) - 1;
    if (left > channel->left) {
        channel->left = left;
        group->device->groups->leave(channel->state, left);
    }
}

void muster_channel_enter(struct muster_operation *operation)
{
    struct muster_group_channel *channel = channel_of(operation);
    if (channel->state == NULL) { /* the rank is alone on its host */
        return;
    }
    channel->started = muster_channel_number(operation);
    operation->in_channel = operation->steps != NULL;
    if (operation->in_channel) {
        TAILQ_INSERT_TAIL(&channel->operations, operation, channel_order);
    }
    publish(operation->group, channel);
}

bool muster_channel_is_next(const struct muster_operation *operation)
{
    return TAILQ_FIRST(&channel_of(operation)->operations) == operation;
}

void muster_channel_leave(struct muster_operation *operation)
{
    struct muster_group_channel *channel = channel_of(operation);
    if (!operation->in_channel) {
        return;
    }
    operation->in_channel = false;
    TAILQ_REMOVE(&channel->operations, operation, channel_order);
    publish(operation->group, channel);
    __atomic_store_n(operation->awake, true, __ATOMIC_SEQ_CST); /* another one is the next now */
}

void muster_channel_withdraw(const struct muster_operation *operation)
{
    const struct muster_operation_group *group = operation->group;
    for (uint32_t i = 0; i < group->channels->count; i++) {
        const struct muster_group_channel *channel = &group->channels->items[i];
        if (channel->state != NULL) {
            group->device->groups->withdraw(channel->state,
                                            MUSTER_PART_SEQUENCE(channel->started + 1, 0));
        }
    }
}

void muster_group_channels_init(struct muster_group_channels *channels, void *const *states,
                                uint32_t count)
{
    *channels = (struct muster_group_channels){.count = count};
    for (uint32_t i = 0; i < count; i++) {
        channels->items[i].state = states[i];
        TAILQ_INIT(&channels->items[i].operations);
    }
}
