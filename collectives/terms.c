#include "collectives/terms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

static size_t slot_of(const struct muster_terms *terms, uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32) & (2 * terms->capacity - 1);
}

/* The term with these parts, or 0 and the free slot for it. */
static uint32_t find(const struct muster_terms *terms, uint32_t left, uint32_t right,
                     size_t *ret_slot)
{
    size_t slot = slot_of(terms, left, right);
    while (terms->table[slot] != 0) {
        const uint32_t *parts = terms->parts[terms->table[slot]];
        if (parts[0] == left && parts[1] == right) {
            break;
        }
        slot = (slot + 1) & (2 * terms->capacity - 1);
    }
    *ret_slot = slot;
    return terms->table[slot];
}

/* True if the block could be made so large. */
static bool resize(void **block, size_t count, size_t size_bytes)
{
    size_t all = 0;
    if (__builtin_mul_overflow(count, size_bytes, &all)) {
        return false;
    }
    void *larger = realloc(*block, all);
    if (larger != NULL) {
        *block = larger;
    }
    return larger != NULL;
}

static muster_status grow(struct muster_terms *terms, size_t capacity)
{
    if (capacity > UINT32_MAX / 2 ||
        !resize((void **)&terms->parts, capacity, sizeof *terms->parts) ||
        !resize((void **)&terms->members, capacity, sizeof *terms->members) ||
        !resize((void **)&terms->sets, capacity, terms->words * sizeof *terms->sets) ||
        !resize((void **)&terms->table, 2 * capacity, sizeof *terms->table)) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu partial results", capacity);
    }
    terms->capacity = capacity;
    memset(terms->table, 0, 2 * capacity * sizeof *terms->table);
    for (size_t term = 1 + (size_t)terms->ranks; term < terms->used; term++) {
        size_t slot = 0;
        (void)find(terms, terms->parts[term][0], terms->parts[term][1], &slot);
        terms->table[slot] = (uint32_t)term;
    }
    return MUSTER_OK;
}

muster_status muster_terms_init(uint32_t ranks, struct muster_terms *ret_terms)
{
    struct muster_terms terms = {.ranks = ranks, .words = (ranks + 63) / 64};
    size_t capacity = 64;
    while (capacity < 2 * ((size_t)ranks + 1)) {
        capacity *= 2;
    }
    if (grow(&terms, capacity) != MUSTER_OK) {
        muster_terms_finish(&terms);
        return MUSTER_FATAL;
    }
    terms.used = (size_t)ranks + 1;
    memset(terms.sets, 0, terms.used * terms.words * sizeof *terms.sets);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t leaf = muster_terms_leaf(rank);
        terms.members[leaf] = 1;
        terms.sets[leaf * terms.words + rank / 64] = UINT64_C(1) << (rank % 64);
    }
    *ret_terms = terms;
    return MUSTER_OK;
}

void muster_terms_finish(struct muster_terms *terms)
{
    if (terms != NULL) {
        free(terms->parts);
        free(terms->members);
        free(terms->sets);
        free(terms->table);
        *terms = (struct muster_terms){0};
    }
}

uint32_t muster_terms_leaf(uint32_t rank)
{
    return rank + 1;
}

static muster_status join(struct muster_terms *terms, uint32_t left, uint32_t right, uint32_t sum)
{
    const uint64_t *one = &terms->sets[left * terms->words];
    const uint64_t *other = &terms->sets[right * terms->words];
    uint64_t *both = &terms->sets[sum * terms->words];
    for (size_t word = 0; word < terms->words; word++) {
        uint64_t twice = one[word] & other[word];
        if (twice != 0) {
            return muster_error_set(MUSTER_INVALID, "rank %zu is counted twice",
                                    word * 64 + (size_t)__builtin_ctzll(twice));
        }
        both[word] = one[word] | other[word];
    }
    return MUSTER_OK;
}

muster_status muster_terms_add(struct muster_terms *terms, uint32_t left, uint32_t right,
                               uint32_t *ret_term)
{
    uint32_t smaller = left < right ? left : right;
    uint32_t larger = left < right ? right : left;
    size_t slot = 0;
    uint32_t term = find(terms, smaller, larger, &slot);
    if (term == 0) {
        if (terms->used == terms->capacity) {
            TRY(grow(terms, 2 * terms->capacity));
            (void)find(terms, smaller, larger, &slot);
        }
        term = (uint32_t)terms->used;
        TRY(join(terms, smaller, larger, term));
        terms->parts[term][0] = smaller;
        terms->parts[term][1] = larger;
        terms->members[term] = terms->members[smaller] + terms->members[larger];
        terms->table[slot] = term;
        terms->used++;
    }
    *ret_term = term;
    return MUSTER_OK;
}

/* Of 2^level contributors from number first on. */
static muster_status canonical(struct muster_terms *terms, const uint32_t *contributors,
                               uint32_t first, unsigned level, uint32_t *ret_term)
{
    if (level == 0) {
        *ret_term = muster_terms_leaf(contributors[first]);
        return MUSTER_OK;
    }
    uint32_t half = UINT32_C(1) << (level - 1);
    uint32_t lower = 0;
    TRY(canonical(terms, contributors, first, level - 1, &lower));
    if (terms->ranks - first <= half) {
        *ret_term = lower;
        return MUSTER_OK;
    }
    uint32_t upper = 0;
    TRY(canonical(terms, contributors, first + half, level - 1, &upper));
    return muster_terms_add(terms, lower, upper, ret_term);
}

muster_status muster_terms_canonical(struct muster_terms *terms, const uint32_t *contributors,
                                     uint32_t *ret_term)
{
    unsigned level = 0;
    while ((terms->ranks - 1) >> level != 0) {
        level++;
    }
    return canonical(terms, contributors, 0, level, ret_term);
}

bool muster_terms_is_full(const struct muster_terms *terms, uint32_t term)
{
    return term != MUSTER_TERM_NONE && terms->members[term] == terms->ranks;
}
