/* Ranges in memory of a device: finds them, gives each a place in memory of the host, and copies
 * between the two. */
#include "worker/context/staged_ranges.h"

#include <stdlib.h>

#include "worker/base/status.h"
#include "worker/device/devices.h"
#include "worker/trace/timeline.h"

static void finish_list(struct muster_staged_list *list)
{
    free(list->ranges);
    free(list->device_addresses);
    *list = (struct muster_staged_list){.ranges = NULL};
}

void muster_staged_ranges_finish(struct muster_staged_ranges *staged)
{
    finish_list(&staged->ins);
    finish_list(&staged->outs);
    free(staged->memory.memory);
    *staged = (struct muster_staged_ranges){.active = false};
}

/* Laying out ---------------------------------------------------------------------------------- */

static muster_status reserve(struct muster_staged_list *list, size_t count)
{
    if (count <= list->room) {
        return MUSTER_OK;
    }
    finish_list(list);
    list->ranges = calloc(count, sizeof *list->ranges);
    list->device_addresses = calloc(count, sizeof *list->device_addresses);
    if (list->ranges == NULL || list->device_addresses == NULL) {
        finish_list(list);
        return muster_error_set(MUSTER_FATAL, "no memory to stage %zu ranges", count);
    }
    list->room = count;
    return MUSTER_OK;
}

/* The device would refuse such a copy, or copy what is not the caller's. */
static muster_status check_end(const struct muster_device_memory *memory, const muster_range *range,
                               uint64_t size_bytes, size_t index, const char *side)
{
    bool known = memory->end > memory->begin;
    uint64_t left = memory->end - (uintptr_t)range->address;
    return !known || size_bytes <= left
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "range %zu of %s has %llu bytes, and its allocation in memory of "
                                  "a device ends after %llu",
                                  index, side, (unsigned long long)size_bytes,
                                  (unsigned long long)left);
}

/* Copies the list, finds the ranges of a device, and adds their size. */
static muster_status find_staged(struct muster_staged_list *list, const muster_range *ranges,
                                 size_t count, const char *side, size_t element_size_bytes,
                                 uint64_t *size_bytes)
{
    TRY(reserve(list, count));
    list->count = count;
    for (size_t i = 0; i < count; i++) {
        struct muster_device_memory memory;
        uint64_t bytes = ranges[i].count * element_size_bytes;
        /* The analyzer does not see that MUSTER_OK means that there is room. */
        list->ranges[i] = ranges[i]; /* NOLINT(clang-analyzer-core.NullDereference) */
        list->device_addresses[i] = NULL;
        if (bytes > 0 && muster_device_find(ranges[i].address, &memory)) {
            TRY(check_end(&memory, &ranges[i], bytes, i, side));
            list->device_addresses[i] = ranges[i].address;
            *size_bytes += bytes;
        }
    }
    return MUSTER_OK;
}

/* Gives the staged ranges their places from there on. */
static void place(struct muster_staged_list *list, char *at, size_t element_size_bytes)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->device_addresses[i] != NULL) {
            list->ranges[i].address = at;
            at += list->ranges[i].count * element_size_bytes;
        }
    }
}

muster_status muster_staged_ranges_begin(struct muster_staged_ranges *staged,
                                         const struct muster_staging_call *call,
                                         struct muster_given_ranges *ret_given)
{
    const struct muster_given_ranges *given = &call->given;
    bool has_ins = given->ins != NULL && !call->in_place;
    uint64_t in_bytes = 0;
    uint64_t out_bytes = 0;
    size_t element = call->element_size_bytes;
    staged->active = false;
    TRY(find_staged(&staged->outs, given->outs, given->out_count, "outs", element, &out_bytes));
    TRY(find_staged(&staged->ins, given->ins, has_ins ? given->in_count : 0, "ins", element,
                    &in_bytes));
    if (in_bytes + out_bytes == 0) {
        return MUSTER_OK;
    }
    /* Both begin at a multiple of what any element needs. */
    TRY(muster_scratch_reserve(&staged->memory, muster_scratch_aligned(out_bytes) + in_bytes));
    place(&staged->outs, staged->memory.memory, element);
    place(&staged->ins, staged->memory.memory + muster_scratch_aligned(out_bytes), element);
    staged->active = true;
    staged->sends = call->sends;
    staged->sends_outs = !has_ins;
    staged->element_size_bytes = element;
    *ret_given =
        (struct muster_given_ranges){.outs = staged->outs.ranges, .out_count = staged->outs.count};
    if (given->ins != NULL) {
        const struct muster_staged_list *ins = has_ins ? &staged->ins : &staged->outs;
        ret_given->ins = ins->ranges;
        ret_given->in_count = ins->count;
    }
    return MUSTER_OK;
}

/* Copying ------------------------------------------------------------------------------------- */

/* Each range by itself: the device knows no lists. */
static muster_status copy_list(const struct muster_staged_list *list, size_t element_size_bytes,
                               bool to_device, struct muster_timeline *timeline)
{
    for (size_t i = 0; i < list->count; i++) {
        struct muster_device_memory memory;
        void *on_device = list->device_addresses[i];
        void *on_host = list->ranges[i].address;
        uint64_t bytes = list->ranges[i].count * element_size_bytes;
        if (on_device == NULL) {
            continue;
        }
        if (!muster_device_find(on_device, &memory)) {
            return muster_error_set(MUSTER_FATAL, "range %zu at %p is no longer memory of a device",
                                    i, on_device);
        }
        int64_t started_ns = muster_timeline_clock(timeline);
        TRY(memory.device->copy(&memory, to_device ? on_device : on_host,
                                to_device ? on_host : on_device, bytes));
        muster_timeline_add_local(timeline, MUSTER_TIMELINE_DEVICE_COPY, started_ns, bytes,
                                  (struct muster_timeline_operation){.sequence = 0});
    }
    return MUSTER_OK;
}

muster_status muster_staged_ranges_fetch(const struct muster_staged_ranges *staged,
                                         struct muster_timeline *timeline)
{
    const struct muster_staged_list *input = staged->sends_outs ? &staged->outs : &staged->ins;
    return staged->active && staged->sends
               ? copy_list(input, staged->element_size_bytes, false, timeline)
               : MUSTER_OK;
}

muster_status muster_staged_ranges_store(const struct muster_staged_ranges *staged,
                                         struct muster_timeline *timeline)
{
    return staged->active ? copy_list(&staged->outs, staged->element_size_bytes, true, timeline)
                          : MUSTER_OK;
}
