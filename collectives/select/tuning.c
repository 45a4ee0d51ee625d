#include "collectives/select/tuning.h"

#include <stdlib.h>

#include "worker/base/status.h"

void muster_tuning_clear(struct muster_tuning *tuning)
{
    for (uint32_t i = 0; i < tuning->count; i++) {
        free(tuning->kinds[i].trial);
    }
    *tuning = (struct muster_tuning){.count = 0};
}

/* Nobody can be through with them before all have come. */
static bool is_complete(enum muster_collective collective)
{
    switch (collective) {
    case MUSTER_ALLREDUCE:
    case MUSTER_REDUCE_SCATTER:
    case MUSTER_ALLGATHER:
    case MUSTER_ALLTOALL:
    case MUSTER_BARRIER:
        return true;
    default:
        return false;
    }
}

bool muster_tuning_suits(const struct muster_plan *plan)
{
    return is_complete(plan->collective) && plan->topology->ranks > 1 &&
           (plan->count > 0 || plan->collective == MUSTER_BARRIER) && plan->input_bounds == NULL &&
           plan->output_bounds == NULL;
}

/* Half an octave: the place of the highest binary digit, and the digit below it. */
static uint16_t size_class_of(uint64_t count)
{
    if (count < 2) {
        return (uint16_t)count;
    }
    unsigned place = 63 - (unsigned)__builtin_clzll(count);
    return (uint16_t)(2 * place + (count >> (place - 1) & 1));
}

static struct muster_tuned kind_of(const struct muster_plan *plan, size_t element_size_bytes)
{
    return (struct muster_tuned){.collective = (uint8_t)plan->collective,
                                 .ordered = plan->reduction_order != NULL,
                                 .size_class = size_class_of(plan->count),
                                 .element_size_bytes = (uint32_t)element_size_bytes};
}

static bool same_kind(const struct muster_tuned *one, const struct muster_tuned *other)
{
    return one->size_class == other->size_class && one->collective == other->collective &&
           one->element_size_bytes == other->element_size_bytes && one->ordered == other->ordered;
}

struct muster_size_class *muster_tuning_find(struct muster_tuning *tuning,
                                             const struct muster_plan *plan,
                                             size_t element_size_bytes)
{
    const struct muster_tuned wanted = kind_of(plan, element_size_bytes);
    for (uint32_t i = 0; i < tuning->count; i++) {
        if (same_kind(&tuning->kinds[i].tuned, &wanted)) {
            return &tuning->kinds[i];
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
    tuning->kinds[tuning->count++] = (struct muster_size_class){
        .tuned = kind_of(plan, element_size_bytes), .count = plan->count};
}

void muster_tuning_settle(struct muster_size_class *kind, size_t algorithm)
{
    kind->tuned.algorithm = (uint32_t)algorithm;
    kind->settled = true;
    free(kind->trial);
    kind->trial = NULL;
}

/* With others -----------------------------------------------------------------------------------
 */

void muster_tuning_export(const struct muster_tuning *tuning, struct muster_tuned_list *ret_list)
{
    struct muster_tuned_list list = {.count = 0};
    for (uint32_t i = 0; i < tuning->count; i++) {
        if (tuning->kinds[i].settled) {
            list.items[list.count++] = tuning->kinds[i].tuned;
        }
    }
    *ret_list = list;
}

void muster_tuning_import(struct muster_tuning *tuning, const struct muster_tuned_list *list)
{
    muster_tuning_clear(tuning);
    for (uint32_t i = 0; i < list->count; i++) {
        tuning->kinds[tuning->count++] =
            (struct muster_size_class){.tuned = list->items[i], .settled = true};
    }
}

static muster_status check_one(const struct muster_tuned *tuned)
{
    if (tuned->collective >= MUSTER_COLLECTIVE_END ||
        !is_complete((enum muster_collective)tuned->collective) || tuned->ordered > 1 ||
        tuned->element_size_bytes == 0 || tuned->size_class >= 2 * 64) {
        return muster_error_set(MUSTER_INVALID,
                                "tuned: no calls of collective %u with elements of %u bytes, "
                                "size class %u, are tuned",
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
        return muster_error_set(MUSTER_INVALID, "tuned: %u are more than %d", list->count,
                                MUSTER_TUNED_MAX);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        TRY(check_one(&list->items[i]));
        for (uint32_t j = 0; j < i; j++) {
            if (same_kind(&list->items[i], &list->items[j])) {
                return muster_error_set(MUSTER_INVALID, "tuned: two of one kind");
            }
        }
    }
    return MUSTER_OK;
}
