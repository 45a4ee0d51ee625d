/* What each collective means: a table of what its buffers hold, and what follows from it. */
#include "collectives/call/shape.h"

#include <inttypes.h>

#include "worker/base/status.h"

/* What a buffer holds. */
enum content {
    CONTENT_NOTHING,
    CONTENT_COUNT,  /* `count` elements */
    CONTENT_BLOCK,  /* this rank's block of the other buffer's blocks */
    CONTENT_BLOCKS, /* all ranks' blocks */
};

static const struct meaning {
    enum content input, output;
    bool input_at_root;  /* only the root has INPUT */
    bool output_at_root; /* only the root has OUTPUT */
    bool has_root;
    bool needs_bounds;
    bool takes_bounds;
    bool reduces;
} meanings[MUSTER_COLLECTIVE_END] = {
    [MUSTER_ALLREDUCE] = {.input = CONTENT_COUNT, .output = CONTENT_COUNT, .reduces = true},
    [MUSTER_REDUCE_SCATTER] = {.input = CONTENT_BLOCKS,
                               .output = CONTENT_BLOCK,
                               .takes_bounds = true,
                               .reduces = true},
    [MUSTER_ALLGATHER] = {.input = CONTENT_BLOCK, .output = CONTENT_BLOCKS},
    [MUSTER_BROADCAST] = {.input = CONTENT_COUNT, .output = CONTENT_COUNT, .has_root = true},
    [MUSTER_BARRIER] = {.input = CONTENT_NOTHING, .output = CONTENT_NOTHING},
    [MUSTER_ALLGATHERV] = {.input = CONTENT_BLOCK,
                           .output = CONTENT_BLOCKS,
                           .needs_bounds = true,
                           .takes_bounds = true},
    [MUSTER_REDUCE] = {.input = CONTENT_COUNT,
                       .output = CONTENT_COUNT,
                       .output_at_root = true,
                       .has_root = true,
                       .reduces = true},
    [MUSTER_GATHER] = {.input = CONTENT_BLOCK,
                       .output = CONTENT_BLOCKS,
                       .output_at_root = true,
                       .has_root = true},
    [MUSTER_GATHERV] = {.input = CONTENT_BLOCK,
                        .output = CONTENT_BLOCKS,
                        .output_at_root = true,
                        .has_root = true,
                        .needs_bounds = true,
                        .takes_bounds = true},
    [MUSTER_SCATTER] = {.input = CONTENT_BLOCKS,
                        .output = CONTENT_BLOCK,
                        .input_at_root = true,
                        .has_root = true},
    [MUSTER_ALLTOALL] = {.input = CONTENT_BLOCKS, .output = CONTENT_BLOCKS},
    [MUSTER_ALLTOALLV] = {.input = CONTENT_BLOCKS,
                          .output = CONTENT_BLOCKS,
                          .needs_bounds = true,
                          .takes_bounds = true},
    [MUSTER_PAIRWISE_EXCHANGE] = {.input = CONTENT_COUNT, .output = CONTENT_COUNT},
};

/* For values out of range the empty meaning. */
static const struct meaning *find_meaning(enum muster_collective collective)
{
    unsigned index = (unsigned)collective;
    return &meanings[index < MUSTER_COLLECTIVE_END ? index : 0];
}

static const struct meaning *meaning_of(const struct muster_shape *shape)
{
    return find_meaning(shape->collective);
}

bool muster_collective_reduces(enum muster_collective collective)
{
    return find_meaning(collective)->reduces;
}

bool muster_collective_has_root(enum muster_collective collective)
{
    return find_meaning(collective)->has_root;
}

bool muster_collective_needs_bounds(enum muster_collective collective)
{
    return meanings[collective].needs_bounds;
}

bool muster_collective_in_place_counts(enum muster_collective collective)
{
    return collective == MUSTER_ALLTOALL || collective == MUSTER_ALLTOALLV ||
           collective == MUSTER_PAIRWISE_EXCHANGE;
}

bool muster_collective_overwrites_input(enum muster_collective collective)
{
    return muster_collective_reduces(collective) || muster_collective_in_place_counts(collective);
}

bool muster_collective_synchronizes(enum muster_collective collective)
{
    switch (collective) {
    case MUSTER_ALLREDUCE:
    case MUSTER_REDUCE_SCATTER:
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
    case MUSTER_ALLTOALL:
    case MUSTER_ALLTOALLV:
    case MUSTER_BARRIER:
        return true;
    default:
        return false;
    }
}

/* Buffers -------------------------------------------------------------------------------------- */

