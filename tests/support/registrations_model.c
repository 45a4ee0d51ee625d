/* The pretended device, address space and unmap watch, and the checks of each call. */
#include "tests/support/registrations_model.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The pretended address space. Nothing is mapped there, and nothing reads it. */
static const uintptr_t space = (uintptr_t)64 << 30;

struct model model;

static bool is_fake(uintptr_t address)
{
    return address >= space && address < space + BLOCKS * (uintptr_t)BLOCK;
}

static uint32_t version_at(uintptr_t address)
{
    if (is_fake(address)) {
        return model.versions[(address - space) / model.page];
    }
    for (int i = 0; i < PIECES; i++) {
        uintptr_t memory = (uintptr_t)model.pieces[i].memory;
        if (memory != 0 && address - memory < PIECE_BYTES + model.page) {
            return model.pieces[i].version;
        }
    }
    fail_msg("%" PRIxPTR " is neither in the pretended space nor in a piece", address);
    return 0;
}

static void *add_region(void *device, const struct muster_device_memory *memory, void *base,
                        size_t size_bytes)
{
    (void)memory;
    uintptr_t begin = (uintptr_t)base;
    assert_ptr_equal(device, &model);
    assert_true(begin % model.page == 0 && size_bytes % model.page == 0 && size_bytes > 0);
    assert_true(begin / BLOCK == (begin + size_bytes - 1) / BLOCK);
    model.refused = model.bytes + size_bytes > model.limit_bytes ? ENOMEM : model.refusal;
    if (model.refused != 0) {
        errno = model.refused;
        return NULL;
    }
    struct region *region = calloc(1, sizeof *region);
    assert_non_null(region);
    assert_true(model.region_count < REGIONS_MAX);
    region->begin = begin;
    region->end = begin + size_bytes;
    for (size_t i = 0; i < size_bytes / model.page; i++) {
        region->versions[i] = version_at(begin + i * model.page);
    }
    model.regions[model.region_count++] = region;
    model.bytes += size_bytes;
    assert_true(model.bytes <= model.bound);
    return region;
}

static void remove_region(void *device, void *handle)
{
    struct region *region = handle;
    uint32_t i = 0;
    assert_ptr_equal(device, &model);
    while (i < model.region_count && model.regions[i] != region) {
        i++;
    }
    assert_true(i < model.region_count);
    assert_int_equal(region->held, 0);
    model.regions[i] = model.regions[--model.region_count];
    model.bytes -= region->end - region->begin;
    free(region);
}

static uint64_t hold_watch(void)
{
    model.users++;
    return model.logged;
}

static void release_watch(void)
{
    model.users--;
}

static bool watch(const void *base, size_t size_bytes)
{
    uintptr_t from = ((uintptr_t)base - space) / model.page;
    uintptr_t until = from + size_bytes / model.page;
    if (model.busy || until > PAGES_MAX / 2) {
        return false;
    }
    memset(model.watched + from, true, (until - from) * sizeof *model.watched);
    return true;
}

static bool collect(uint64_t *position, struct muster_unmap_report *ret_report)
{
    if (model.busy) {
        return false;
    }
    memset(ret_report, 0, sizeof *ret_report);
    ret_report->everything = model.forgets;
    if (model.forgets) {
        *position = model.logged;
        model.forgets = false;
    }
    while (*position < model.logged && ret_report->count < 2) {
        ret_report->gone[ret_report->count++] = model.log[(*position)++ % LOG_MAX];
    }
    ret_report->more = *position < model.logged;
    return true;
}

static const struct muster_unmap_watch_ops pretended = {
    .hold = hold_watch, .release = release_watch, .watch = watch, .collect = collect};

void model_begin(uint64_t bound, bool with_watch)
{
    struct muster_registrar registrar = {.device = &model,
                                         .add = add_region,
                                         .remove = remove_region,
                                         .unmap_watch = with_watch ? &pretended : NULL};
    memset(&model, 0, sizeof model);
    model.page = (uintptr_t)sysconf(_SC_PAGESIZE);
    model.bound = bound;
    model.limit_bytes = UINT64_MAX;
    model.registrations = muster_registrations_create(&registrar, bound);
    assert_non_null(model.registrations);
    assert_int_equal(model.users, with_watch);
}

