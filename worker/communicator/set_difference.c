/* Finds in what two lists of members differ. */
#include "worker/communicator/set_difference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"

static int compare_ranks(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static uint32_t *sort(const struct muster_named_list *list)
{
    uint32_t *sorted = calloc(list->count + 1, sizeof *sorted);
    if (sorted != NULL && list->count > 0) {
        memcpy(sorted, list->members, list->count * sizeof *sorted);
        qsort(sorted, list->count, sizeof *sorted, compare_ranks);
    }
    return sorted;
}

static bool describe_missing(const struct muster_named_list *has,
                             const struct muster_named_list *lacks, uint32_t rank, char *ret_text,
                             size_t size)
{
    uint32_t low = has->owner < lacks->owner ? has->owner : lacks->owner;
    uint32_t high = has->owner < lacks->owner ? lacks->owner : has->owner;
    (void)snprintf(ret_text, size,
                   "ranks %u and %u have different lists: rank %u is in that of rank %u (%zu "
                   "members), not in that of rank %u (%zu members)",
                   low, high, rank, has->owner, has->count, lacks->owner, lacks->count);
    return true;
}

static bool describe_order(const struct muster_named_list *one,
                           const struct muster_named_list *other, char *ret_text, size_t size)
{
    size_t place = 0;
    while (place < one->count && one->members[place] == other->members[place]) {
        place++;
    }
    if (place == one->count) {
        return false;
    }
    const struct muster_named_list *low = one->owner < other->owner ? one : other;
    const struct muster_named_list *high = low == one ? other : one;
    (void)snprintf(ret_text, size,
                   "ranks %u and %u have the same %zu members in different orders: place %zu is "
                   "rank %u at rank %u, and rank %u at rank %u",
                   low->owner, high->owner, one->count, place, low->members[place], low->owner,
                   high->members[place], high->owner);
    return true;
}

bool muster_set_difference(const struct muster_named_list *one,
                           const struct muster_named_list *other, char *ret_text, size_t size)
{
    AUTO_FREE uint32_t *a = sort(one);
    AUTO_FREE uint32_t *b = sort(other);
    size_t i = 0;
    if (a == NULL || b == NULL) {
        return false;
    }
    while (i < one->count && i < other->count && a[i] == b[i]) {
        i++;
    }
    if (i == one->count && i == other->count) {
        return describe_order(one, other, ret_text, size);
    }
    bool in_one = i < one->count && (i == other->count || a[i] < b[i]);
    return in_one ? describe_missing(one, other, a[i], ret_text, size)
                  : describe_missing(other, one, b[i], ret_text, size);
}
