/* Proves that steps which may run at the same time do not race, by sorting what they touch. */
#include "collectives/check/check_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "collectives/check/sort.h"
#include "collectives/schedule/builder.h"
#include "collectives/schedule/group_step.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* One step's access to one range of the rank's elements. */
struct access {
    uint64_t begin, end; /* in the layout */
    const struct muster_step *step;
    bool writes;
};

/* All accesses of one rank. */
struct accesses {
    struct access *items;
    size_t count;
    struct muster_sort_item *order, *spare; /* [capacity of items] */
};

struct muster_layout muster_layout_of(const struct muster_shape *shape,
                                      const struct muster_schedule *schedule, bool in_place)
{
    uint64_t in = schedule->input_count;
    uint64_t out = schedule->output_count;
    uint64_t scratch = schedule->scratch_count;
    if (!in_place) {
        return (struct muster_layout){.base = {0, in, in + out}, .count = in + out + scratch};
    }
    int64_t offset = muster_shape_in_place_offset(shape); /* of INPUT in OUTPUT */
    uint64_t in_base = offset > 0 ? (uint64_t)offset : 0;
    uint64_t out_base = offset < 0 ? (uint64_t)-offset : 0;
    uint64_t shared = in_base + in > out_base + out ? in_base + in : out_base + out;
    return (struct muster_layout){.base = {in_base, out_base, shared}, .count = shared + scratch};
}

static muster_status overlaps_itself(const struct muster_schedule *schedule,
                                     const struct muster_step *step)
{
    return muster_error_set(MUSTER_INVALID,
                            "rank %" PRIu32 " lane %u round %" PRIu32 ": the target %s[%" PRIu64
                            "..%" PRIu64 ") overlaps the source",
                            schedule->rank, step->lane, step->round,
                            muster_buffer_name(step->target), step->at,
                            step->at + step->span.count);
}

/* Adds those of a group step. In place the two ranges are one, which is written. */
static muster_status add_group_accesses(const struct muster_shape *shape,
                                        const struct muster_schedule *schedule,
                                        const struct muster_layout *layout,
                                        const struct muster_step *step, struct accesses *accesses)
{
    const struct muster_step_ranges ranges = muster_step_ranges(shape, schedule, step);
    const struct muster_step_group *group = &schedule->groups[step->scope];
    uint64_t own =
        muster_step_share(shape, group, step, muster_step_group_index(group, schedule->rank))
            .offset;
    struct access source = {.step = step};
    struct access target = {.step = step, .writes = true};
    if (ranges.reads) {
        source.begin = layout->base[step->source] + ranges.source.offset;
        source.end = source.begin + ranges.source.count;
    }
    if (ranges.writes) {
        target.begin = layout->base[step->target] + ranges.target.offset;
        target.end = target.begin + ranges.target.count;
    }
    bool reads = source.begin < source.end;
    bool writes = target.begin < target.end;
    if (reads && writes && source.begin < target.end && target.begin < source.end) {
        uint64_t shift = step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER ? own : 0;
        uint64_t back = step->kind == MUSTER_STEP_GROUP_ALLGATHER ? own : 0;
        if (source.begin + shift != target.begin + back) {
            return overlaps_itself(schedule, step);
        }
        target.begin = source.begin < target.begin ? source.begin : target.begin;
        target.end = source.end > target.end ? source.end : target.end;
        reads = false;
    }
    if (reads) {
        accesses->items[accesses->count++] = source;
    }
    if (writes) {
        accesses->items[accesses->count++] = target;
    }
    return MUSTER_OK;
}

/* Adds the step's accesses, at most two. */
static muster_status add_accesses(const struct muster_shape *shape,
                                  const struct muster_schedule *schedule,
                                  const struct muster_layout *layout,
                                  const struct muster_step *step, struct accesses *accesses)
{
    if (step->span.count == 0) {
        return MUSTER_OK;
    }
    if (muster_step_is_group(step)) {
        return add_group_accesses(shape, schedule, layout, step, accesses);
    }
    bool reads = step->kind != MUSTER_STEP_RECV;
    bool writes = step->kind != MUSTER_STEP_SEND;
    struct access source = {.step = step};
    struct access target = {.step = step, .writes = true};
    if (reads) {
        source.begin = layout->base[step->source] + step->span.offset;
        source.end = source.begin + step->span.count;
    }
    if (writes) {
        target.begin = layout->base[step->target] + step->at;
        target.end = target.begin + step->span.count;
    }
    bool same = reads && writes && source.begin == target.begin;
    if (reads && writes) {
        if (same && step->kind == MUSTER_STEP_COPY) {
            return MUSTER_OK; /* a copy to its own place does nothing */
        }
        if (source.begin < target.end && target.begin < source.end &&
            (!same || step->kind == MUSTER_STEP_REDUCE)) {
            return overlaps_itself(schedule, step);
        }
    }
    if (reads && !same) {
        accesses->items[accesses->count++] = source;
    }
    if (writes) {
        accesses->items[accesses->count++] = target;
    }
    return MUSTER_OK;
}

