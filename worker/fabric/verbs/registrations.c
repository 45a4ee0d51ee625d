/* The cache of registrations: found by block, invalidated when memory goes away, evicted by age. */
#include "worker/fabric/verbs/registrations.h"

#include "worker/memory/allocation_registry.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <uthash.h>
#include <utlist.h>

#define BLOCK_BYTES ((uintptr_t)MUSTER_REGISTRATION_BLOCK_BYTES)

/* The kind of memory decides how long it may stay registered: see registrations.h. */
enum kind { KIND_ALLOCATED, KIND_WATCHED, KIND_DEVICE, KIND_TRANSIENT };

struct muster_registration {
    uintptr_t begin, end;
    const void *data;    /* a byte of it that the caller may use */
    struct block *block; /* NULL: invalidated: not used again, and removed when it is released */
    void *handle;
    uint32_t holds;
    enum kind kind;
    struct muster_registration *block_prev, *block_next;
    struct muster_registration *prev, *next; /* in idle or held */
};

/* A block of one memory: the id of an allocation of muster_alloc(), that of an allocation
 * of another device, or 0 in both. */
struct key {
    uint64_t begin;
    uint64_t allocation;
    uint64_t memory_id;
};

struct block {
    struct key key;
    struct muster_registration *all;
    UT_hash_handle hh;
};

struct muster_registrations {
    struct muster_registrar registrar;
    uint64_t bound_bytes;
    uintptr_t page_bytes;
    uint64_t freed_count;    /* muster_allocation_freed_count() at the last check */
    uint64_t unmap_position; /* up to which unmapped ranges were handled */
    uint64_t last_memory;    /* id of the device allocation registered last */
    struct block *blocks;
    struct muster_registration *idle; /* least recently held first */
    struct muster_registration *held;
    struct muster_registrations_figures figures;
};

/* The bytes of a request in its first block, and what may be registered around them. */
struct request {
    struct key key;
    const void *data_pointer;
    uintptr_t data, data_end;
    uintptr_t begin, end;
    void *base; /* begin */
    const struct muster_device_memory *memory;
    bool watch_valid; /* watched registrations are up to date */
};

uint64_t muster_registrations_bound(uint64_t lockable_bytes, uint64_t memory_bytes)
{
    uint64_t by_limit = lockable_bytes == UINT64_MAX ? UINT64_MAX : lockable_bytes / 2;
    return by_limit < memory_bytes / 4 ? by_limit : memory_bytes / 4;
}

struct muster_registrations *muster_registrations_create(const struct muster_registrar *registrar,
                                                         uint64_t bound_bytes)
{
    struct muster_registrations *registrations = calloc(1, sizeof *registrations);
    if (registrations != NULL) {
        registrations->registrar = *registrar;
        registrations->bound_bytes = bound_bytes;
        registrations->page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        registrations->freed_count = muster_allocation_freed_count();
        if (registrar->unmap_watch != NULL) {
            registrations->unmap_position = registrar->unmap_watch->hold();
        }
    }
    return registrations;
}

/* Removes the registration from the index, so that it is not found again. */
static void unlink_from_block(struct muster_registrations *registrations,
                              struct muster_registration *entry)
{
    struct block *block = entry->block;
    DL_DELETE2(block->all, entry, block_prev, block_next);
    if (block->all == NULL) {
        HASH_DEL(registrations->blocks, block);
        free(block);
    }
    entry->block = NULL;
}

