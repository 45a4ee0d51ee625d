/*
 * Reduces the inputs of several ranks, segment by segment, along the canonical tree of
 * collectives/check/terms.h over the ranks in options.order. So every rank gets the same bits, and
 * the same members get the same bits again, whichever ranks they have. A segment stays in the cache
 * until it is done: each input is read once, and the result is written once.
 */
#include "worker/device/host/group_parts.h"

#include "collectives/reduce/stream.h"

enum { LARGE_RANGE_BYTES = 16 << 10 };

struct segment {
    struct muster_group_run *run;
    const struct muster_group_inputs *inputs;
    uint64_t offset_bytes;
    size_t size_bytes, count;
    bool streams;
    muster_status status;
};

/* Where a node of the tree is computed, unless it is the result. */
static void *scratch_for(const struct segment *segment, uint32_t level, unsigned side)
{
    size_t index = 2 * (size_t)level + side;
    return segment->run->memory->scratch + index * MUSTER_GROUP_SEGMENT_BYTES;
}

/* Of an input in ranges: where it is, if the segment lies in one that can be read there; or a
 * copy. Not inlined: calls on one buffer do not need its registers. */
static __attribute__((noinline)) const void *leaf_in_ranges(struct segment *segment, uint32_t rank,
                                                            unsigned side)
{
    struct muster_group_run *run = segment->run;
    bool own = rank == muster_group_own_rank(run);
    const struct muster_place place = {.ranges = segment->inputs->ranges[rank],
                                       .at_bytes = segment->inputs->ranges_at_bytes +
                                                   segment->offset_bytes};
    const struct muster_place copy = {.base = scratch_for(segment, 0, side)};
    uint64_t size = segment->size_bytes;
    const void *data = muster_place_at(&place, &size);
    bool whole = size == segment->size_bytes;
    if (whole && !own) {
        data = muster_group_map_peer_buffer(run, rank, MUSTER_GROUP_INPUT,
                                            (uint64_t)(uintptr_t)data, size);
    }
    if (whole && data != NULL) {
        return data;
    }
    if (own) {
        muster_place_copy(copy, place, segment->size_bytes);
    } else if (segment->status == MUSTER_OK) {
        segment->status =
            muster_group_copy_place_from_peer(run, rank, place, copy, segment->size_bytes);
    }
    return copy.base;
}

static const void *leaf(struct segment *segment, uint32_t place, unsigned side)
{
    uint32_t rank = segment->run->memory->options.order[place];
    if (segment->inputs->ranges[rank] != NULL) {
        return leaf_in_ranges(segment, rank, side);
    }
    if (segment->inputs->bases[rank] != NULL) {
        return (const char *)segment->inputs->bases[rank] + segment->offset_bytes;
    }
    void *copy = scratch_for(segment, 0, side);
    if (segment->status == MUSTER_OK) {
        segment->status = muster_group_copy_from_peer(
            segment->run, rank, segment->inputs->addresses[rank] + segment->offset_bytes, copy,
            segment->size_bytes);
    }
    return copy;
}

/* Reduces the places [first, first + 2^level) of the order, as far as they exist. The result is in
 * target, if target is not NULL and there is more than one place. */
static const void *sum(struct segment *segment, uint32_t first, uint32_t level, unsigned side,
                       void *target)
{
    uint32_t half = level == 0 ? 0 : UINT32_C(1) << (level - 1);
    if (level == 0) {
        return leaf(segment, first, side);
    }
    if (first + half >= segment->run->memory->options.ranks) {
        return sum(segment, first, level - 1, side, target);
    }
    const void *lower = sum(segment, first, level - 1, 0, NULL);
    const void *upper = sum(segment, first + half, level - 1, 1, NULL);
    void *result = target != NULL ? target : scratch_for(segment, level, side);
    if (segment->status == MUSTER_OK) {
        (target != NULL && segment->streams ? muster_stream_combine : muster_reduction_combine)(
            &segment->run->launch->reduction, result, lower, upper, segment->count);
    }
    return result;
}

/* Cuts the segment where a large range of the target begins or ends: most of a large range needs no
 * copy then, and has the alignment that its memory has. Small ranges share a segment. */
static void cut_at_ranges(struct segment *segment, struct muster_place target)
{
    size_t found = 0;
    while (found < segment->size_bytes) {
        uint64_t size = segment->size_bytes - found;
        (void)muster_place_at(&target, &size);
        if (size >= LARGE_RANGE_BYTES && found > 0) {
            break;
        }
        found += size;
        if (size >= LARGE_RANGE_BYTES) {
            break;
        }
        target = muster_place_advance(target, size);
    }
    segment->size_bytes = found;
    segment->count = found / segment->run->element_size_bytes;
}

/* If the target goes on in another range within the segment, the result is copied there. */
static __attribute__((noinline)) void reduce_into_ranges(struct segment *segment, uint32_t top,
                                                         struct muster_place target)
{
    cut_at_ranges(segment, target);
    uint64_t size = segment->size_bytes;
    char *to = muster_place_at(&target, &size);
    bool whole = size == segment->size_bytes;
    const void *result = sum(segment, 0, top, 0, whole ? to : NULL);
    if (!whole && segment->status == MUSTER_OK) {
        const struct muster_place from = {.base = (char *)result};
        muster_place_copy(target, from, segment->size_bytes);
    }
}

muster_status muster_group_reduce(struct muster_group_run *run,
                                  const struct muster_group_inputs *inputs, struct muster_span span,
                                  bool streams, struct muster_place target)
{
    uint64_t most = MUSTER_GROUP_SEGMENT_BYTES / run->element_size_bytes;
    uint32_t top = 0;
    while (UINT32_C(1) << top < run->memory->options.ranks) {
        top++;
    }
    uint64_t done = 0;
    while (done < span.count) {
        uint64_t count = span.count - done < most ? span.count - done : most;
        struct segment segment = {.run = run,
                                  .inputs = inputs,
                                  .offset_bytes = (span.offset + done) * run->element_size_bytes,
                                  .size_bytes = count * run->element_size_bytes,
                                  .count = count,
                                  .streams = streams,
                                  .status = MUSTER_OK};
        if (target.ranges != NULL) {
            reduce_into_ranges(&segment, top,
                               muster_place_advance(target, done * run->element_size_bytes));
        } else {
            (void)sum(&segment, 0, top, 0, target.base + done * run->element_size_bytes);
        }
        TRY(segment.status);
        done += segment.count;
    }
    return MUSTER_OK;
}
