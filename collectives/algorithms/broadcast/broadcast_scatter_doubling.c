/*
 * Broadcast by scatter and recursive doubling: parts go down a binomial tree, as in
 * broadcast_scatter_allgather.c; then partners at distance 1, 2, 4, ... exchange all parts that
 * they have. As few bytes as with the ring, but in 2 log2 P rounds: for middle calls. No rank is
 * sent parts that it has from the scatter. Where P is not a power of two, the ranks beyond the
 * largest power of two receive all data at the end.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.3.
 *
 * Four ranks, root 0 with parts a b c d (with another root, ranks count from it):
 *
 *   round           0      1      2      3
 *   rank 0 sends    cd>2   b>1    a>1    ab>2
 *   rank 1 sends                         ab>3
 *   rank 2 sends           d>3    c>3    cd>0 is not sent: 0 has them
 *   rank 3 sends                         cd>1
 */
#include "collectives/algorithms/generators.h"

/* One rank's view. Nodes are ranks counted from the root; the first 2^levels of them exchange. */
struct view {
    const struct muster_plan *plan;
    uint32_t levels;
    uint32_t node;
    enum muster_buffer source;
};

static uint32_t rank_of(const struct view *view, uint32_t node)
{
    return (uint32_t)(((uint64_t)node + view->plan->root) % view->plan->topology->ranks);
}

/* `many` parts from number `first` on. */
static struct muster_span parts(uint64_t count, uint32_t levels, uint32_t first, uint32_t many)
{
    const struct muster_span all = {.count = count};
    struct muster_span span = muster_span_part(all, UINT64_C(1) << levels, first);
    const struct muster_span last =
        muster_span_part(all, UINT64_C(1) << levels, (uint64_t)first + many - 1);
    span.count = last.offset + last.count - span.offset;
    return span;
}

static void scatter(const struct view *view, struct muster_builder *builder)
{
    uint64_t count = view->plan->count;
    uint32_t below = view->levels;
    if (view->node > 0) {
        below = (uint32_t)__builtin_ctz(view->node);
        muster_builder_recv(builder, rank_of(view, view->node & (view->node - 1)), MUSTER_OUTPUT,
                            parts(count, view->levels, view->node, UINT32_C(1) << below));
        muster_builder_next_round(builder);
    }
    while (below-- > 0) {
        uint32_t half = UINT32_C(1) << below;
        muster_builder_send(builder, rank_of(view, view->node + half), view->source,
                            parts(count, view->levels, view->node + half, half));
        muster_builder_next_round(builder);
    }
}

/* True if the scatter gave the node also the parts of its partner at this distance. */
static bool has_both(uint32_t node, uint32_t distance)
{
    return node % (2 * distance) == 0;
}

static void exchange(const struct view *view, struct muster_builder *builder)
{
    uint64_t count = view->plan->count;
    for (uint32_t distance = 1; distance < UINT32_C(1) << view->levels; distance *= 2) {
        uint32_t partner = view->node ^ distance;
        if (!has_both(partner, distance)) {
            muster_builder_send(builder, rank_of(view, partner), view->source,
                                parts(count, view->levels, view->node & -distance, distance));
        }
        if (!has_both(view->node, distance)) {
            muster_builder_recv(builder, rank_of(view, partner), MUSTER_OUTPUT,
                                parts(count, view->levels, partner & -distance, distance));
        }
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_span all = {.count = plan->count};
    uint32_t ranks = plan->topology->ranks;
    uint32_t node = (plan->rank + ranks - plan->root) % ranks;
    const struct view view = {.plan = plan,
                              .levels = muster_log2_down(ranks),
                              .node = node,
                              .source = node == 0 ? MUSTER_INPUT : MUSTER_OUTPUT};
    uint32_t kept = UINT32_C(1) << view.levels;
    if (node >= kept) {
        muster_builder_recv(builder, rank_of(&view, node - kept), MUSTER_OUTPUT, all);
        return MUSTER_OK;
    }
    if (node == 0) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    }
    scatter(&view, builder);
    exchange(&view, builder);
    if (node + kept < ranks) {
        muster_builder_send(builder, rank_of(&view, node + kept), view.source, all);
    }
    return MUSTER_OK;
}

/* The root is the busiest rank: in the exchange, too, it has the largest parts. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t levels = muster_log2_down(ranks);
    uint32_t more = ranks > UINT32_C(1) << levels ? 1 : 0;
    *ret_formula =
        (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : 2 * levels + more};
    if (ranks == 1) {
        return;
    }
    uint64_t scattered = plan->count - parts(plan->count, levels, 0, 1).count;
    ret_formula->elements = scattered + more * plan->count;
    const struct muster_path path = {.messages = levels + more,
                                     .elements = scattered + more * plan->count};
    muster_formula_flat(plan->topology, path, ret_formula);
    for (uint32_t level = 0; level < levels; level++) {
        uint64_t sent = parts(plan->count, levels, 0, UINT32_C(1) << level).count;
        ret_formula->elements += sent;
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << level, 1, sent);
    }
}

const struct muster_generator muster_broadcast_scatter_doubling_generator = {
    .rounds_text = "2 log2 P; other P: 2 floor(log2 P) + 1",
    .elements_text = "2n(P-1)/P; other P: up to 3n",
    .generate = generate,
    .formula = find_formula,
};
