/*
 * The cache of registrations with threads that map, unmap and release memory all the time, on this
 * kernel and with its watch. Each page begins with a number that is used once; a simulated device
 * records the numbers of what it registers, as a real one keeps the pages. MUSTER_SEED=N repeats a
 * run, as far as a race can be repeated.
 */
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/fabric/verbs/registrations.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    THREADS = 4,
    ROUNDS = 3000,
    BUFFERS = 3,
    PAGES = 4,             /* of a buffer, at most */
    BOUND_PAGES = 12,      /* less than all have at a time */
    ONE_OF_MANY_STAYS = 4, /* how often a buffer is reused */
};

struct region {
    uintptr_t begin;
    size_t count;
    uint64_t stamps[PAGES];
};

struct buffer {
    char *memory;
    size_t pages;
    uint64_t stamps[PAGES]; /* what is in it now */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* as the fabric's */
static struct muster_registrations *registrations;
static atomic_uint_fast64_t last_stamp;
static atomic_uint stale;
static size_t page;

static void *add_region(void *device, const struct muster_device_memory *memory, void *base,
                        size_t size_bytes)
{
    (void)memory;
    struct region *region = calloc(1, sizeof *region);
    (void)device;
    region->begin = (uintptr_t)base;
    region->count = size_bytes / page;
    for (size_t i = 0; i < region->count; i++) {
        memcpy(&region->stamps[i], (char *)base + i * page, sizeof region->stamps[i]);
    }
    return region;
}

static void remove_region(void *device, void *region)
{
    (void)device;
    free(region);
}

static void stamp(struct buffer *buffer, size_t index)
{
    buffer->stamps[index] = atomic_fetch_add(&last_stamp, 1) + 1;
    memcpy(buffer->memory + index * page, &buffer->stamps[index], sizeof buffer->stamps[index]);
}

static void map_anew(struct buffer *buffer, size_t pages)
{
    if (buffer->memory != NULL) {
        munmap(buffer->memory, buffer->pages * page);
    }
    buffer->pages = pages;
    buffer->memory =
        mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->memory == MAP_FAILED) {
        abort();
    }
    for (size_t i = 0; i < pages; i++) {
        stamp(buffer, i);
    }
}

/* Like an operation that sends the buffer; the lock is released in the middle, as while bytes move.
 */
static void use(const struct buffer *buffer)
{
    struct muster_usable_range usable = {.base = buffer->memory,
                                         .size_bytes = buffer->pages * page};
    struct muster_registration *held[2] = {NULL, NULL};
    size_t done = 0;
    {
        AUTO_LOCK(&mutex);
        for (int i = 0; i < 2 && done < usable.size_bytes; i++) {
            size_t covered = 0;
            held[i] = muster_registrations_hold(registrations, buffer->memory + done,
                                                usable.size_bytes - done, usable, &covered);
            if (held[i] == NULL) {
                break;
            }
            const struct region *region = muster_registration_handle(held[i]);
            for (size_t at = done / page; at < (done + covered) / page; at++) {
                size_t index = ((uintptr_t)buffer->memory + at * page - region->begin) / page;
                if (region->stamps[index] != buffer->stamps[at]) {
                    atomic_fetch_add(&stale, 1);
                }
            }
            done += covered;
        }
    }
    AUTO_LOCK(&mutex);
    for (int i = 0; i < 2; i++) {
        if (held[i] != NULL) {
            muster_registrations_release(registrations, held[i]);
        }
    }
    muster_registrations_end(registrations, usable);
}

static void *run(void *argument)
{
    unsigned random = *(const unsigned *)argument;
    struct buffer buffers[BUFFERS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        struct buffer *buffer = &buffers[(unsigned)rand_r(&random) % BUFFERS];
        unsigned what = (unsigned)rand_r(&random) % (2 + ONE_OF_MANY_STAYS);
        if (buffer->memory == NULL || what == 0) {
            map_anew(buffer, 1 + (unsigned)rand_r(&random) % PAGES);
        } else if (what == 1) {
            size_t index = (unsigned)rand_r(&random) % buffer->pages;
            madvise(buffer->memory + index * page, page, MADV_DONTNEED);
            stamp(buffer, index);
        }
        use(buffer);
    }
    for (int i = 0; i < BUFFERS; i++) {
        if (buffers[i].memory != NULL) {
            munmap(buffers[i].memory, buffers[i].pages * page);
        }
    }
    return NULL;
}

static void test_held_registrations_are_of_the_present_memory(void **state)
{
    (void)state;
    const struct muster_registrar registrar = {
        .add = add_region, .remove = remove_region, .unmap_watch = &muster_unmap_watch_ops};
    const char *only = getenv("MUSTER_SEED");
    unsigned seed = only != NULL ? (unsigned)strtoul(only, NULL, 10) : (unsigned)muster_clock_ns();
    print_message("MUSTER_SEED=%u\n", seed);
    registrations = muster_registrations_create(&registrar, BOUND_PAGES * page);
    assert_non_null(registrations);
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = seed + i;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &seeds[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct muster_registrations_figures figures = muster_registrations_figures(registrations);
    muster_registrations_destroy(registrations);
    print_message("%" PRIu64 " served, %" PRIu64 " registered, %" PRIu64 " evicted\n", figures.hits,
                  figures.misses, figures.evictions);
    assert_int_equal(atomic_load(&stale), 0);
    assert_true(figures.hits > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_registrations_are_of_the_present_memory),
    };
    page = (size_t)sysconf(_SC_PAGESIZE);
    struct buffer buffer = {0};
    map_anew(&buffer, 1);
    (void)muster_unmap_watch_ops.hold();
    bool works = muster_unmap_watch_ops.watch(buffer.memory, page);
    muster_unmap_watch_ops.release();
    munmap(buffer.memory, page);
    if (!works) {
        (void)printf("SKIP: this kernel has no userfaultfd, or forbids it\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
