/*
 * Pipelined broadcast: a chain from the root through all ranks. The data goes in segments, so that
 * a rank receives one segment while it sends on the one before. It takes P - 1 + S - 1 times as
 * long as a segment, and each link carries the data once, also between hosts.
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

enum {
    SEGMENTS_MAX = 64,
    SEGMENT_ELEMENTS_MIN = 4096, /* below, latency outweighs the overlap */
};

static uint32_t segments_of(uint64_t count)
{
    return muster_segment_count(count, SEGMENT_ELEMENTS_MIN, SEGMENTS_MAX);
}

/* In each round a rank receives one segment and sends the one before. */
static void pass_segments(struct muster_builder *builder, const struct muster_group *all,
                          uint32_t root, enum muster_buffer source, struct muster_span span)
{
    uint32_t size = all->size;
    uint32_t place = (all->index + size - root) % size;
    uint32_t previous = muster_group_rank(all, (uint64_t)all->index + size - 1);
    uint32_t next = muster_group_rank(all, (uint64_t)all->index + 1);
    uint32_t segments = segments_of(span.count);
    for (uint32_t round = 0; round <= segments; round++) {
        bool receives = place > 0 && round < segments;
        bool sends = place + 1 < size && round > 0;
        if (receives) {
            muster_builder_recv(builder, previous, MUSTER_OUTPUT,
                                muster_span_part(span, segments, round));
        }
        if (sends) {
            muster_builder_send(builder, next, source, muster_span_part(span, segments, round - 1));
        }
        if (receives || sends) {
            muster_builder_next_round(builder); /* the root's copy goes with its first segment */
        }
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = {.size = plan->topology->ranks, .index = plan->rank};
    const struct muster_span span = {.count = plan->count};
    bool is_root = plan->rank == plan->root;
    if (is_root) {
        muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_OUTPUT, 0);
    }
    pass_segments(builder, &all, plan->root, is_root ? MUSTER_INPUT : MUSTER_OUTPUT, span);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
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
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = messages, .elements = messages * largest},
                        ret_formula);
}

const struct muster_generator muster_broadcast_pipelined_generator = {
    .rounds_text = "S + 1; P = 2: S",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
