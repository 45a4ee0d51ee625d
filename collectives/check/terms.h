/*
 * Terms: symbols for what an element of a buffer stands for, for the checker. A leaf is one rank's
 * input; a sum is two terms reduced with each other, in either order. Equal terms have equal
 * numbers, so if two ranks end with the same number, they reduced the same inputs in the same
 * order. A term counts each rank at most once.
 */
#ifndef MUSTER_COLLECTIVES_CHECK_TERMS_H
#define MUSTER_COLLECTIVES_CHECK_TERMS_H

#include "worker/muster.h"

#include <stdbool.h>

enum { MUSTER_TERM_NONE = 0 }; /* the element was never written */

struct muster_term {
    uint32_t parts[2]; /* the two that were reduced, the smaller first */
    uint32_t members;  /* the number of ranks that it counts */
    /* The ranks that it counts. Below `ranks`: the first of `members` consecutive ranks, rank 0
     * following the last one; rings have only such terms. Else `ranks` plus the number of a set. */
    uint32_t first;
};

struct muster_terms {
    uint32_t ranks;
    size_t used;               /* terms; number 0 is MUSTER_TERM_NONE, 1 + rank is a rank's leaf */
    size_t capacity;           /* of items; a power of two */
    struct muster_term *items; /* [capacity] */
    uint32_t *table;           /* [2 x capacity] hash of the parts -> term; 0 is free */
    size_t words;              /* of 64 bits, in a set of ranks */
    size_t set_count, set_capacity;
    uint64_t *sets; /* [set_capacity x words] */
};

/* MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_terms_init(uint32_t ranks, struct muster_terms *ret_terms);
void muster_terms_finish(struct muster_terms *terms);

uint32_t muster_terms_leaf(uint32_t rank);

/* The sum of two terms other than MUSTER_TERM_NONE. MUSTER_INVALID: a rank would count twice; the
 * text names it. */
MUSTER_CHECKED muster_status muster_terms_add(struct muster_terms *terms, uint32_t left,
                                              uint32_t right, uint32_t *ret_term);

/* The canonical term: what every element of a reproducible sum is. It is a binary tree over the
 * places of the reduction order, reduction_order[place] being a rank. The node of places first *
 * 2^level up to (first + 1) * 2^level, as far as there are any, is the sum of its lower and its
 * upper half; the root is the node at the lowest level that has all places. MUSTER_FATAL: no
 * memory. */
MUSTER_CHECKED muster_status muster_terms_canonical(struct muster_terms *terms,
                                                    const uint32_t *reduction_order,
                                                    uint32_t *ret_term);

/* The number of ranks that it counts. */
uint32_t muster_terms_members(const struct muster_terms *terms, uint32_t term);

/* True if it counts every rank. */
bool muster_terms_is_full(const struct muster_terms *terms, uint32_t term);

#endif