/* Removes an idle registration. */
static void deregister(struct muster_registrations *registrations,
                       struct muster_registration *entry)
{
    if (entry->block != NULL) {
        unlink_from_block(registrations, entry);
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the entry is in the list */
    DL_DELETE(registrations->idle, entry);
    registrations->registrar.remove(registrations->registrar.device, entry->handle);
    registrations->figures.bytes -= entry->end - entry->begin;
    registrations->figures.count--;
    free(entry);
}

void muster_registrations_destroy(struct muster_registrations *registrations)
{
    if (registrations == NULL) {
        return;
    }
    DL_CONCAT(registrations->idle, registrations->held);
    while (registrations->idle != NULL) {
        deregister(registrations, registrations->idle);
    }
    if (registrations->registrar.unmap_watch != NULL) {
        registrations->registrar.unmap_watch->release();
    }
    free(registrations);
}

/* The registration's memory has changed, or may change soon. */
static void invalidate(struct muster_registrations *registrations,
                       struct muster_registration *entry)
{
    if (entry->holds == 0) {
        deregister(registrations, entry);
    } else {
        unlink_from_block(registrations, entry);
    }
}

/* Invalidates the registrations of the block that overlap [begin, end). May free the block. */
static void invalidate_in_block(struct muster_registrations *registrations, struct block *block,
                                enum kind kind, uintptr_t begin, uintptr_t end)
{
    struct muster_registration *next = NULL;
    for (struct muster_registration *entry = block->all; entry != NULL; entry = next) {
        next = entry->block_next;
        if (entry->kind == kind && entry->begin < end && begin < entry->end) {
            invalidate(registrations, entry);
        }
    }
}

static struct block *find_block(const struct muster_registrations *registrations,
                                const struct key *key)
{
    struct block *block = NULL;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a key has no padding */
    HASH_FIND(hh, registrations->blocks, key, sizeof *key, block);
    return block;
}

/* Invalidates registrations of host memory that is not of muster_alloc(). Visits each block of the
 * range, or all blocks that exist, whichever are fewer. */
static void invalidate_range(struct muster_registrations *registrations, enum kind kind,
                             uintptr_t begin, uintptr_t end)
{
    if ((end - begin) / BLOCK_BYTES >= HASH_COUNT(registrations->blocks)) {
        struct block *block = NULL;
        struct block *next = NULL;
        HASH_ITER(hh, registrations->blocks, block, next)
        {
            invalidate_in_block(registrations, block, kind, begin, end);
        }
        return;
    }
    for (uintptr_t at = begin & -BLOCK_BYTES; at < end; at += BLOCK_BYTES) {
        struct block *block = find_block(registrations, &(struct key){.begin = at});
        if (block != NULL) {
            invalidate_in_block(registrations, block, kind, begin, end);
        }
    }
}

static void invalidate_freed_allocations(struct muster_registrations *registrations)
{
    uint64_t freed_count = muster_allocation_freed_count();
    if (freed_count == registrations->freed_count) {
        return;
    }
    registrations->freed_count = freed_count;
    struct block *block = NULL;
    struct block *next = NULL;
    HASH_ITER(hh, registrations->blocks, block, next)
    {
        if (block->key.allocation != 0 && !muster_allocation_is_live(block->key.allocation)) {
            invalidate_in_block(registrations, block, KIND_ALLOCATED, 0, UINTPTR_MAX);
        }
    }
}

/* Checks all registrations of device memory when memory of another allocation is requested: an
 * earlier one may have been freed. */
static void invalidate_freed_device_memory(struct muster_registrations *registrations,
                                           const struct request *request)
{
    struct block *block = NULL;
    struct block *next = NULL;
    if (request->key.memory_id == 0 || request->key.memory_id == registrations->last_memory) {
        return;
    }
    registrations->last_memory = request->key.memory_id;
    HASH_ITER(hh, registrations->blocks, block, next)
    {
        struct muster_device_memory now = {.id = 0};
        if (block->key.memory_id != 0 &&
            (!muster_device_find(block->all->data, &now) || now.id != block->key.memory_id)) {
            invalidate_in_block(registrations, block, KIND_DEVICE, 0, UINTPTR_MAX);
        }
    }
}

/* Invalidates registrations of unmapped memory. False: the unmapped ranges are unknown at the
 * moment. */
static bool invalidate_unmapped(struct muster_registrations *registrations)
{
    struct muster_unmap_report report = {.more = true};
    while (report.more) {
        const struct muster_unmap_watch_ops *watch = registrations->registrar.unmap_watch;
        if (watch == NULL || !watch->collect(&registrations->unmap_position, &report)) {
            return false;
        }
        if (report.everything) {
            invalidate_range(registrations, KIND_WATCHED, 0, UINTPTR_MAX);
        }
        for (size_t i = 0; i < report.count; i++) {
            invalidate_range(registrations, KIND_WATCHED, report.gone[i].begin, report.gone[i].end);
        }
    }
    return true;
}

static uintptr_t smaller_of(uintptr_t a, uintptr_t b)
{
    return a < b ? a : b;
}

/* An allocation of muster_alloc() or of another device may be used as a whole, whatever the usable
 * range is. */
static struct request make_request(const struct muster_registrations *registrations,
                                   const void *data, size_t size_bytes,
                                   struct muster_usable_range usable)
{
    uintptr_t at = (uintptr_t)data;
    uintptr_t first = (uintptr_t)usable.base;
    uintptr_t end = first + usable.size_bytes;
    assert(size_bytes > 0 && first <= at && at < end && size_bytes <= end - at);
    struct muster_allocation allocation = {.id = 0};
    if (usable.memory != NULL) {
        first = usable.memory->begin;
        end = usable.memory->end;
    } else if (muster_allocation_find(data, size_bytes, &allocation)) {
        first = (uintptr_t)allocation.base;
        end = first + allocation.size_bytes;
    }
    uintptr_t page = registrations->page_bytes;
    uintptr_t block = at & -BLOCK_BYTES;
    uintptr_t block_end = block + BLOCK_BYTES;
    uintptr_t begin = first > block ? first & -page : block;
    return (struct request){
        .key = {.begin = block,
                .allocation = allocation.id,
                .memory_id = usable.memory != NULL ? usable.memory->id : 0},
        .memory = usable.memory,
        .data_pointer = data,
        .data = at,
        .data_end = smaller_of(at + size_bytes, block_end),
        .begin = begin,
        .base = (char *)data - (at - begin), /* may lie before the usable range: whole pages */
        .end = smaller_of((end + page - 1) & -page, block_end),
    };
}

static struct muster_registration *
find_registration(const struct muster_registrations *registrations, const struct request *request)
{
    const struct block *block = find_block(registrations, &request->key);
    for (struct muster_registration *entry = block == NULL ? NULL : block->all; entry != NULL;
         entry = entry->block_next) {
        if (entry->begin <= request->data && request->data_end <= entry->end &&
            (entry->kind != KIND_WATCHED || request->watch_valid)) {
            return entry;
        }
    }
    return NULL;
}

static bool evict(struct muster_registrations *registrations)
{
    if (registrations->idle == NULL) {
        return false;
    }
    deregister(registrations, registrations->idle);
    registrations->figures.evictions++;
    return true;
}

static bool make_room(struct muster_registrations *registrations, uint64_t size_bytes)
{
    if (size_bytes > registrations->bound_bytes) {
        return false;
    }
    while (registrations->figures.bytes > registrations->bound_bytes - size_bytes ||
           registrations->figures.count == MUSTER_REGISTRATIONS_MAX) {
        if (!evict(registrations)) {
            return false;
        }
    }
    return true;
}

/* The device's own limit is found by trying: evicts until the device accepts. */
static void *register_with_device(struct muster_registrations *registrations,
                                  const struct request *request)
{
    const struct muster_registrar *registrar = &registrations->registrar;
    void *handle = NULL;
    do {
        errno = 0;
        handle = registrar->add(registrar->device, request->memory, request->base,
                                request->end - request->begin);
    } while (handle == NULL && errno == ENOMEM && evict(registrations));
    return handle;
}

static struct block *find_or_make_block(struct muster_registrations *registrations, struct key key)
{
    struct block *block = find_block(registrations, &key);
    if (block == NULL && (block = calloc(1, sizeof *block)) != NULL) {
        block->key = key;
        HASH_ADD(hh, registrations->blocks, key, sizeof key, block);
    }
    return block;
}

/* Called after the registration, when the pages are present. The caller may use the memory, so it
 * has not changed since. */
static enum kind choose_kind(const struct muster_registrations *registrations,
                             const struct request *request)
{
    const struct muster_unmap_watch_ops *watch = registrations->registrar.unmap_watch;
    if (request->key.allocation != 0) {
        return KIND_ALLOCATED;
    }
    if (request->memory != NULL) {
        return request->key.memory_id != 0 ? KIND_DEVICE : KIND_TRANSIENT;
    }
    return watch != NULL && watch->watch(request->base, request->end - request->begin)
               ? KIND_WATCHED
               : KIND_TRANSIENT;
}

/* Registers the request's block; the result is idle, and in the index. */
static struct muster_registration *register_block(struct muster_registrations *registrations,
                                                  const struct request *request)
{
    uint64_t size_bytes = request->end - request->begin;
    struct muster_registration *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        return NULL;
    }
    entry->handle =
        make_room(registrations, size_bytes) ? register_with_device(registrations, request) : NULL;
    /* Only now: the eviction before may have freed the block. */
    entry->block = entry->handle == NULL ? NULL : find_or_make_block(registrations, request->key);
    if (entry->block == NULL) {
        if (entry->handle != NULL) {
            registrations->registrar.remove(registrations->registrar.device, entry->handle);
        }
        free(entry);
        return NULL;
    }
    entry->begin = request->begin;
    entry->end = request->end;
    entry->data = request->data_pointer;
    entry->kind = choose_kind(registrations, request);
    DL_APPEND2(entry->block->all, entry, block_prev, block_next);
    DL_APPEND(registrations->idle, entry);
    struct muster_registrations_figures *figures = &registrations->figures;
    figures->count++;
    figures->bytes += size_bytes;
    figures->most_bytes =
        figures->bytes > figures->most_bytes ? figures->bytes : figures->most_bytes;
    return entry;
}

