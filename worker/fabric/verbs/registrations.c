#include "worker/fabric/verbs/registrations.h"

#include "worker/memory/allocation_registry.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <uthash.h>
#include <utlist.h>

#define BLOCK_BYTES ((uintptr_t)MUSTER_REGISTRATION_BLOCK_BYTES)

/* What its memory is, and so how long it may stay registered. */
enum kind { OF_PIECE, WATCHED, OF_GPU, PASSING };

struct muster_registration {
    uintptr_t begin, end;
    const void *data;    /* a byte of it that was asked for */
    struct block *block; /* NULL: condemned; not given out again, and removed when it is released */
    void *handle;
    uint32_t holds;
    enum kind kind;
    struct muster_registration *block_prev, *block_next;
    struct muster_registration *prev, *next; /* in idle or busy */
};

/* Which block of which memory: the id of a piece of muster_alloc(), of an allocation of a GPU, or 0
 * in both. */
struct key {
    uint64_t begin;
    uint64_t piece;
    uint64_t gpu;
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
    uint64_t freed;    /* pieces whose end was looked for */
    uint64_t unmapped; /* the position in what went away */
    uint64_t gpu;      /* the allocation that was registered last */
    struct block *blocks;
    struct muster_registration *idle; /* the one that was not held for the longest time first */
    struct muster_registration *busy; /* held */
    struct muster_registrations_figures figures;
};

/* What a caller wants: the bytes in the first block, and what may be registered around them. */
struct want {
    struct key key;
    const void *asked;
    uintptr_t data, data_end;
    uintptr_t begin, end;
    void *base; /* begin */
    const struct muster_gpu_memory *gpu;
    bool watch_serves; /* what is watched is as it was */
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
        registrations->freed = muster_allocation_freed_count();
        if (registrar->unmapped != NULL) {
            registrations->unmapped = registrar->unmapped->hold();
        }
    }
    return registrations;
}

/* Takes it out of the index: nobody finds it there any more. */
static void condemn(struct muster_registrations *registrations, struct muster_registration *entry)
{
    struct block *block = entry->block;
    DL_DELETE2(block->all, entry, block_prev, block_next);
    if (block->all == NULL) {
        HASH_DEL(registrations->blocks, block);
        free(block);
    }
    entry->block = NULL;
}

/* An idle one. */
static void drop(struct muster_registrations *registrations, struct muster_registration *entry)
{
    if (entry->block != NULL) {
        condemn(registrations, entry);
    }
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
    DL_CONCAT(registrations->idle, registrations->busy);
    while (registrations->idle != NULL) {
        drop(registrations, registrations->idle);
    }
    if (registrations->registrar.unmapped != NULL) {
        registrations->registrar.unmapped->release();
    }
    free(registrations);
}

/* Its memory is no longer what it was, or may soon not be. */
static void give_up(struct muster_registrations *registrations, struct muster_registration *entry)
{
    if (entry->holds == 0) {
        drop(registrations, entry);
    } else {
        condemn(registrations, entry);
    }
}

