/* Terms: a hash table of sums, and the sets of ranks that they count. */
#include "collectives/check/terms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

static size_t slot_of(const struct muster_terms *terms, uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32) & (2 * terms->capacity - 1);
}

/* The term with these parts and its slot, or 0 and the free slot for it. */
static uint32_t find(const struct muster_terms *terms, uint32_t left, uint32_t right,
                     size_t *ret_slot)
{
    size_t slot = slot_of(terms, left, right);
    while (terms->table[slot] != 0) {
        const uint32_t *parts = terms->items[terms->table[slot]].parts;
        if (parts[0] == left && parts[1] == right) {
            break;
        }
        slot = (slot + 1) & (2 * terms->capacity - 1);
    }
    *ret_slot = slot;
    return terms->table[slot];
}

/* True if the block was reallocated. */
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

static muster_status no_memory(size_t count)
{
    return muster_error_set(MUSTER_FATAL, "check: no memory for %zu partial results", count);
}

static muster_status grow(struct muster_terms *terms, size_t capacity)
{
    if (capacity > UINT32_MAX / 2 ||
        !resize((void **)&terms->items, capacity, sizeof *terms->items) ||
        !resize((void **)&terms->table, 2 * capacity, sizeof *terms->table)) {
        return no_memory(capacity);
    }
    terms->capacity = capacity;
    memset(terms->table, 0, 2 * capacity * sizeof *terms->table);
    for (size_t term = 1 + (size_t)terms->ranks; term < terms->used; term++) {
        size_t slot = 0;
        (void)find(terms, terms->items[term].parts[0], terms->items[term].parts[1], &slot);
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
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): grow() has made them */
    terms.items[MUSTER_TERM_NONE] = (struct muster_term){0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        terms.items[muster_terms_leaf(rank)] = (struct muster_term){.members = 1, .first = rank};
    }
    *ret_terms = terms;
    return MUSTER_OK;
}

void muster_terms_finish(struct muster_terms *terms)
{
    if (terms != NULL) {
        free(terms->items);
        free(terms->sets);
        free(terms->table);
        *terms = (struct muster_terms){0};
    }
}

uint32_t muster_terms_leaf(uint32_t rank)
{
    return rank + 1;
}

/* The bits [from, to) of a set, as far as they are in this word. */
static uint64_t range_in_word(size_t word, uint64_t from, uint64_t to)
{
    uint64_t first = word * 64;
    uint64_t low = from > first ? from - first : 0;
    uint64_t high = to > first ? to - first : 0;
    if (high <= low || low >= 64) {
        return 0;
    }
    uint64_t below_high = high >= 64 ? UINT64_MAX : (UINT64_C(1) << high) - 1;
    return below_high & ~((UINT64_C(1) << low) - 1);
}

/* A word of the set of ranks that the term counts. */
static uint64_t set_word(const struct muster_terms *terms, const struct muster_term *term,
                         size_t word)
{
    if (term->first >= terms->ranks) {
        return terms->sets[(term->first - terms->ranks) * terms->words + word];
    }
    uint64_t end = (uint64_t)term->first + term->members;
    uint64_t wrapped = end > terms->ranks ? end - terms->ranks : 0;
    return range_in_word(word, term->first, end - wrapped) | range_in_word(word, 0, wrapped);
}

static muster_status counted_twice(size_t rank)
{
    return muster_error_set(MUSTER_INVALID, "rank %zu is counted twice", rank);
}

/* As a set of its own. */
static muster_status join_sets(struct muster_terms *terms, const struct muster_term *one,
                               const struct muster_term *other, uint32_t *ret_first)
{
    if (terms->set_count == terms->set_capacity) {
        size_t capacity = terms->set_capacity == 0 ? 64 : 2 * terms->set_capacity;
        if (capacity > UINT32_MAX / 2 ||
            !resize((void **)&terms->sets, capacity, terms->words * sizeof *terms->sets)) {
            return no_memory(capacity);
        }
        terms->set_capacity = capacity;
    }
    uint64_t *both = &terms->sets[terms->set_count * terms->words];
    for (size_t word = 0; word < terms->words; word++) {
        uint64_t left = set_word(terms, one, word);
        uint64_t right = set_word(terms, other, word);
        if ((left & right) != 0) {
            return counted_twice(word * 64 + (size_t)__builtin_ctzll(left & right));
        }
        both[word] = left | right;
    }
    *ret_first = terms->ranks + (uint32_t)terms->set_count++;
    return MUSTER_OK;
}

/* The ranks of both terms, which must not share any: consecutive ranks if possible, else a set. */
static muster_status join(struct muster_terms *terms, const struct muster_term *one,
                          const struct muster_term *other, uint32_t *ret_first)
{
    uint32_t ranks = terms->ranks;
    if (one->first >= ranks || other->first >= ranks) {
        return join_sets(terms, one, other, ret_first);
    }
    uint32_t ahead = (other->first + ranks - one->first) % ranks; /* from one to the other */
    uint32_t back = (one->first + ranks - other->first) % ranks;
    if (ahead < one->members || back < other->members) {
        return counted_twice(ahead < one->members ? other->first : one->first);
    }
    if (ahead == one->members || back == other->members) {
        *ret_first = ahead == one->members ? one->first : other->first;
        return MUSTER_OK;
    }
    return join_sets(terms, one, other, ret_first);
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
        const struct muster_term *one = &terms->items[smaller];
        const struct muster_term *other = &terms->items[larger];
        struct muster_term sum = {.parts = {smaller, larger},
                                  .members = one->members + other->members};
        TRY(join(terms, one, other, &sum.first));
        term = (uint32_t)terms->used++;
        terms->items[term] = sum;
        terms->table[slot] = term;
    }
    *ret_term = term;
    return MUSTER_OK;
}

/* The node of 2^level places from `first` on. */
static muster_status canonical(struct muster_terms *terms, const uint32_t *reduction_order,
                               uint32_t first, unsigned level, uint32_t *ret_term)
{
    if (level == 0) {
        *ret_term = muster_terms_leaf(reduction_order[first]);
        return MUSTER_OK;
    }
    uint32_t half = UINT32_C(1) << (level - 1);
    uint32_t lower = 0;
    TRY(canonical(terms, reduction_order, first, level - 1, &lower));
    if (terms->ranks - first <= half) {
        *ret_term = lower;
        return MUSTER_OK;
    }
    uint32_t upper = 0;
    TRY(canonical(terms, reduction_order, first + half, level - 1, &upper));
    return muster_terms_add(terms, lower, upper, ret_term);
}

muster_status muster_terms_canonical(struct muster_terms *terms, const uint32_t *reduction_order,
                                     uint32_t *ret_term)
{
    unsigned level = 0;
    while ((terms->ranks - 1) >> level != 0) {
        level++;
    }
    return canonical(terms, reduction_order, 0, level, ret_term);
}

uint32_t muster_terms_members(const struct muster_terms *terms, uint32_t term)
{
    return terms->items[term].members;
}

bool muster_terms_is_full(const struct muster_terms *terms, uint32_t term)
{
    return term != MUSTER_TERM_NONE && terms->items[term].members == terms->ranks;
}