static struct muster_span block_of(const struct muster_shape *shape, const uint64_t *bounds,
                                   uint32_t rank)
{
    if (bounds != NULL) {
        return (struct muster_span){.offset = bounds[rank],
                                    .count = bounds[rank + 1] - bounds[rank]};
    }
    return (struct muster_span){.offset = rank * shape->count, .count = shape->count};
}

struct muster_span muster_shape_input_block(const struct muster_shape *shape, uint32_t rank)
{
    return block_of(shape, shape->input_bounds, rank);
}

struct muster_span muster_shape_output_block(const struct muster_shape *shape, uint32_t rank)
{
    return block_of(shape, shape->output_bounds, rank);
}

static uint64_t content_count(const struct muster_shape *shape, enum content content,
                              const uint64_t *own_bounds, const uint64_t *other_bounds)
{
    struct muster_span last;
    switch (content) {
    case CONTENT_NOTHING:
        return 0;
    case CONTENT_COUNT:
        return shape->count;
    case CONTENT_BLOCK:
        return block_of(shape, other_bounds, shape->rank).count;
    case CONTENT_BLOCKS:
        last = block_of(shape, own_bounds, shape->ranks - 1);
        return last.offset + last.count;
    }
    return 0;
}

uint64_t muster_shape_input_count(const struct muster_shape *shape)
{
    const struct meaning *meaning = meaning_of(shape);
    if (meaning->input_at_root && shape->rank != shape->root) {
        return 0;
    }
    return content_count(shape, meaning->input, shape->input_bounds, shape->output_bounds);
}

uint64_t muster_shape_output_count(const struct muster_shape *shape)
{
    const struct meaning *meaning = meaning_of(shape);
    if (meaning->output_at_root && shape->rank != shape->root) {
        return 0;
    }
    return content_count(shape, meaning->output, shape->output_bounds, shape->input_bounds);
}

bool muster_shape_contributes(const struct muster_shape *shape)
{
    return shape->collective != MUSTER_BROADCAST || shape->rank == shape->root;
}

/* If one buffer holds this rank's block and the other all blocks, the one is a part of the other.
 */
int64_t muster_shape_in_place_offset(const struct muster_shape *shape)
{
    const struct meaning *meaning = meaning_of(shape);
    if (meaning->input == CONTENT_BLOCK && muster_shape_output_count(shape) > 0) {
        return (int64_t)muster_shape_output_block(shape, shape->rank).offset;
    }
    if (meaning->output == CONTENT_BLOCK && muster_shape_input_count(shape) > 0) {
        return -(int64_t)muster_shape_input_block(shape, shape->rank).offset;
    }
    return 0;
}

uint32_t muster_pairwise_steps_max(uint32_t ranks)
{
    uint32_t steps = 1;
    while (ranks >> steps > 1) {
        steps++;
    }
    return steps;
}

uint32_t muster_shape_steps(const struct muster_shape *shape)
{
    return shape->steps != 0 ? shape->steps : muster_pairwise_steps_max(shape->ranks);
}

uint32_t muster_shape_partner(const struct muster_shape *shape, uint32_t part)
{
    uint32_t partner = shape->rank ^ UINT32_C(1) << part;
    return partner < shape->ranks ? partner : shape->rank;
}

/* Promises ------------------------------------------------------------------------------------- */

