/*
 * Pipelined broadcast: a chain from the root through all ranks, and the data in segments, so that
 * everyone receives one while passing on the one before. P - 1 + S - 1 segment times in all, and
 * each link carries the data once, between hosts too.
 *
 * Source: J. L. Traeff, A. Ripke: Optimal broadcast for fully connected processor-node networks.
 * Journal of Parallel and Distributed Computing 68 (2008), section 2 (the linear pipeline).
 *
 * Four ranks, root 0, segments a b c (with another root, ranks count from it):
 *
 *   0 -> 1     a    b    c
 *   1 -> 2          a    b    c
 *   2 -> 3               a    b    c
 *   time      ------------------------>
 */
#include "collectives/algorithms/generators.h"

enum { SEGMENTS_MAX = 64 };
static const uint64_t segment_count_min = 4096; /* elements: below, latency outweighs the overlap */

static uint32_t segments_of(uint64_t count)
{
    uint64_t segments = count / segment_count_min;
    return segments < 1 ? 1 : segments > SEGMENTS_MAX ? SEGMENTS_MAX : (uint32_t)segments;
}

muster_status muster_broadcast_pipelined_generate(const struct muster_plan *plan,
                                                  struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t mine = (plan->rank + ranks - plan->root) % ranks;
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    uint32_t next = (plan->rank + 1) % ranks;
    struct muster_span all = {.count = plan->count};
    uint32_t segments = segments_of(plan->count);
    if (mine == 0) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    }
    for (uint32_t round = 0; round <= segments; round++) {
        if (mine > 0 && round < segments) {
            muster_builder_recv(builder, previous, MUSTER_OUTPUT,
                                muster_span_part(all, segments, round));
        }
        if (mine < ranks - 1 && round > 0) {
            muster_builder_send(builder, next, mine == 0 ? MUSTER_INPUT : MUSTER_OUTPUT,
                                muster_span_part(all, segments, round - 1));
        }
        if (mine > 0 || round > 0) {
            muster_builder_next_round(builder); /* the root's copy goes with its first segment */
        }
    }
    return MUSTER_OK;
}

void muster_broadcast_pipelined_formula(const struct muster_plan *plan,
                                        struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t segments = segments_of(plan->count);
    *ret_formula = (struct muster_formula){.rounds = segments + (ranks > 2 ? 1 : 0),
                                           .elements = ranks > 1 ? plan->count : 0};
    if (ranks == 1) {
        ret_formula->rounds = plan->count > 0 ? 1 : 0;
        return;
    }
    uint64_t messages = (uint64_t)ranks - 2 + segments;
    uint64_t largest =
        muster_span_part((struct muster_span){.count = plan->count}, segments, 0).count;
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = messages, .elements = messages * largest},
                        ret_formula);
}
