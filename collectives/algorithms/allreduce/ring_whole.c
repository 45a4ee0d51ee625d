/*
 * Ring allreduce of whole buffers: in P-1 rounds every rank passes on the buffer that it received
 * in the round before, and so receives the data of all ranks. It has one message a round, to the
 * next rank only, but sends P-1 times the data: for small calls on few ranks, and as a baseline.
 * What NCCL and the literature call the ring allreduce is ring.c.
 *
 * Source: Gloo's allreduce_ring (P. Noordhuis et al.), but with a fixed order of reductions. In
 * Gloo each rank reduces in the order in which data arrives, so that floats differ between ranks.
 * Here all ranks reduce along the same balanced tree over the ranks, and reduce two neighbouring
 * blocks of it as soon as both are complete.
 *
 * Four ranks; what rank r receives, and what it can then reduce:
 *
 *   round    rank 0         rank 1         rank 2         rank 3
 *   0        3              0              1              2
 *   1        2              3    0+1       0              1    2+3
 *   2        1+0  2+3       2+3            3+2  0+1       0+1
 *   3        01+23          01+23          01+23          01+23
 *
 * What is received stays in scratch until its block is reduced. Only blocks at the two ends of the
 * received range of ranks wait, so scratch holds at most 2 ceil(log2 P) times the data.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

/* More blocks than ever wait: a few for each level of a tree over 2^32 ranks. */
enum { BLOCKS_MAX = 256 };

/* A node of the tree: the sum over ranks index << level .. ((index + 1) << level) - 1, as far as
 * there are any. */
struct block {
    uint32_t level;
    uint32_t index;
    uint32_t ready; /* the first round that may read it */
    enum muster_buffer buffer;
    uint64_t at;
};

struct ring {
    struct muster_builder *builder;
    const struct muster_group *group;
    struct muster_span span;
    uint32_t round;
    struct block passing; /* the one that is sent in this round */
    struct block blocks[BLOCKS_MAX];
    uint32_t block_count;
    uint64_t areas[BLOCKS_MAX]; /* free areas of scratch */
    uint32_t area_count;        /* those that this round may use */
    uint32_t area_count_next;   /* with those that this round frees, which come behind */
};

/* A block whose sibling has no ranks is its own parent. */
static void climb(struct block *block, uint32_t size)
{
    uint32_t top = muster_log2_up(size);
    while (block->level < top && block->index % 2 == 0 &&
           ((uint64_t)block->index + 1) << block->level >= size) {
        block->level++;
        block->index /= 2;
    }
}

static void become_parent(struct block *block, uint32_t size)
{
    block->level++;
    block->index /= 2;
    climb(block, size);
}

static bool same_place(const struct block *one, const struct block *other)
{
    return one->buffer == other->buffer && one->at == other->at;
}

static uint64_t take_area(struct ring *ring)
{
    if (ring->area_count == 0) {
        return muster_builder_reserve(ring->builder, ring->span.count);
    }
    uint64_t area = ring->areas[--ring->area_count];
    /* Areas that this round frees stay behind those that were free before. */
    ring->areas[ring->area_count] = ring->areas[--ring->area_count_next];
    return area;
}

static void free_area(struct ring *ring, const struct block *block)
{
    ring->areas[ring->area_count_next++] = block->at;
}

static struct muster_span span_of(const struct ring *ring, const struct block *block)
{
    return (struct muster_span){.offset = block->at, .count = ring->span.count};
}

/* The waiting block that is the other half of this one's parent; NULL: it is not complete yet. */
static struct block *sibling(struct ring *ring, const struct block *block)
{
    for (uint32_t i = 0; i < ring->block_count; i++) {
        struct block *other = &ring->blocks[i];
        if (other->level == block->level && other->index == (block->index ^ 1) &&
            other->ready <= ring->round) {
            return other;
        }
    }
    return NULL;
}

/* Which of two siblings receives the sum. The rank's own block stays in OUTPUT; a block that is
 * being sent must not change. */
static bool is_target(const struct ring *ring, const struct block *block, const struct block *other)
{
    return block->buffer == MUSTER_OUTPUT ||
           (other->buffer != MUSTER_OUTPUT && same_place(other, &ring->passing));
}

/* Reduces all pairs of siblings that are complete. */
static void reduce_siblings(struct ring *ring)
{
    uint32_t i = 0;
    while (i < ring->block_count) {
        struct block *one = &ring->blocks[i];
        struct block *other = one->ready <= ring->round ? sibling(ring, one) : NULL;
        if (other == NULL) {
            i++;
            continue;
        }
        struct block *target = is_target(ring, other, one) ? other : one;
        struct block *source = target == one ? other : one;
        muster_builder_reduce(ring->builder, source->buffer, span_of(ring, source), target->buffer,
                              target->at);
        become_parent(target, ring->group->size);
        target->ready = ring->round + 1;
        free_area(ring, source);
        *source = ring->blocks[--ring->block_count];
    }
}

