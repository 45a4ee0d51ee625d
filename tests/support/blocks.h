/* For tests: blocks of different sizes, computed so that all ranks get the same ones. */
#ifndef MUSTER_TESTS_SUPPORT_BLOCKS_H
#define MUSTER_TESTS_SUPPORT_BLOCKS_H

#include "collectives/call/shape.h"

/* Room for the bounds of both sides of one rank. */
struct test_blocks {
    uint64_t *input, *output; /* [ranks + 1] */
};

/* Gives the shape bounds on the sides where its collective has blocks: of 0 to 2 x count elements.
 * free() both members when the shape is done with. */
struct test_blocks test_blocks_make(struct muster_shape *shape);
void test_blocks_finish(struct test_blocks *blocks);

#endif
