/* Pieces: ranges of elements that stand for the same term, so that the checker's memory depends on
 * the number of spans and not on their length. */
#ifndef MUSTER_COLLECTIVES_CHECK_PIECES_H
#define MUSTER_COLLECTIVES_CHECK_PIECES_H

#include "collectives/check/terms.h"

struct muster_piece {
    uint64_t begin;  /* of its elements in this list */
    uint64_t count;  /* of its elements, at least 1 */
    uint64_t origin; /* element of the callers' input that the first one stands for */
    uint32_t term;
};

/* Adjacent ranges without gaps, from 0 on; neighbours that could be one are one, so equal contents
 * give equal lists. */
struct muster_pieces {
    struct muster_piece *items; /* owned */
    size_t used, capacity;
};

void muster_pieces_finish(struct muster_pieces *pieces);
void muster_pieces_clear(struct muster_pieces *pieces);

/* Adds elements at the end; none if count is 0. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_pieces_append(struct muster_pieces *pieces, uint64_t count,
                                                  uint64_t origin, uint32_t term);

/* Element by element. Both have the same number of elements and no NONE. MUSTER_INVALID: different
 * origins meet, or a rank is counted twice. */
MUSTER_CHECKED muster_status muster_pieces_add(const struct muster_pieces *left,
                                               const struct muster_pieces *right,
                                               struct muster_terms *terms,
                                               struct muster_pieces *ret_sum);

#endif