/* The region covers the data, and its pages are those that are mapped there now. */
static void check_region(const struct region *region, uintptr_t data, size_t size_bytes)
{
    assert_true(region->begin <= data && data + size_bytes <= region->end);
    for (uintptr_t at = data & -model.page; at < data + size_bytes; at += model.page) {
        assert_int_equal(region->versions[(at - region->begin) / model.page], version_at(at));
    }
}

size_t model_hold(const struct muster_usable_range *usable, size_t offset, size_t size_bytes)
{
    const char *data = (const char *)usable->base + offset;
    size_t covered = 0;
    model.refused = 0;
    struct muster_registration *registration =
        muster_registrations_hold(model.registrations, data, size_bytes, *usable, &covered);
    if (registration == NULL) {
        /* Every idle registration was evicted first, unless that could not have helped. */
        size_t most = usable->size_bytes + 2 * model.page;
        most = most < BLOCK && is_fake((uintptr_t)data) ? most : BLOCK;
        if (model.refused != EFAULT && model.bound >= most) {
            for (uint32_t i = 0; i < model.region_count; i++) {
                assert_true(model.regions[i]->held > 0);
            }
        }
        return 0;
    }
    size_t to_block_end = BLOCK - (uintptr_t)data % BLOCK;
    assert_int_equal(covered, size_bytes < to_block_end ? size_bytes : to_block_end);
    struct region *region = muster_registration_handle(registration);
    check_region(region, (uintptr_t)data, covered);
    region->held++;
    model.holds[model.hold_count++] = (struct hold){registration, region};
    return covered;
}

void model_release(uint32_t index)
{
    struct hold gone = model.holds[index];
    memmove(model.holds + index, model.holds + index + 1,
            (--model.hold_count - index) * sizeof *model.holds);
    gone.region->held--;
    muster_registrations_release(model.registrations, gone.registration);
}

void model_end(struct muster_usable_range *usable)
{
    uintptr_t first = (uintptr_t)usable->base;
    muster_registrations_end(model.registrations, *usable);
    for (uint32_t i = 0; i < model.region_count; i++) {
        const struct region *region = model.regions[i];
        bool unwatched = region->begin >= space + BLOCKS / 2 * (uintptr_t)BLOCK &&
                         region->end <= space + BLOCKS * (uintptr_t)BLOCK;
        assert_false(unwatched && region->held == 0 && region->begin < first + usable->size_bytes &&
                     first < region->end);
    }
    *usable = (struct muster_usable_range){0};
}

bool model_in_use(uintptr_t begin_address, uintptr_t end_address)
{
    for (int i = 0; i < TRANSFERS; i++) {
        uintptr_t first = (uintptr_t)model.transfers[i].base & -model.page;
        uintptr_t last = (uintptr_t)model.transfers[i].base + model.transfers[i].size_bytes;
        if (model.transfers[i].base != NULL && first < end_address && begin_address < last) {
            return true;
        }
    }
    return false;
}

void model_unmap(size_t first, size_t count)
{
    uint64_t logged = model.logged;
    for (size_t i = first; i < first + count && i < PAGES_MAX; i++) {
        uintptr_t at = space + i * model.page;
        if (model_in_use(at, at + model.page)) {
            continue;
        }
        model.versions[i] = ++model.last_version;
        if (!model.watched[i]) {
            continue;
        }
        model.watched[i] = false;
        struct muster_address_range *last = &model.log[(model.logged - 1) % LOG_MAX];
        if (model.logged > logged && last->end == at) {
            last->end = at + model.page;
        } else {
            model.log[model.logged++ % LOG_MAX] =
                (struct muster_address_range){at, at + model.page};
        }
    }
}

void model_finish(void)
{
    struct muster_registrations_figures figures = muster_registrations_figures(model.registrations);
    assert_int_equal(figures.bytes, model.bytes);
    assert_int_equal(figures.count, model.region_count);
    assert_true(figures.most_bytes <= model.bound && figures.bytes <= figures.most_bytes);
    while (model.hold_count > 0) {
        model_release(0);
    }
    muster_registrations_destroy(model.registrations);
    assert_int_equal(model.region_count, 0);
    assert_int_equal(model.bytes, 0);
    assert_int_equal(model.users, 0);
    for (int i = 0; i < PIECES; i++) {
        muster_free(model.pieces[i].memory);
    }
}

struct muster_usable_range model_memory(size_t offset, size_t size_bytes)
{
    return (struct muster_usable_range){.base = (const void *)(space + offset),
                                        .size_bytes = size_bytes};
}
