/* Branch and bound for few vertices, and greedy for many. */
#include "elastic/verdicts/cover.h"

#include <assert.h>
#include <string.h>

/* Vertices that have an edge, numbered anew; bits of a word. */
struct search {
    uint32_t count;
    uint32_t vertices[MUSTER_COVER_EXACT_MAX];
    uint64_t weights[MUSTER_COVER_EXACT_MAX];
    uint32_t neighbours[MUSTER_COVER_EXACT_MAX];
    uint64_t best_weight;
    uint32_t best;
};

static uint32_t index_of(struct search *search, const uint64_t *weights, uint32_t vertex)
{
    for (uint32_t i = 0; i < search->count; i++) {
        if (search->vertices[i] == vertex) {
            return i;
        }
    }
    if (search->count == MUSTER_COVER_EXACT_MAX) {
        return MUSTER_COVER_EXACT_MAX;
    }
    search->vertices[search->count] = vertex;
    search->weights[search->count] = weights[vertex];
    return search->count++;
}

/* False: too many vertices have an edge. */
static bool read_edges(struct search *search, const uint64_t *weights,
                       const struct muster_cover_edge *edges, uint32_t edge_count)
{
    for (uint32_t i = 0; i < edge_count; i++) {
        uint32_t a = index_of(search, weights, edges[i].a);
        uint32_t b = index_of(search, weights, edges[i].b);
        if (a == MUSTER_COVER_EXACT_MAX || b == MUSTER_COVER_EXACT_MAX) {
            return false;
        }
        search->neighbours[a] |= 1U << b;
        search->neighbours[b] |= 1U << a;
    }
    return true;
}

/* The vertex of `left` with the most neighbours in it; count: none has any. */
static uint32_t widest(const struct search *search, uint32_t left)
{
    uint32_t found = search->count;
    int most = 0;
    for (uint32_t i = 0; i < search->count; i++) {
        int degree = __builtin_popcount(search->neighbours[i] & left);
        if ((left >> i & 1U) != 0 && degree > most) {
            found = i;
            most = degree;
        }
    }
    return found;
}

static uint64_t weight_of(const struct search *search, uint32_t set)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < search->count; i++) {
        weight += (set >> i & 1U) != 0 ? search->weights[i] : 0;
    }
    return weight;
}

/* Of each vertex, either it is in the set, or all its neighbours are. The depth is at most the
 * number of vertices, as each step takes at least one out of `left`. */
static void branch(struct search *search, uint32_t left,
                   uint32_t set) /* NOLINT(misc-no-recursion) */
{
    uint64_t weight = weight_of(search, set);
    if (weight >= search->best_weight) {
        return;
    }
    uint32_t vertex = widest(search, left);
    if (vertex == search->count) {
        search->best_weight = weight;
        search->best = set;
        return;
    }
    uint32_t others = search->neighbours[vertex] & left;
    branch(search, left & ~(1U << vertex), set | 1U << vertex);
    branch(search, left & ~(1U << vertex) & ~others, set | others);
}

static bool is_covered(const struct muster_cover_edge *edge, const bool *in)
{
    return in[edge->a] || in[edge->b];
}

/* How many edges of each vertex the set leaves open. */
static void count_open(const struct muster_cover_edge *edges, uint32_t edge_count, const bool *in,
                       uint32_t *open)
{
    memset(open, 0, MUSTER_COVER_VERTICES_MAX * sizeof *open);
    for (uint32_t i = 0; i < edge_count; i++) {
        if (!is_covered(&edges[i], in)) {
            open[edges[i].a]++;
            open[edges[i].b]++;
        }
    }
}

/* Takes the vertex with the least weight for each open edge, until none is open. */
static void find_greedily(const uint64_t *weights, uint32_t count,
                          const struct muster_cover_edge *edges, uint32_t edge_count, bool *in)
{
    uint32_t open[MUSTER_COVER_VERTICES_MAX];
    for (;;) {
        uint32_t found = count;
        count_open(edges, edge_count, in, open);
        for (uint32_t i = 0; i < count; i++) {
            if (open[i] > 0 && (found == count || (double)weights[i] / open[i] <
                                                      (double)weights[found] / open[found])) {
                found = i;
            }
        }
        if (found == count) {
            return;
        }
        in[found] = true;
    }
}

/* Takes those out whose edges the others cover. */
static void drop_needless(uint32_t count, const struct muster_cover_edge *edges,
                          uint32_t edge_count, bool *in)
{
    for (uint32_t vertex = 0; vertex < count; vertex++) {
        if (!in[vertex]) {
            continue;
        }
        in[vertex] = false;
        for (uint32_t i = 0; i < edge_count && !in[vertex]; i++) {
            in[vertex] = !is_covered(&edges[i], in);
        }
    }
}

void muster_cover_find(const uint64_t *weights, uint32_t count,
                       const struct muster_cover_edge *edges, uint32_t edge_count, bool *ret_in)
{
    struct search search = {.best_weight = UINT64_MAX};
    assert(count <= MUSTER_COVER_VERTICES_MAX);
    memset(ret_in, 0, count * sizeof *ret_in);
    if (read_edges(&search, weights, edges, edge_count)) {
        branch(&search, (1U << search.count) - 1, 0);
        for (uint32_t i = 0; i < search.count; i++) {
            ret_in[search.vertices[i]] = (search.best >> i & 1U) != 0;
        }
        return;
    }
    find_greedily(weights, count, edges, edge_count, ret_in);
    drop_needless(count, edges, edge_count, ret_in);
}
