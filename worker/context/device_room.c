/* Pinned memory and queues for staged calls. */
#include "worker/context/device_room.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "worker/base/log.h"
#include "worker/base/status.h"
#include "worker/muster.h"

enum { LEAST_BYTES = 1 << 20, PAGE_BYTES = 4096 };

static muster_status allocate(struct muster_device_room *room, uint64_t size_bytes)
{
    void *memory = NULL;
    room->shared = muster_alloc(size_bytes, &memory) == MUSTER_OK;
    if (!room->shared && posix_memalign(&memory, PAGE_BYTES, size_bytes) != 0) {
        return muster_error_set(MUSTER_FATAL, "no memory of the host for %llu bytes of a device",
                                (unsigned long long)size_bytes);
    }
    room->memory = memory;
    room->size_bytes = size_bytes;
    return MUSTER_OK;
}

/* Without it copies are slower. */
static void pin(struct muster_device_room *room)
{
    static atomic_bool told;
    room->pinned = room->queues->pin(&room->of, room->memory, room->size_bytes) == MUSTER_OK;
    if (!room->pinned && !atomic_exchange(&told, true)) {
        muster_log(MUSTER_LOG_WARN, "%s: copies of the device's memory will be slow",
                   muster_last_error());
    }
}

static bool serves(const struct muster_device_room *room, const struct muster_device_memory *memory)
{
    return room->of.device == memory->device && room->of.context == memory->context;
}

muster_status muster_device_room_reserve(struct muster_device_room *room,
                                         const struct muster_device_memory *memory,
                                         uint64_t size_bytes)
{
    uint64_t least = size_bytes > LEAST_BYTES ? size_bytes : LEAST_BYTES;
    uint64_t whole = (least + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (room->memory != NULL && serves(room, memory) && room->size_bytes >= size_bytes) {
        return MUSTER_OK;
    }
    muster_device_room_finish(room);
    room->of = *memory;
    room->queues = memory->device->queues();
    TRY(allocate(room, whole));
    pin(room);
    return MUSTER_OK;
}

muster_status muster_device_room_open_queues(struct muster_device_room *room)
{
    if (room->fetches == NULL) {
        TRY(room->queues->open(&room->of, &room->fetches));
    }
    return room->stores != NULL ? MUSTER_OK : room->queues->open(&room->of, &room->stores);
}

void muster_device_room_finish(struct muster_device_room *room)
{
    if (room->queues != NULL) {
        room->queues->close(room->fetches);
        room->queues->close(room->stores);
    }
    if (room->queues != NULL && room->pinned && !room->queues->unpin(&room->of, room->memory)) {
        /* It is left behind. */
        *room = (struct muster_device_room){0};
        return;
    }
    if (room->shared) {
        muster_free(room->memory);
    } else {
        free(room->memory);
    }
    *room = (struct muster_device_room){0};
}

/* Those that were abandoned. */
struct abandoned {
    struct muster_device_room room;
    struct abandoned *next;
};

void muster_device_room_abandon(struct muster_device_room *room)
{
    static _Atomic(struct abandoned *) all;
    struct abandoned *kept = calloc(1, sizeof *kept);
    muster_log(MUSTER_LOG_WARN,
               "device %s does not end its copies: %llu bytes of pinned memory are left behind",
               room->of.device->name, (unsigned long long)room->size_bytes);
    if (kept != NULL) {
        kept->room = *room;
        kept->next = atomic_load(&all);
        while (!atomic_compare_exchange_weak(&all, &kept->next, kept)) {
        }
    }
    *room = (struct muster_device_room){0};
}
