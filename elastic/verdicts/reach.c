/* From pairs of members to a vertex cover of hosts. */
#include "elastic/verdicts/reach.h"

#include "elastic/verdicts/cover.h"

#include <assert.h>
#include <string.h>

_Static_assert(2 * MUSTER_REACH_PAIRS_MAX <= MUSTER_COVER_VERTICES_MAX, "hosts are vertices");

/* Above the number of members of a job. */
#define ANSWERING_MEMBER ((uint64_t)1 << 32)

struct graph {
    uint32_t count, edge_count;
    uint32_t hosts[MUSTER_COVER_VERTICES_MAX];
    uint64_t weights[MUSTER_COVER_VERTICES_MAX];
    struct muster_cover_edge edges[MUSTER_REACH_PAIRS_MAX];
};

/* The vertex of this host; count: it has none. */
static uint32_t find(const struct graph *graph, uint32_t host)
{
    uint32_t i = 0;
    while (i < graph->count && graph->hosts[i] != host) {
        i++;
    }
    return i;
}

static uint32_t find_or_add(struct graph *graph, uint32_t host)
{
    uint32_t vertex = find(graph, host);
    if (vertex == graph->count) {
        graph->hosts[graph->count++] = host;
    }
    return vertex;
}

static void add_weights(struct graph *graph, const struct muster_reach_member *members,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t vertex = find(graph, members[i].host);
        if (vertex < graph->count) {
            graph->weights[vertex] +=
                (members[i].answers ? ANSWERING_MEMBER : 0) + 2 + (members[i].newest ? 1 : 0);
        }
    }
}

void muster_reach_decide(const struct muster_reach_member *members, uint32_t count,
                         const struct muster_reach_pair *pairs, uint32_t pair_count, bool *ret_out)
{
    struct graph graph = {0};
    bool in[MUSTER_COVER_VERTICES_MAX];
    assert(pair_count <= MUSTER_REACH_PAIRS_MAX);
    for (uint32_t i = 0; i < pair_count; i++) {
        uint32_t from = members[pairs[i].from].host;
        uint32_t to = members[pairs[i].to].host;
        assert(from != to);
        struct muster_cover_edge *edge = &graph.edges[graph.edge_count++];
        edge->a = find_or_add(&graph, from);
        edge->b = find_or_add(&graph, to);
    }
    add_weights(&graph, members, count);
    muster_cover_find(graph.weights, graph.count, graph.edges, graph.edge_count, in);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t vertex = find(&graph, members[i].host);
        ret_out[i] = vertex < graph.count && in[vertex];
    }
}
