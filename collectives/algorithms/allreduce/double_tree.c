/*
 * Double binary tree allreduce: each half of the data is reduced up a binary tree and broadcast
 * down it, in segments. A rank that has children in one tree has none in the other, so that all
 * ranks send and receive at the same time, about 2n elements each. Data passes no more than log2 P
 * levels up and down.
 *
 * Source: P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan. Parallel Computing 35 (2009).
 *
 * The trees are in-order: ranks 0..P-1 have the places 1..P, a place's height is the number of its
 * trailing zero bits, and its parent is the nearest place of a greater height. The second tree is
 * the first one shifted by one rank. Four ranks, each tree with the ranks' numbers:
 *
 *   lane 0         3             lane 1         2
 *                /                            /
 *              1                            0
 *            /   \                        /   \
 *          0       2                    3       1
 *
 * Messages are assigned to time slots. A place of height h receives segment s from its left child
 * in slot 2(h-1) + s, and from its right child in the next slot; the child may have had it for
 * longer. The root has height k. A place of height h sends the result of segment s to its children
 * in slot 3k-h + s. So data waits for less than 3k slots, and the messages of a slot wait only for
 * those of earlier slots.
 *
 * Each segment is reduced along one tree and then copied, so all ranks end with the same bits.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

enum {
    TREES = 2,
    SEGMENTS_MAX = 64,
    SEGMENT_ELEMENTS_MIN = 32768, /* below, latency outweighs the overlap */
    INTERVALS_MAX = 5, /* of slots in which a place handles one segment after the other */
};

static uint32_t segments_of(uint64_t count)
{
    return muster_segment_count(count / TREES, SEGMENT_ELEMENTS_MIN, SEGMENTS_MAX);
}

/* The neighbours of a place in the tree; 0: there is none. */
struct node {
    uint32_t parent, left, right;
    /* The slots of segment 0; those of the next segments follow. */
    uint32_t from_left, from_right, to_parent, from_parent, to_children;
};

static uint32_t height_of(uint32_t place)
{
    return (uint32_t)__builtin_ctz(place);
}

static uint32_t parent_of(uint32_t size, uint32_t place)
{
    uint64_t bit = UINT64_C(1) << height_of(place);
    uint64_t above = (place - bit) | 2 * bit;
    return (uint32_t)(above <= size ? above : place - bit);
}

/* The node at a place: the numbers of its neighbours, by the lowest bits of the place, and the
 * slots in which it exchanges segment 0 with them. Where the right child is beyond the last place,
 * the nearest smaller subtree takes its position. */
static struct node node_at(uint32_t size, uint32_t place)
{
    uint32_t top = muster_log2_down(size);
    uint32_t height = height_of(place);
    struct node node = {.parent = parent_of(size, place), .to_children = 3 * top - height};
    if (height > 0) {
        uint32_t reach = UINT32_C(1) << (height - 1);
        node.left = place - reach;
        while (reach > 0 && reach > size - place) {
            reach /= 2;
        }
        node.right = reach > 0 ? place + reach : 0;
        node.from_left = 2 * (height - 1);
        node.from_right = node.from_left + 1;
    }
    if (node.parent != 0) {
        uint32_t above = height_of(node.parent);
        node.to_parent = 2 * (above - 1) + (place > node.parent ? 1 : 0);
        node.from_parent = 3 * top - above;
    }
    return node;
}

/* A member's place in a tree, and the index of the member at a place. */
static uint32_t place_of(uint32_t size, uint32_t index, uint32_t tree)
{
    return (uint32_t)(((uint64_t)index + tree) % size) + 1;
}

static uint64_t member_at(uint32_t size, uint32_t place, uint32_t tree)
{
    return (uint64_t)place - 1 + size - tree;
}

/* One rank's part in one tree. */
struct part {
    struct muster_builder *builder;
    const struct muster_group *group;
    enum muster_buffer source;
    struct muster_span span;
    uint32_t segments;
    uint32_t tree;
    struct node node;
};