static muster_status race(const struct muster_schedule *schedule, const struct access *left,
                          const struct access *right, bool in_place)
{
    const struct access *writer = left->writes ? left : right;
    const struct access *other = writer == left ? right : left;
    return muster_error_set(MUSTER_INVALID,
                            "rank %" PRIu32 " lane %u round %" PRIu32 ": writes %s[%" PRIu64
                            "..%" PRIu64 ") while lane %u round %" PRIu32 " %s%s",
                            schedule->rank, writer->step->lane, writer->step->round,
                            muster_buffer_name(writer->step->target), writer->step->at,
                            writer->step->at + writer->step->span.count, other->step->lane,
                            other->step->round, other->writes ? "writes there too" : "reads there",
                            in_place ? " (in place)" : "");
}

/* The accesses with the farthest ends so far: of all accesses, and of those that write. */
struct farthest {
    const struct access *any;
    const struct access *writes;
};

static void extend(struct farthest *farthest, const struct access *access)
{
    if (farthest->any == NULL || access->end > farthest->any->end) {
        farthest->any = access;
    }
    if (access->writes && (farthest->writes == NULL || access->end > farthest->writes->end)) {
        farthest->writes = access;
    }
}

/* Accesses come in the order of their begins, so one that overlaps any earlier access overlaps the
 * one with the farthest end. The two accesses of one step never overlap. */
static const struct access *find_clash(const struct farthest *farthest, const struct access *access)
{
    const struct access *other = access->writes ? farthest->any : farthest->writes;
    return other != NULL && other->end > access->begin ? other : NULL;
}

/* Sorts the accesses from number `first` on by their begins: order[i].value is the number of the
 * i-th. Returns how many there are. */
static size_t sort_from(struct accesses *accesses, size_t first)
{
    size_t count = accesses->count - first;
    for (size_t i = 0; i < count; i++) {
        accesses->order[i] =
            (struct muster_sort_item){.key = accesses->items[first + i].begin, .value = first + i};
    }
    muster_sort(accesses->order, accesses->spare, count);
    return count;
}

/* Checks the accesses from `first` on, which are those of one round of one lane. */
static muster_status check_round(const struct muster_schedule *schedule, struct accesses *accesses,
                                 size_t first, bool in_place)
{
    struct farthest farthest = {0};
    for (size_t i = 0, count = sort_from(accesses, first); i < count; i++) {
        const struct access *access = &accesses->items[accesses->order[i].value];
        const struct access *other = find_clash(&farthest, access);
        if (other != NULL) {
            return race(schedule, other, access, in_place);
        }
        extend(&farthest, access);
    }
    return MUSTER_OK;
}

/* Steps of different lanes may always run at the same time. */
static muster_status check_lanes(const struct muster_schedule *schedule, struct accesses *accesses,
                                 bool in_place)
{
    struct farthest farthest[MUSTER_LANES_MAX] = {0};
    for (size_t i = 0, count = sort_from(accesses, 0); i < count; i++) {
        const struct access *access = &accesses->items[accesses->order[i].value];
        for (uint32_t lane = 0; lane < schedule->lanes; lane++) {
            const struct access *other = find_clash(&farthest[lane], access);
            if (other != NULL && lane != access->step->lane) {
                return race(schedule, other, access, in_place);
            }
        }
        extend(&farthest[access->step->lane], access);
    }
    return MUSTER_OK;
}

static muster_status check_all(const struct muster_shape *shape,
                               const struct muster_schedule *schedule,
                               const struct muster_layout *layout, bool in_place,
                               struct accesses *accesses)
{
    size_t first = 0; /* access of the current round */
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (i > 0 && (step->lane != step[-1].lane || step->round != step[-1].round)) {
            TRY(check_round(schedule, accesses, first, in_place));
            first = accesses->count;
        }
        TRY(add_accesses(shape, schedule, layout, step, accesses));
    }
    TRY(check_round(schedule, accesses, first, in_place));
    return schedule->lanes > 1 ? check_lanes(schedule, accesses, in_place) : MUSTER_OK;
}

muster_status muster_check_races(const struct muster_shape *shape,
                                 const struct muster_schedule *schedule, bool in_place)
{
    const struct muster_layout layout = muster_layout_of(shape, schedule, in_place);
    size_t most = 2 * schedule->step_count + 1;
    AUTO_FREE struct access *items = malloc(most * sizeof *items);
    AUTO_FREE struct muster_sort_item *order = malloc(most * sizeof *order);
    AUTO_FREE struct muster_sort_item *spare = malloc(most * sizeof *spare);
    if (items == NULL || order == NULL || spare == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu steps",
                                schedule->step_count);
    }
    struct accesses accesses = {.items = items, .order = order, .spare = spare};
    return check_all(shape, schedule, &layout, in_place, &accesses);
}
