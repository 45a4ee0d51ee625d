/* The tuning table: call classes, their decisions, export and import. */
#include "collectives/select/tuning.h"

#include <stdlib.h>

#include "worker/base/status.h"

void muster_tuning_clear(struct muster_tuning *tuning)
{
    for (uint32_t i = 0; i < tuning->count; i++) {
        free(tuning->classes[i].run);
    }
    *tuning = (struct muster_tuning){.count = 0};
}

static bool is_tuned(enum muster_collective collective)
{
    return muster_collective_synchronizes(collective) &&
           !muster_collective_needs_bounds(collective);
}

bool muster_tuning_suits(const struct muster_plan *plan)
{
    return is_tuned(plan->collective) && plan->topology->ranks > 1 && !plan->keep_input &&
           plan->device == NULL && (plan->count > 0 || plan->collective == MUSTER_BARRIER) &&
           plan->input_bounds == NULL && plan->output_bounds == NULL;
}

/* The half octave: the position of the highest set bit, and the bit below it. */
static uint16_t size_class_of(uint64_t count)
{
    if (count < 2) {
        return (uint16_t)count;
    }
    unsigned highest = 63 - (unsigned)__builtin_clzll(count);
    return (uint16_t)(2 * highest + (count >> (highest - 1) & 1));
}

static struct muster_tuned class_of(const struct muster_plan *plan, size_t element_size_bytes)
{
    return (struct muster_tuned){.collective = (uint8_t)plan->collective,
                                 .ordered = plan->reduction_order != NULL,
                                 .size_class = size_class_of(plan->count),
                                 .element_size_bytes = (uint32_t)element_size_bytes};
}

static bool is_same_class(const struct muster_tuned *one, const struct muster_tuned *other)
{
    return one->size_class == other->size_class && one->collective == other->collective &&
           one->element_size_bytes == other->element_size_bytes && one->ordered == other->ordered;
}

struct muster_call_class *muster_tuning_find(struct muster_tuning *tuning,
                                             const struct muster_plan *plan,
                                             size_t element_size_bytes)
{
    const struct muster_tuned wanted = class_of(plan, element_size_bytes);
    for (uint32_t i = 0; i < tuning->count; i++) {
        if (is_same_class(&tuning->classes[i].tuned, &wanted)) {
            return &tuning->classes[i];
        }
    }
    return NULL;
}

bool muster_tuning_is_full(const struct muster_tuning *tuning)
{
    return tuning->count == MUSTER_TUNED_MAX;
}

void muster_tuning_add(struct muster_tuning *tuning, const struct muster_plan *plan,
                       size_t element_size_bytes)
{
    tuning->classes[tuning->count++] = (struct muster_call_class){
        .tuned = class_of(plan, element_size_bytes), .count = plan->count};
}

void muster_tuning_decide(struct muster_call_class *call_class, size_t algorithm)
{
    call_class->tuned.algorithm = (uint32_t)algorithm;
    call_class->decided = true;
    free(call_class->run);
    call_class->run = NULL;
}

/* Export and import --------------------------------------------------------------------------- */

void muster_tuning_export(const struct muster_tuning *tuning, struct muster_tuned_list *ret_list)
{
    struct muster_tuned_list list = {.count = 0};
    for (uint32_t i = 0; i < tuning->count; i++) {
        if (tuning->classes[i].decided) {
            list.items[list.count++] = tuning->classes[i].tuned;
        }
    }
    *ret_list = list;
}

void muster_tuning_import(struct muster_tuning *tuning, const struct muster_tuned_list *list)
{
    muster_tuning_clear(tuning);
    for (uint32_t i = 0; i < list->count; i++) {
        tuning->classes[tuning->count++] =
            (struct muster_call_class){.tuned = list->items[i], .decided = true};
    }
}

static muster_status check_one(const struct muster_tuned *tuned)
{
    if (tuned->collective >= MUSTER_COLLECTIVE_END ||
        !is_tuned((enum muster_collective)tuned->collective) || tuned->ordered > 1 ||
        tuned->element_size_bytes == 0 || tuned->size_class >= 2 * 64) {
        return muster_error_set(MUSTER_INVALID,
                                "tuned: calls of collective %u with elements of %u bytes and "
                                "size class %u are never tuned",
                                tuned->collective, tuned->element_size_bytes, tuned->size_class);
    }
    if (tuned->algorithm >= muster_algorithm_count ||
        muster_algorithms[tuned->algorithm].collective !=
            (enum muster_collective)tuned->collective) {
        return muster_error_set(MUSTER_INVALID, "tuned: %s has no algorithm number %u",
                                muster_collective_name((enum muster_collective)tuned->collective),
                                tuned->algorithm);
    }
    return MUSTER_OK;
}

muster_status muster_tuned_check(const struct muster_tuned_list *list)
{
    if (list->count > MUSTER_TUNED_MAX) {
        return muster_error_set(MUSTER_INVALID, "tuned: %u items, at most %d", list->count,
                                MUSTER_TUNED_MAX);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        TRY(check_one(&list->items[i]));
        for (uint32_t j = 0; j < i; j++) {
            if (is_same_class(&list->items[i], &list->items[j])) {
                return muster_error_set(MUSTER_INVALID, "tuned: two items of one call class");
            }
        }
    }
    return MUSTER_OK;
}