/* The last message is not passed on, so it can be reduced on arrival, if its sibling is complete.
 */
static bool receive_last(struct ring *ring, uint32_t previous, struct block *received)
{
    struct block *other = sibling(ring, received);
    if (other == NULL || ring->round == 0) {
        return false; /* in round 0 the sibling is the rank's own data, which is being sent */
    }
    struct block was = *other;
    if (was.buffer != MUSTER_SCRATCH) {
        other->buffer = MUSTER_OUTPUT; /* also from the source, if it was not copied */
    } else if (same_place(other, &ring->passing)) {
        other->at = take_area(ring);
    }
    muster_builder_recv_reduce(ring->builder, previous, was.buffer, span_of(ring, &was),
                               other->buffer, other->at);
    become_parent(other, ring->group->size);
    other->ready = ring->round + 1;
    return true;
}

/* Sends what was received in the round before, and receives the next buffer. */
static void pass(struct ring *ring)
{
    uint32_t size = ring->group->size;
    uint32_t index = ring->group->index;
    uint32_t next = muster_group_rank(ring->group, (uint64_t)index + 1);
    uint32_t previous = muster_group_rank(ring->group, (uint64_t)index + size - 1);
    muster_builder_send(ring->builder, next, ring->passing.buffer, span_of(ring, &ring->passing));
    uint32_t from = (uint32_t)(((uint64_t)index + size - 1 - ring->round) % size);
    struct block received = {.index = from, .ready = ring->round + 1, .buffer = MUSTER_SCRATCH};
    climb(&received, size);
    if (ring->round == size - 2 && receive_last(ring, previous, &received)) {
        return;
    }
    received.at = take_area(ring);
    muster_builder_recv(ring->builder, previous, MUSTER_SCRATCH, span_of(ring, &received));
    ring->blocks[ring->block_count++] = received;
    ring->passing = received;
}

/* In each round a member passes on the data that it received in the round before, and reduces the
 * partial sums that are complete siblings by then. */
static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    /* For a rank of even number that has a sibling, the last message is that sibling: it is reduced
     * with the source, so the rank's own data need not be copied first. */
    bool copied = group->size <= 2 || group->index % 2 == 1 || group->index + 1 == group->size;
    struct block own = {.index = group->index,
                        .ready = 1,
                        .buffer = copied ? MUSTER_OUTPUT : source,
                        .at = span.offset};
    climb(&own, group->size);
    struct ring ring = {.builder = builder,
                        .group = group,
                        .span = span,
                        .passing = {.buffer = source, .at = span.offset},
                        .blocks = {own},
                        .block_count = 1};
    if (copied) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
    }
    for (; ring.round + 1 < group->size || ring.block_count > 1; ring.round++) {
        reduce_siblings(&ring);
        if (ring.round + 1 < group->size) {
            pass(&ring);
        }
        ring.area_count = ring.area_count_next;
        muster_builder_next_round(builder);
    }
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    (void)index; /* all ranks of a ring send the same */
    return count * (size - 1);
}

/* The first round in which a member may read the node of 2^levels ranks from `first` on. The last
 * message is reduced on arrival if the other half is complete by then. */
static uint32_t ready_round(uint32_t size, uint32_t index, uint32_t first, uint32_t levels)
{
    if (levels == 0) {
        uint32_t distance = (index + size - first) % size;
        return distance == 0 ? 1 : distance;
    }
    uint32_t half = UINT32_C(1) << (levels - 1);
    uint32_t left = ready_round(size, index, first, levels - 1);
    if (size - first <= half) {
        return left;
    }
    uint32_t right = ready_round(size, index, first + half, levels - 1);
    uint32_t last = (index + 1) % size;
    bool left_last = half == 1 && first == last;
    bool right_last = (half == 1 || size - first - half == 1) && first + half == last;
    if (size > 2 && ((left_last && right < size - 1) || (right_last && left < size - 1))) {
        return size - 1;
    }
    return (left > right ? left : right) + 1;
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    return count == 0 ? size - 1 : ready_round(size, index, 0, muster_log2_up(size));
}

/* After the last message come the reductions up to the root of the tree. With more than two ranks
 * the first of these happens as the message arrives. */
static uint32_t rounds_of_busiest(uint64_t count, uint32_t ranks)
{
    if (count == 0) {
        return ranks - 1;
    }
    return ranks <= 2 ? ranks : ranks - 2 + muster_log2_up(ranks);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t elements = part_elements(plan->count, ranks, 0);
    *ret_formula = (struct muster_formula){
        .rounds = rounds_of_busiest(plan->count, ranks), .elements = elements, .reduced = elements};
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_ring_whole_generator = {
    .rounds_text = "P + ceil(log2 P) - 2; P = 2: 2",
    .elements_text = "n(P-1)",
    .part = allreduce,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_ring_whole = {
    .name = "ring_whole",
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
