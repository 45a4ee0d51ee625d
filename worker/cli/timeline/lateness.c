/* muster timeline: which rank came last to the operations that carried tensors. */
#include "worker/cli/timeline/parsed_timeline.h"

#include "worker/base/cleanup.h"
#include "worker/base/statistics.h"

#include <stdlib.h>

/* The time that an operation was on the wire of a rank. */
struct carried {
    uint64_t sequence;
    uint32_t context;
    int64_t lasted_ns;
};

struct carried_list {
    struct carried *operations; /* owned [count], sorted, each once */
    size_t count;
};

static int by_operation(const void *one, const void *other)
{
    const struct carried *left = one;
    const struct carried *right = other;
    if (left->context != right->context) {
        return left->context < right->context ? -1 : 1;
    }
    return (left->sequence > right->sequence) - (left->sequence < right->sequence);
}

/* All tensors of an operation have the same time. False: no memory. */
static bool list_operations(const struct muster_parsed_timeline *timeline,
                            struct carried_list *ret_list)
{
    struct carried *operations = calloc(timeline->event_count + 1, sizeof *operations);
    size_t count = 0;
    for (size_t i = 0; operations != NULL && i < timeline->event_count; i++) {
        const struct muster_parsed_event *event = &timeline->events[i];
        if (event->stage == MUSTER_TIMELINE_TENSOR_ON_WIRE && event->sequence != 0) {
            operations[count++] = (struct carried){event->sequence, event->context,
                                                   event->span.end_ns - event->span.start_ns};
        }
    }
    if (count > 0) {
        qsort(operations, count, sizeof *operations, by_operation);
    }
    size_t different = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || by_operation(&operations[i - 1], &operations[i]) != 0) {
            operations[different++] = operations[i];
        }
    }
    *ret_list = (struct carried_list){operations, different};
    return operations != NULL;
}

/* The shortest and the longest time of an operation, and whose the shortest is. False: a rank does
 * not have it. */
static bool find_last(const struct carried_list *lists, size_t count,
                      const struct carried *operation, size_t *ret_last, double *ret_late_us)
{
    int64_t shortest_ns = INT64_MAX;
    int64_t longest_ns = 0;
    for (size_t i = 0; i < count; i++) {
        const struct carried *own =
            lists[i].count > 0
                ? bsearch(operation, lists[i].operations, lists[i].count, sizeof *own, by_operation)
                : NULL;
        if (own == NULL) {
            return false;
        }
        *ret_last = own->lasted_ns < shortest_ns ? i : *ret_last;
        shortest_ns = own->lasted_ns < shortest_ns ? own->lasted_ns : shortest_ns;
        longest_ns = own->lasted_ns > longest_ns ? own->lasted_ns : longest_ns;
    }
    *ret_late_us = (double)(longest_ns - shortest_ns) / 1000;
    return true;
}

/* `late_us` of a rank are collected in its own part of `late`, which has room for all operations.
 */
static void compare(const struct carried_list *lists, size_t count, double *late,
                    struct muster_timeline_lateness *ret_lateness)
{
    size_t most = lists[0].count;
    size_t operations = 0;
    for (size_t i = 0; i < most; i++) {
        size_t last = 0;
        double late_us = 0;
        if (find_last(lists, count, &lists[0].operations[i], &last, &late_us)) {
            operations++;
            late[last * most + ret_lateness[last].last++] = late_us;
        }
    }
    for (size_t i = 0; i < count; i++) {
        ret_lateness[i].operations = operations;
        if (ret_lateness[i].last > 0) {
            ret_lateness[i].late_us =
                muster_statistics_median_low(late + i * most, ret_lateness[i].last);
        }
    }
}

muster_status muster_timeline_compare(const struct muster_parsed_timeline *timelines, size_t count,
                                      struct muster_timeline_lateness *ret_lateness)
{
    AUTO_FREE struct carried_list *lists = calloc(count, sizeof *lists);
    bool good = lists != NULL;
    for (size_t i = 0; good && i < count; i++) {
        ret_lateness[i] = (struct muster_timeline_lateness){.last = 0};
        good = list_operations(&timelines[i], &lists[i]);
    }
    AUTO_FREE double *late = good ? calloc(count * (lists[0].count + 1), sizeof *late) : NULL;
    if (late != NULL) {
        compare(lists, count, late, ret_lateness);
    }
    for (size_t i = 0; lists != NULL && i < count; i++) {
        free(lists[i].operations);
    }
    return late != NULL ? MUSTER_OK
                        : muster_error_set(MUSTER_FATAL, "no memory for %zu timelines", count);
}
