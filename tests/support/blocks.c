/* Blocks of different sizes for the shape of a call. */
#include "tests/support/blocks.h"

#include <stdlib.h>

#include "collectives/call/call_plan.h"

/* The number of elements that one rank sends to another. */
static uint64_t between(const struct muster_shape *shape, uint64_t from, uint64_t to)
{
    return (7 * from + 3 * to + from * to) % (2 * shape->count + 1);
}

static void sum_up(uint64_t *bounds, const struct muster_shape *shape, bool output)
{
    bool all_alike = shape->collective != MUSTER_ALLTOALLV;
    for (uint32_t i = 0; i < shape->ranks; i++) {
        uint64_t from = output || all_alike ? i : shape->rank;
        uint64_t to = all_alike ? 0 : output ? shape->rank : i;
        bounds[i + 1] = bounds[i] + between(shape, from, to);
    }
}

struct test_blocks test_blocks_make(struct muster_shape *shape)
{
    struct test_blocks blocks = {.input = calloc(shape->ranks + 1, sizeof(uint64_t)),
                                 .output = calloc(shape->ranks + 1, sizeof(uint64_t))};
    if (blocks.input == NULL || blocks.output == NULL) {
        abort();
    }
    if (shape->collective == MUSTER_REDUCE_SCATTER || shape->collective == MUSTER_ALLTOALLV) {
        sum_up(blocks.input, shape, false);
        shape->input_bounds = blocks.input;
    }
    if (muster_collective_needs_bounds(shape->collective)) {
        sum_up(blocks.output, shape, true);
        shape->output_bounds = blocks.output;
    }
    return blocks;
}

void test_blocks_finish(struct test_blocks *blocks)
{
    free(blocks->input);
    free(blocks->output);
    *blocks = (struct test_blocks){0};
}
