/*
 * A toy device: an arena of addresses that the CPU cannot touch (an access is a SIGSEGV), and a
 * second mapping of the same bytes, by which the device copies and reduces. It shows what a device
 * has to do itself. All of it is in this folder and in one row of tests/support/devices.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/reduce/reduce.h"
#include "tests/support/devices.h"
#include "tests/support/toy_device/toy_device.h"
#include "tests/support/toy_device/toy_parts.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/device/devices.h"

enum {
    ARENA_BYTES = 64 << 20,
    ALIGNMENT = 64,
    ALLOCATIONS_MAX = 4096,
};

/* Allocations are only added, one behind the other; a released one is marked. */
static struct {
    char *seen;            /* by programs; not accessible */
    char *alias;           /* the same bytes */
    pthread_mutex_t mutex; /* guards what follows */
    size_t used, count;
    struct {
        size_t begin, size_bytes;
        bool released;
    } allocations[ALLOCATIONS_MAX];
} arena = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_active(void)
{
    return arena.seen != NULL;
}

static bool is_seen(const void *data)
{
    const char *at = data;
    return arena.seen != NULL && at >= arena.seen && at < arena.seen + ARENA_BYTES;
}

static bool find(const void *data, struct muster_device_memory *ret_memory)
{
    if (!is_seen(data)) {
        return false;
    }
    size_t at = (size_t)((const char *)data - arena.seen);
    AUTO_LOCK(&arena.mutex);
    for (size_t i = arena.count; i-- > 0;) {
        size_t begin = arena.allocations[i].begin;
        size_t end = begin + arena.allocations[i].size_bytes;
        if (at >= begin && at < end) {
            *ret_memory = (struct muster_device_memory){.device = &toy_device,
                                                        .begin = (uintptr_t)arena.seen + begin,
                                                        .end = (uintptr_t)arena.seen + end,
                                                        .id = i + 1};
            return !arena.allocations[i].released;
        }
    }
    return false;
}

/* Where the device touches these bytes, which may be the host's. */
char *toy_reach(const void *data)
{
    return is_seen(data) ? arena.alias + ((const char *)data - arena.seen) : (char *)data;
}

static muster_status copy(const struct muster_device_memory *memory, void *to, const void *from,
                          size_t size_bytes)
{
    (void)memory;
    if (size_bytes > 0) {
        memmove(toy_reach(to), toy_reach(from), size_bytes);
    }
    return MUSTER_OK;
}

static muster_status combine(const struct muster_combination *combination)
{
    muster_reduction_combine(combination->reduction, toy_reach(combination->target.at),
                             toy_reach(combination->left.at), toy_reach(combination->right.at),
                             combination->count);
    return MUSTER_OK;
}

static muster_status finish(const struct muster_device_memory *memory,
                            const struct muster_reduction *reduction, void *data, uint64_t count,
                            uint64_t contributions)
{
    (void)memory;
    muster_reduction_finish(reduction, toy_reach(data), count, contributions);
    return MUSTER_OK;
}

static muster_status wait_for_work(const struct muster_device_memory *memory)
{
    (void)memory;
    return MUSTER_OK;
}

const struct muster_device toy_device = {
    .name = "toy",
    .is_active = is_active,
    .find = find,
    .copy = copy,
    .combine = combine,
    .reduces = muster_device_reduces_nothing,
    .finish = finish,
    .wait = wait_for_work,
    .export_pages = muster_device_export_nothing,
    .queues = muster_device_without_queues,
    .groups = &toy_group_ops,
    .rdma_advice = "Use another device: this one is a toy",
};

/* The row of the tests --------------------------------------------------------------------------
 */

static void start(void)
{
    int fd = memfd_create("toy device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, ARENA_BYTES) != 0) {
        abort();
    }
    arena.alias = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    arena.seen = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (arena.alias == MAP_FAILED || arena.seen == MAP_FAILED ||
        muster_devices_add(&toy_device) != MUSTER_OK) {
        abort();
    }
}

/* The bytes are never reused, so that a use after the release is found as one. */
static void *allocate(size_t size_bytes)
{
    size_t whole = (size_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    AUTO_LOCK(&arena.mutex);
    size_t begin = arena.used;
    if (begin + whole > ARENA_BYTES || arena.count == ALLOCATIONS_MAX) {
        abort();
    }
    arena.used += whole;
    arena.allocations[arena.count].begin = begin;
    arena.allocations[arena.count++].size_bytes = whole;
    return arena.seen + begin;
}

static void release(void *memory)
{
    struct muster_device_memory found;
    if (!find(memory, &found)) {
        abort();
    }
    AUTO_LOCK(&arena.mutex);
    arena.allocations[found.id - 1].released = true;
}

static void *alias(const void *memory)
{
    return is_seen(memory) ? toy_reach(memory) : NULL;
}

static void *of_alias(const void *memory)
{
    const char *at = memory;
    return at >= arena.alias && at < arena.alias + ARENA_BYTES ? arena.seen + (at - arena.alias)
                                                               : NULL;
}

const struct test_device toy_test_device = {.name = "toy",
                                            .start = start,
                                            .allocate = allocate,
                                            .release = release,
                                            .alias = alias,
                                            .of_alias = of_alias};
