/* Radix sort from the lowest digit up (D. Knuth: The Art of Computer Programming, volume 3,
 * section 5.2.5), byte by byte. */
#include "collectives/check/sort.h"

#include <string.h>

enum { DIGIT_BITS = 8, DIGIT_VALUES = 1 << DIGIT_BITS, FEW = 32 };

static size_t digit_of(const struct muster_sort_item *item, unsigned shift)
{
    return (item->key >> shift) & (DIGIT_VALUES - 1);
}

/* For so few items that counting would take longer. */
static void insert(struct muster_sort_item *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct muster_sort_item item = items[i];
        size_t at = i;
        while (at > 0 && items[at - 1].key > item.key) {
            items[at] = items[at - 1];
            at--;
        }
        items[at] = item;
    }
}

static void sort_by_digit(const struct muster_sort_item *items, size_t count, unsigned shift,
                          struct muster_sort_item *ret_sorted)
{
    size_t next[DIGIT_VALUES + 1] = {0};
    for (size_t i = 0; i < count; i++) {
        next[digit_of(&items[i], shift) + 1]++;
    }
    for (size_t value = 0; value < DIGIT_VALUES; value++) {
        next[value + 1] += next[value];
    }
    for (size_t i = 0; i < count; i++) {
        ret_sorted[next[digit_of(&items[i], shift)]++] = items[i];
    }
}

void muster_sort(struct muster_sort_item *items, struct muster_sort_item *spare, size_t count)
{
    if (count <= FEW) {
        insert(items, count);
        return;
    }
    uint64_t differing = 0; /* the bits in which keys differ */
    for (size_t i = 1; i < count; i++) {
        differing |= items[i].key ^ items[0].key;
    }
    struct muster_sort_item *from = items;
    struct muster_sort_item *to = spare;
    for (unsigned shift = 0; shift < 64 && differing >> shift != 0; shift += DIGIT_BITS) {
        if ((differing >> shift & (DIGIT_VALUES - 1)) != 0) {
            sort_by_digit(from, count, shift, to);
            struct muster_sort_item *sorted = to;
            to = from;
            from = sorted;
        }
    }
    if (from != items) {
        memcpy(items, from, count * sizeof *items);
    }
}