/* Whether the bytes are within one allocation: where several are mapped in a row, they may reach
 * into the next one. */
static bool is_contained(const struct request *request)
{
    return request->begin <= request->data && request->data_end <= request->end;
}

/* What has changed is invalidated before the search: freed allocations, and unmapped ranges for
 * memory that could be watched. Memory of another device is checked only before a registration,
 * because the check calls its driver. */
struct muster_registration *muster_registrations_hold(struct muster_registrations *registrations,
                                                      const void *data, size_t size_bytes,
                                                      struct muster_usable_range usable,
                                                      size_t *ret_covered_bytes)
{
    invalidate_freed_allocations(registrations);
    struct request request = make_request(registrations, data, size_bytes, usable);
    request.watch_valid =
        request.key.allocation == 0 && request.memory == NULL && invalidate_unmapped(registrations);
    struct muster_registration *entry = find_registration(registrations, &request);
    if (entry != NULL) {
        registrations->figures.hits++;
    } else {
        registrations->figures.misses++;
        invalidate_freed_device_memory(registrations, &request);
        entry = is_contained(&request) ? register_block(registrations, &request) : NULL;
        if (entry == NULL) {
            registrations->figures.refused++;
            return NULL;
        }
    }
    if (entry->holds++ == 0) {
        DL_DELETE(registrations->idle, entry);
        DL_APPEND(registrations->held, entry);
    }
    *ret_covered_bytes = request.data_end - request.data;
    return entry;
}

void *muster_registration_handle(const struct muster_registration *registration)
{
    return registration->handle;
}

void muster_registrations_release(struct muster_registrations *registrations,
                                  struct muster_registration *registration)
{
    assert(registration->holds > 0);
    if (--registration->holds > 0) {
        return;
    }
    DL_DELETE(registrations->held, registration);
    DL_APPEND(registrations->idle, registration);
    if (registration->block == NULL) {
        deregister(registrations, registration);
    }
}

void muster_registrations_end(struct muster_registrations *registrations,
                              struct muster_usable_range usable)
{
    uintptr_t begin = (uintptr_t)usable.base;
    invalidate_range(registrations, KIND_TRANSIENT, begin, begin + usable.size_bytes);
}

struct muster_registrations_figures
muster_registrations_figures(const struct muster_registrations *registrations)
{
    return registrations->figures;
}
