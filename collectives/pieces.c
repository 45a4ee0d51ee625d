#include "collectives/pieces.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"

void muster_pieces_finish(struct muster_pieces *pieces)
{
    free(pieces->items);
    *pieces = (struct muster_pieces){0};
}

void muster_pieces_clear(struct muster_pieces *pieces)
{
    pieces->used = 0;
}

static muster_status reserve(struct muster_pieces *pieces, size_t count)
{
    if (count <= pieces->capacity) {
        return MUSTER_OK;
    }
    size_t capacity = count < 8 ? 8 : 2 * count;
    struct muster_piece *items = realloc(pieces->items, capacity * sizeof *items);
    if (items == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu spans", capacity);
    }
    pieces->items = items;
    pieces->capacity = capacity;
    return MUSTER_OK;
}

static uint64_t end_of(const struct muster_piece *piece)
{
    return piece->begin + piece->count;
}

muster_status muster_pieces_append(struct muster_pieces *pieces, uint64_t count, uint64_t origin,
                                   uint32_t term)
{
    if (count == 0) {
        return MUSTER_OK;
    }
    struct muster_piece *last = pieces->used == 0 ? NULL : &pieces->items[pieces->used - 1];
    if (last != NULL && last->term == term &&
        (term == MUSTER_TERM_NONE || last->origin + last->count == origin)) {
        last->count += count;
        return MUSTER_OK;
    }
    uint64_t begin = last == NULL ? 0 : end_of(last);
    TRY(reserve(pieces, pieces->used + 1));
    pieces->items[pieces->used++] =
        (struct muster_piece){.begin = begin, .count = count, .origin = origin, .term = term};
    return MUSTER_OK;
}

/* Index of the piece that has this element. */
static size_t find(const struct muster_pieces *pieces, uint64_t element)
{
    size_t low = 0;
    size_t high = pieces->used;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pieces->items[middle].begin <= element) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Appends what of the piece lies within [begin, end). */
static muster_status append_within(struct muster_pieces *pieces, const struct muster_piece *piece,
                                   uint64_t begin, uint64_t end)
{
    uint64_t from = piece->begin > begin ? piece->begin : begin;
    uint64_t to = end_of(piece) < end ? end_of(piece) : end;
    return from >= to ? MUSTER_OK
                      : muster_pieces_append(pieces, to - from,
                                             piece->origin + (from - piece->begin), piece->term);
}

muster_status muster_pieces_read(const struct muster_pieces *pieces, uint64_t begin, uint64_t count,
                                 struct muster_pieces *ret_part)
{
    muster_pieces_clear(ret_part);
    if (count == 0) {
        return MUSTER_OK;
    }
    for (size_t i = find(pieces, begin); i < pieces->used && pieces->items[i].begin < begin + count;
         i++) {
        TRY(append_within(ret_part, &pieces->items[i], begin, begin + count));
    }
    return MUSTER_OK;
}

/* Puts `with` in the place of items [first, last]; it covers the same elements. */
static muster_status splice(struct muster_pieces *pieces, size_t first, size_t last,
                            const struct muster_pieces *with)
{
    uint64_t begin = pieces->items[first].begin;
    size_t rest = pieces->used - last - 1;
    TRY(reserve(pieces, first + with->used + rest));
    if (with->used != last - first + 1) { /* else the rest stays where it is */
        memmove(&pieces->items[first + with->used], &pieces->items[last + 1],
                rest * sizeof *pieces->items);
    }
    for (size_t i = 0; i < with->used; i++) {
        pieces->items[first + i] = with->items[i];
        pieces->items[first + i].begin += begin;
    }
    pieces->used = first + with->used + rest;
    return MUSTER_OK;
}

static muster_status assemble(const struct muster_pieces *pieces, size_t first, size_t last,
                              uint64_t begin, const struct muster_pieces *part,
                              struct muster_pieces *ret_whole)
{
    uint64_t end = begin + end_of(&part->items[part->used - 1]);
    for (size_t i = first; i <= last; i++) {
        TRY(append_within(ret_whole, &pieces->items[i], 0, begin));
    }
    for (size_t i = 0; i < part->used; i++) {
        TRY(muster_pieces_append(ret_whole, part->items[i].count, part->items[i].origin,
                                 part->items[i].term));
    }
    for (size_t i = first; i <= last; i++) {
        TRY(append_within(ret_whole, &pieces->items[i], end, UINT64_MAX));
    }
    return MUSTER_OK;
}

muster_status muster_pieces_write(struct muster_pieces *pieces, uint64_t begin,
                                  const struct muster_pieces *part)
{
    if (part->used == 0) {
        return MUSTER_OK;
    }
    uint64_t count = end_of(&part->items[part->used - 1]);
    /* The neighbours too: they may merge with what comes. */
    size_t first = find(pieces, begin);
    size_t last = find(pieces, begin + count - 1);
    first -= first > 0 ? 1 : 0;
    last += last + 1 < pieces->used ? 1 : 0;
    struct muster_pieces whole = {0};
    muster_status status = assemble(pieces, first, last, begin, part, &whole);
    if (status == MUSTER_OK) {
        status = splice(pieces, first, last, &whole);
    }
    muster_pieces_finish(&whole);
    return status;
}

muster_status muster_pieces_add(const struct muster_pieces *left, const struct muster_pieces *right,
                                struct muster_terms *terms, struct muster_pieces *ret_sum)
{
    muster_pieces_clear(ret_sum);
    uint64_t at = 0;
    for (size_t i = 0, j = 0; i < left->used && j < right->used;) {
        const struct muster_piece *one = &left->items[i];
        const struct muster_piece *other = &right->items[j];
        uint64_t origin = one->origin + (at - one->begin);
        uint64_t other_origin = other->origin + (at - other->begin);
        if (origin != other_origin) {
            return muster_error_set(MUSTER_INVALID,
                                    "reduces input element %" PRIu64 " with element %" PRIu64,
                                    origin, other_origin);
        }
        uint32_t sum = MUSTER_TERM_NONE;
        TRY(muster_terms_add(terms, one->term, other->term, &sum));
        uint64_t end = end_of(one) < end_of(other) ? end_of(one) : end_of(other);
        TRY(muster_pieces_append(ret_sum, end - at, origin, sum));
        i += end == end_of(one) ? 1 : 0;
        j += end == end_of(other) ? 1 : 0;
        at = end;
    }
    return MUSTER_OK;
}