/* The number of the block that contains the element. */
static uint32_t find_block(const struct muster_shape *shape, const uint64_t *bounds,
                           uint64_t element)
{
    if (bounds == NULL) {
        return (uint32_t)(element / shape->count);
    }
    uint32_t low = 0;
    uint32_t high = shape->ranks; /* bounds[low] <= element < bounds[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (bounds[middle] <= element) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Every element of OUTPUT continues like the first. */
static struct muster_expected expected_whole(const struct muster_shape *shape, uint64_t element,
                                             uint64_t first)
{
    return (struct muster_expected){.reduced = meaning_of(shape)->reduces,
                                    .rank = shape->root,
                                    .origin = first + element,
                                    .count = muster_shape_output_count(shape) - element};
}

static struct muster_expected expected_block(const struct muster_shape *shapes, uint32_t rank,
                                             uint64_t element)
{
    const struct muster_shape *shape = &shapes[rank];
    uint32_t from = find_block(shape, shape->output_bounds, element);
    struct muster_span block = muster_shape_output_block(shape, from);
    uint64_t first = 0;
    if (meaning_of(shape)->input == CONTENT_BLOCKS) {
        first = muster_shape_input_block(&shapes[from], rank).offset;
    }
    return (struct muster_expected){.rank = from,
                                    .origin = first + element - block.offset,
                                    .count = block.offset + block.count - element};
}

static struct muster_expected expected_part(const struct muster_shape *shape, uint64_t element)
{
    const struct muster_span whole = {.count = shape->count};
    uint32_t parts = muster_shape_steps(shape);
    uint32_t part = (uint32_t)muster_span_part_with(whole, parts, element);
    struct muster_span span = muster_span_part(whole, parts, part);
    return (struct muster_expected){.rank = muster_shape_partner(shape, part),
                                    .origin = element,
                                    .count = span.offset + span.count - element};
}

struct muster_expected muster_shape_expected(const struct muster_shape *shapes, uint32_t rank,
                                             uint64_t element)
{
    const struct muster_shape *shape = &shapes[rank];
    if (shape->collective == MUSTER_PAIRWISE_EXCHANGE) {
        return expected_part(shape, element);
    }
    if (meaning_of(shape)->output == CONTENT_BLOCKS) {
        return expected_block(shapes, rank, element);
    }
    bool scattered = meaning_of(shape)->output == CONTENT_BLOCK;
    uint64_t first = scattered ? muster_shape_input_block(shape, rank).offset : 0;
    return expected_whole(shape, element, first);
}

/* Checks --------------------------------------------------------------------------------------- */

/* Checks the bounds of one side's blocks: that the collective takes them, that they increase from
 * 0, and that the total is not over the limit. */
static muster_status check_bounds(const struct muster_shape *shape, const uint64_t *bounds,
                                  enum content content, const char *side)
{
    const struct meaning *meaning = meaning_of(shape);
    const char *name = muster_collective_name(shape->collective);
    if (bounds == NULL) {
        return meaning->needs_bounds && content == CONTENT_BLOCKS
                   ? muster_error_set(MUSTER_INVALID, "%s needs the sizes of its blocks", name)
                   : MUSTER_OK;
    }
    if (!meaning->takes_bounds || content != CONTENT_BLOCKS) {
        return muster_error_set(MUSTER_INVALID, "%s has no %s blocks of different sizes", name,
                                side);
    }
    bool rises = bounds[0] == 0;
    for (uint32_t rank = 0; rank < shape->ranks; rank++) {
        rises = rises && bounds[rank] <= bounds[rank + 1];
    }
    if (!rises || bounds[shape->ranks] > MUSTER_ELEMENTS_MAX) {
        return muster_error_set(
            MUSTER_INVALID, "%s: the %s blocks together are over the limit of %" PRIu64 " elements",
            name, side, (uint64_t)MUSTER_ELEMENTS_MAX);
    }
    return MUSTER_OK;
}

muster_status muster_shape_check(const struct muster_shape *shape)
{
    if (shape->collective <= 0 || shape->collective >= MUSTER_COLLECTIVE_END) {
        return muster_error_set(MUSTER_INVALID, "there is no collective %u",
                                (unsigned)shape->collective);
    }
    const struct meaning *meaning = meaning_of(shape);
    const char *name = muster_collective_name(shape->collective);
    if (shape->rank >= shape->ranks) {
        return muster_error_set(MUSTER_INVALID, "%s: rank %" PRIu32 " of %" PRIu32 " ranks", name,
                                shape->rank, shape->ranks);
    }
    if (shape->root >= (meaning->has_root ? shape->ranks : 1)) {
        return meaning->has_root
                   ? muster_error_set(MUSTER_INVALID,
                                      "%s: root %" PRIu32 ": the ranks are 0 to %" PRIu32, name,
                                      shape->root, shape->ranks - 1)
                   : muster_error_set(MUSTER_INVALID, "%s has no root", name);
    }
    if (meaning->input == CONTENT_NOTHING && shape->count != 0) {
        return muster_error_set(MUSTER_INVALID, "%s has no count", name);
    }
    TRY(check_bounds(shape, shape->input_bounds, meaning->input, "input"));
    TRY(check_bounds(shape, shape->output_bounds, meaning->output, "output"));
    bool counted = shape->input_bounds == NULL && shape->output_bounds == NULL;
    if (counted && shape->count > MUSTER_ELEMENTS_MAX / shape->ranks) {
        return muster_error_set(MUSTER_INVALID,
                                "%s: count %" PRIu64 " on %" PRIu32
                                " ranks is over the limit of %" PRIu64 " elements",
                                name, shape->count, shape->ranks, (uint64_t)MUSTER_ELEMENTS_MAX);
    }
    return MUSTER_OK;
}