/* Those of the block that have one of the bytes. The block may be gone afterwards. */
static void give_up_in_block(struct muster_registrations *registrations, struct block *block,
                             enum kind kind, uintptr_t begin, uintptr_t end)
{
    struct muster_registration *next = NULL;
    for (struct muster_registration *entry = block->all; entry != NULL; entry = next) {
        next = entry->block_next;
        if (entry->kind == kind && entry->begin < end && begin < entry->end) {
            give_up(registrations, entry);
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

/* Memory that is not of muster_alloc(). Looks for each block of the range, or at all that there
 * are, whichever is less. */
static void give_up_range(struct muster_registrations *registrations, enum kind kind,
                          uintptr_t begin, uintptr_t end)
{
    if ((end - begin) / BLOCK_BYTES >= HASH_COUNT(registrations->blocks)) {
        struct block *block = NULL;
        struct block *next = NULL;
        HASH_ITER(hh, registrations->blocks, block, next)
        {
            give_up_in_block(registrations, block, kind, begin, end);
        }
        return;
    }
    for (uintptr_t at = begin & -BLOCK_BYTES; at < end; at += BLOCK_BYTES) {
        struct block *block = find_block(registrations, &(struct key){.begin = at});
        if (block != NULL) {
            give_up_in_block(registrations, block, kind, begin, end);
        }
    }
}

static void give_up_freed_pieces(struct muster_registrations *registrations)
{
    uint64_t freed = muster_allocation_freed_count();
    if (freed == registrations->freed) {
        return;
    }
    registrations->freed = freed;
    struct block *block = NULL;
    struct block *next = NULL;
    HASH_ITER(hh, registrations->blocks, block, next)
    {
        if (block->key.piece != 0 && !muster_allocation_is_live(block->key.piece)) {
            give_up_in_block(registrations, block, OF_PIECE, 0, UINTPTR_MAX);
        }
    }
}

/* Looks at all when memory of another allocation comes: then one before it may have been freed. */
static void give_up_freed_gpu(struct muster_registrations *registrations, const struct want *want)
{
    struct block *block = NULL;
    struct block *next = NULL;
    if (want->key.gpu == 0 || want->key.gpu == registrations->gpu) {
        return;
    }
    registrations->gpu = want->key.gpu;
    HASH_ITER(hh, registrations->blocks, block, next)
    {
        struct muster_gpu_memory now = {.id = 0};
        if (block->key.gpu != 0 &&
            (!muster_gpu_find(block->all->data, &now) || now.id != block->key.gpu)) {
            give_up_in_block(registrations, block, OF_GPU, 0, UINTPTR_MAX);
        }
    }
}

/* False if it cannot be told now what has gone. */
static bool give_up_unmapped(struct muster_registrations *registrations)
{
    struct muster_unmap_report news = {.more = true};
    while (news.more) {
        const struct muster_unmap_watch_ops *unmapped = registrations->registrar.unmapped;
        if (unmapped == NULL || !unmapped->collect(&registrations->unmapped, &news)) {
            return false;
        }
        if (news.everything) {
            give_up_range(registrations, WATCHED, 0, UINTPTR_MAX);
        }
        for (size_t i = 0; i < news.count; i++) {
            give_up_range(registrations, WATCHED, news.gone[i].begin, news.gone[i].end);
        }
    }
    return true;
}

static uintptr_t smaller(uintptr_t a, uintptr_t b)
{
    return a < b ? a : b;
}

/* A piece of muster_alloc() and an allocation of a GPU may be used as a whole, whatever the extent
 * is. */
static struct want find_want(const struct muster_registrations *registrations, const void *data,
                             size_t size_bytes, struct muster_extent extent)
{
    uintptr_t at = (uintptr_t)data;
    uintptr_t first = (uintptr_t)extent.base;
    uintptr_t end = first + extent.size_bytes;
    assert(size_bytes > 0 && first <= at && at < end && size_bytes <= end - at);
    struct muster_allocation piece = {.id = 0};
    if (extent.gpu != NULL) {
        first = extent.gpu->begin;
        end = extent.gpu->end;
    } else if (muster_allocation_find(data, size_bytes, &piece)) {
        first = (uintptr_t)piece.base;
        end = first + piece.size_bytes;
    }
    uintptr_t page = registrations->page_bytes;
    uintptr_t block = at & -BLOCK_BYTES;
    uintptr_t block_end = block + BLOCK_BYTES;
    uintptr_t begin = first > block ? first & -page : block;
    return (struct want){
        .key = {.begin = block, .piece = piece.id, .gpu = extent.gpu != NULL ? extent.gpu->id : 0},
        .gpu = extent.gpu,
        .asked = data,
        .data = at,
        .data_end = smaller(at + size_bytes, block_end),
        .begin = begin,
        .base = (char *)data - (at - begin), /* it may lie before the extent: whole pages */
        .end = smaller((end + page - 1) & -page, block_end),
    };
}

static struct muster_registration *find(const struct muster_registrations *registrations,
                                        const struct want *want)
{
    const struct block *block = find_block(registrations, &want->key);
    for (struct muster_registration *entry = block == NULL ? NULL : block->all; entry != NULL;
         entry = entry->block_next) {
        if (entry->begin <= want->data && want->data_end <= entry->end &&
            (entry->kind != WATCHED || want->watch_serves)) {
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
    drop(registrations, registrations->idle);
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

/* The device's own limit is found by asking it. */
static void *ask_device(struct muster_registrations *registrations, const struct want *want)
{
    const struct muster_registrar *registrar = &registrations->registrar;
    void *handle = NULL;
    do {
        errno = 0;
        handle = registrar->add(registrar->device, want->gpu, want->base, want->end - want->begin);
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

/* After it was registered, since its pages are there then. The caller may use it, so it is still
 * the same memory. */
static enum kind find_kind(const struct muster_registrations *registrations,
                           const struct want *want)
{
    const struct muster_unmap_watch_ops *unmapped = registrations->registrar.unmapped;
    if (want->key.piece != 0) {
        return OF_PIECE;
    }
    if (want->gpu != NULL) {
        return want->key.gpu != 0 ? OF_GPU : PASSING;
    }
    return unmapped != NULL && unmapped->watch(want->base, want->end - want->begin) ? WATCHED
                                                                                    : PASSING;
}

/* Registers it; idle, and in its block. */
static struct muster_registration *add(struct muster_registrations *registrations,
                                       const struct want *want)
{
    uint64_t size_bytes = want->end - want->begin;
    struct muster_registration *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        return NULL;
    }
    entry->handle = make_room(registrations, size_bytes) ? ask_device(registrations, want) : NULL;
    /* The block only now: to make room may have taken it away. */
    entry->block = entry->handle == NULL ? NULL : find_or_make_block(registrations, want->key);
    if (entry->block == NULL) {
        if (entry->handle != NULL) {
            registrations->registrar.remove(registrations->registrar.device, entry->handle);
        }
        free(entry);
        return NULL;
    }
    entry->begin = want->begin;
    entry->end = want->end;
    entry->data = want->asked;
    entry->kind = find_kind(registrations, want);
    DL_APPEND2(entry->block->all, entry, block_prev, block_next);
    DL_APPEND(registrations->idle, entry);
    struct muster_registrations_figures *figures = &registrations->figures;
    figures->count++;
    figures->bytes += size_bytes;
    figures->most_bytes =
        figures->bytes > figures->most_bytes ? figures->bytes : figures->most_bytes;
    return entry;
}

/* What is mapped piece by piece may go beyond the allocation that it begins in. */
static bool is_whole(const struct want *want)
{
    return want->begin <= want->data && want->data_end <= want->end;
}

struct muster_registration *muster_registrations_hold(struct muster_registrations *registrations,
                                                      const void *data, size_t size_bytes,
                                                      struct muster_extent extent,
                                                      size_t *ret_covered_bytes)
{
    give_up_freed_pieces(registrations);
    struct want want = find_want(registrations, data, size_bytes, extent);
    want.watch_serves = want.key.piece == 0 && want.gpu == NULL && give_up_unmapped(registrations);
    struct muster_registration *entry = find(registrations, &want);
    if (entry != NULL) {
        registrations->figures.hits++;
    } else {
        registrations->figures.misses++;
        give_up_freed_gpu(registrations, &want);
        entry = is_whole(&want) ? add(registrations, &want) : NULL;
        if (entry == NULL) {
            registrations->figures.refused++;
            return NULL;
        }
    }
    if (entry->holds++ == 0) {
        DL_DELETE(registrations->idle, entry);
        DL_APPEND(registrations->busy, entry);
    }
    *ret_covered_bytes = want.data_end - want.data;
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
    DL_DELETE(registrations->busy, registration);
    DL_APPEND(registrations->idle, registration);
    if (registration->block == NULL) {
        drop(registrations, registration);
    }
}

void muster_registrations_end(struct muster_registrations *registrations,
                              struct muster_extent extent)
{
    uintptr_t begin = (uintptr_t)extent.base;
    give_up_range(registrations, PASSING, begin, begin + extent.size_bytes);
}

struct muster_registrations_figures
muster_registrations_figures(const struct muster_registrations *registrations)
{
    return registrations->figures;
}
