/* The registry of devices, one row each. No other file knows all devices. */
#include "worker/device/devices.h"

#include <stdatomic.h>
#include <string.h>

#include "worker/base/status.h"
#include "worker/base/thread.h"

/* The host comes first: what no other row finds is its memory. The others are asked in turn. */
#define DEVICES(ROW) \
    ROW(host)        \
    ROW(cuda)

#define DECLARE(name) extern const struct muster_device muster_##name##_device;
#define POINT_TO(name) &muster_##name##_device,
#define NUMBER(name) ROW_##name,

DEVICES(DECLARE)

enum { DEVICES(NUMBER) ROWS };

/* Rows are only added, and the count is written after the row, so that readers need no lock. */
static struct {
    pthread_mutex_t mutex;
    atomic_size_t count;
    const struct muster_device *rows[MUSTER_DEVICES_MAX];
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER, .count = ROWS, .rows = {DEVICES(POINT_TO)}};

bool muster_devices_active(void)
{
    size_t count = atomic_load_explicit(&registry.count, memory_order_acquire);
    for (size_t i = ROW_host + 1; i < count; i++) {
        if (registry.rows[i]->is_active()) {
            return true;
        }
    }
    return false;
}

bool muster_device_find(const void *data, struct muster_device_memory *ret_memory)
{
    size_t count = atomic_load_explicit(&registry.count, memory_order_acquire);
    for (size_t i = ROW_host + 1; i < count && data != NULL; i++) {
        if (registry.rows[i]->is_active() && registry.rows[i]->find(data, ret_memory)) {
            return true;
        }
    }
    return false;
}

muster_status muster_devices_copy(void *to, const void *from, size_t size_bytes)
{
    struct muster_device_memory memory;
    if (size_bytes == 0) {
        return MUSTER_OK;
    }
    if (muster_device_find(to, &memory) || muster_device_find(from, &memory)) {
        return memory.device->copy(&memory, to, from, size_bytes);
    }
    memcpy(to, from, size_bytes);
    return MUSTER_OK;
}

const struct muster_device *muster_devices_host(void)
{
    return registry.rows[ROW_host];
}

const struct muster_device *muster_device_of_places(const struct muster_device_place *places,
                                                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (places[i].memory != NULL) {
            return places[i].memory->device;
        }
    }
    return muster_devices_host();
}

muster_status muster_devices_add(const struct muster_device *device)
{
    AUTO_LOCK(&registry.mutex);
    size_t count = atomic_load(&registry.count);
    if (count == MUSTER_DEVICES_MAX) {
        return muster_error_set(MUSTER_INVALID, "device %s: there are %d already", device->name,
                                MUSTER_DEVICES_MAX);
    }
    registry.rows[count] = device;
    atomic_store_explicit(&registry.count, count + 1, memory_order_release);
    return MUSTER_OK;
}