static struct part part_of(struct muster_builder *builder, const struct muster_group *group,
                           enum muster_buffer source, struct muster_span whole, uint32_t tree)
{
    return (struct part){.builder = builder,
                         .group = group,
                         .source = source,
                         .span = muster_span_part(whole, TREES, tree),
                         .segments = segments_of(whole.count),
                         .tree = tree,
                         .node = node_at(group->size, place_of(group->size, group->index, tree))};
}

static uint32_t rank_at(const struct part *part, uint32_t place)
{
    return muster_group_rank(part->group, member_at(part->group->size, place, part->tree));
}

/* True if there is a segment for this slot, the first segment being that of slot `first`. */
static bool find_segment(const struct part *part, uint32_t first, uint32_t slot,
                         struct muster_span *ret_segment)
{
    if (slot < first || slot - first >= part->segments) {
        return false;
    }
    *ret_segment = muster_span_part(part->span, part->segments, slot - first);
    return true;
}

/* The messages of a slot on the way up. */
static void go_up(const struct part *part, uint32_t slot)
{
    const struct node *node = &part->node;
    enum muster_buffer held = node->left != 0 ? MUSTER_OUTPUT : part->source;
    struct muster_span segment;
    if (node->left != 0 && find_segment(part, node->from_left, slot, &segment)) {
        muster_builder_recv_reduce(part->builder, rank_at(part, node->left), part->source, segment,
                                   MUSTER_OUTPUT, segment.offset);
    }
    if (node->right != 0 && find_segment(part, node->from_right, slot, &segment)) {
        muster_builder_recv_reduce(part->builder, rank_at(part, node->right), MUSTER_OUTPUT,
                                   segment, MUSTER_OUTPUT, segment.offset);
    }
    if (node->parent != 0 && find_segment(part, node->to_parent, slot, &segment)) {
        muster_builder_send(part->builder, rank_at(part, node->parent), held, segment);
    }
}

/* The messages of a slot on the way down. */
static void go_down(const struct part *part, uint32_t slot)
{
    const struct node *node = &part->node;
    struct muster_span segment;
    if (node->parent != 0 && find_segment(part, node->from_parent, slot, &segment)) {
        muster_builder_recv(part->builder, rank_at(part, node->parent), MUSTER_OUTPUT, segment);
    }
    if (node->left != 0 && find_segment(part, node->to_children, slot, &segment)) {
        muster_builder_send(part->builder, rank_at(part, node->left), MUSTER_OUTPUT, segment);
        if (node->right != 0) {
            muster_builder_send(part->builder, rank_at(part, node->right), MUSTER_OUTPUT, segment);
        }
    }
}

static uint32_t slots_of(uint32_t size, uint32_t segments)
{
    return 3 * muster_log2_down(size) + segments;
}

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    if (group->size == 1) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
        return;
    }
    const struct part parts[TREES] = {part_of(builder, group, source, span, 0),
                                      part_of(builder, group, source, span, 1)};
    for (uint32_t slot = 0; slot < slots_of(group->size, parts[0].segments); slot++) {
        for (uint32_t tree = 0; tree < TREES; tree++) {
            go_up(&parts[tree], slot);
            go_down(&parts[tree], slot);
        }
        muster_builder_next_round(builder);
    }
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    uint64_t elements = 0;
    for (uint32_t tree = 0; tree < TREES && size > 1; tree++) {
        struct node node = node_at(size, place_of(size, index, tree));
        uint64_t half = muster_span_part((struct muster_span){.count = count}, TREES, tree).count;
        elements += node.parent != 0 ? half : 0;
        elements += node.left != 0 ? half : 0;
        elements += node.right != 0 ? half : 0;
    }
    return elements;
}

/* Adds the slots in which a place's intervals begin; returns their new number. */
static uint32_t add_firsts(const struct node *node, uint32_t *firsts, uint32_t count)
{
    if (node->parent != 0) {
        firsts[count++] = node->to_parent;
        firsts[count++] = node->from_parent;
    }
    if (node->left != 0) {
        firsts[count++] = node->from_left;
        firsts[count++] = node->to_children;
    }
    if (node->right != 0) {
        firsts[count++] = node->from_right;
    }
    return count;
}

