/*
 * The lightest set of vertices such that each edge has an end in it: minimum weighted vertex cover.
 * Vertices are hosts, edges are pairs of them that cannot reach each other; the set is who has to
 * go. Exact where at most MUSTER_COVER_EXACT_MAX vertices have an edge; beyond that greedy.
 */
#ifndef MUSTER_ELASTIC_VERDICTS_COVER_H
#define MUSTER_ELASTIC_VERDICTS_COVER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_COVER_VERTICES_MAX = 256,
    MUSTER_COVER_EXACT_MAX = 20,
};

struct muster_cover_edge {
    uint32_t a, b; /* two different vertices */
};

/* count: at most MUSTER_COVER_VERTICES_MAX. ret_in: [count], whether each is in the set. No vertex
 * is in it whose edges the others cover. */
void muster_cover_find(const uint64_t *weights, uint32_t count,
                       const struct muster_cover_edge *edges, uint32_t edge_count, bool *ret_in);

#endif