/* The number of slots in which the place has a message. Each interval has one slot a segment; the
 * intervals are sorted by their first slot while they are counted. */
static uint32_t used_slots(uint32_t *firsts, uint32_t count, uint32_t segments)
{
    uint32_t slots = 0;
    uint32_t end = 0; /* of the slots counted so far */
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count; j++) {
            if (firsts[j] < firsts[i]) {
                uint32_t first = firsts[j];
                firsts[j] = firsts[i];
                firsts[i] = first;
            }
        }
        uint32_t from = firsts[i] > end ? firsts[i] : end;
        end = firsts[i] + segments;
        slots += end - from;
    }
    return slots;
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    uint32_t firsts[TREES * INTERVALS_MAX] = {0};
    uint32_t filled = 0;
    for (uint32_t tree = 0; tree < TREES && size > 1; tree++) {
        struct node node = node_at(size, place_of(size, index, tree));
        filled = add_firsts(&node, firsts, filled);
    }
    return used_slots(firsts, filled, segments_of(count));
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct muster_group all = muster_group_all(plan);
    struct muster_span whole = {.count = plan->count};
    if (all.size == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, whole, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    for (uint32_t tree = 0; tree < TREES; tree++) {
        struct part part = part_of(builder, &all, MUSTER_INPUT, whole, tree);
        muster_builder_set_lane(builder, (uint16_t)tree);
        for (uint32_t slot = 0; slot < slots_of(all.size, part.segments); slot++) {
            go_up(&part, slot);
            go_down(&part, slot);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

static uint32_t rounds_at(uint32_t size, uint32_t place, uint32_t segments)
{
    uint32_t firsts[INTERVALS_MAX] = {0};
    struct node node = node_at(size, place);
    return used_slots(firsts, add_firsts(&node, firsts, 0), segments);
}

/* Rounds of the busiest rank. All places of one height are like the first or the second one of it,
 * except the last one, whose parent or right child may be nearer. */
static uint32_t rounds_of_busiest(uint32_t size, uint32_t segments)
{
    uint32_t most = 0;
    for (uint32_t height = 0; height <= muster_log2_down(size); height++) {
        uint32_t first = UINT32_C(1) << height;
        uint32_t last = ((size - first) / first / 2) * 2 * first + first;
        const uint32_t places[] = {first, last < 3 * (uint64_t)first ? last : 3 * first, last};
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            uint32_t rounds = rounds_at(size, places[i], segments);
            most = rounds > most ? rounds : most;
        }
    }
    return most;
}

/* Elements that the busiest rank sends: to its parent and to two children in the first tree, and to
 * its parent in the second. With two or three ranks no rank with two children has a parent. */
static uint64_t elements_of_busiest(uint64_t count, uint32_t size)
{
    struct muster_span whole = {.count = count};
    uint32_t copies = size >= 4 ? 3 : size - 1;
    return copies * muster_span_part(whole, TREES, 0).count +
           muster_span_part(whole, TREES, 1).count;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    *ret_formula = (struct muster_formula){.rounds = plan->count > 0};
    if (ranks == 1) {
        return;
    }
    uint32_t segments = segments_of(plan->count);
    ret_formula->rounds = rounds_of_busiest(ranks, segments);
    ret_formula->elements = elements_of_busiest(plan->count, ranks);
    ret_formula->reduced = plan->count / segments; /* the rest while other segments arrive */
    struct muster_path path = {.messages = slots_of(ranks, segments),
                               .elements = ret_formula->elements};
    muster_formula_flat(plan->topology, path, ret_formula);
}

const struct muster_generator muster_double_tree_generator = {
    .rounds_text = "up to T + 3 floor(log2 P) - 1, two lanes",
    .elements_text = "2n; P < 4: nP/2",
    .generate = generate,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_double_tree = {
    .name = "double_tree",
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
