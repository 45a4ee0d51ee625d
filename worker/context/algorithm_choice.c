/* Which algorithm the calls of a context run with, cached by size class. */
#include "worker/context/algorithm_choice.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

enum { DIGITS = 4 }; /* binary ones, of a count */

void muster_choices_clear(struct muster_choices *choices)
{
    choices->made_count = 0;
}

bool muster_choices_has_override(const struct muster_choices *choices,
                                 enum muster_collective collective)
{
    return choices->override.by_collective[collective].is_set;
}

/* The part of the plan that is the same on all ranks, so that they choose alike. In an alltoallv
 * each rank has its own sizes, so that only the number of messages counts. zeros is [ranks + 1]. */
static struct muster_plan agreed_plan(const struct muster_plan *plan, const uint64_t *zeros)
{
    struct muster_plan agreed = *plan;
    agreed.in_place = plan->keep_input; /* then it costs something; on each rank it may differ */
    if (plan->collective == MUSTER_ALLTOALLV) {
        agreed.input_bounds = zeros;
        agreed.output_bounds = zeros;
    }
    return agreed;
}

/* Rounded up, so that an algorithm which fits the result fits the count: shared memory has bounds.
 */
static uint64_t rounded(uint64_t count)
{
    unsigned size = 64 - (unsigned)__builtin_clzll(count | 1);
    uint64_t unit = size > DIGITS ? UINT64_C(1) << (size - DIGITS) : 1;
    return count > UINT64_MAX - unit ? count : (count + unit - 1) / unit * unit;
}

static const struct muster_choice *find(const struct muster_choices *choices,
                                        const struct muster_choice *wanted)
{
    uint32_t count =
        choices->made_count < MUSTER_CHOICES_MAX ? choices->made_count : MUSTER_CHOICES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_choice *cached = &choices->cached[i];
        if (cached->count == wanted->count && cached->collective == wanted->collective &&
            cached->root == wanted->root &&
            cached->element_size_bytes == wanted->element_size_bytes &&
            cached->ordered == wanted->ordered && cached->keeps == wanted->keeps &&
            cached->closes == wanted->closes && cached->on_device == wanted->on_device) {
            return cached;
        }
    }
    return NULL;
}

/* For the rounded count, once. */
static muster_status choose_for_class(struct muster_choices *choices,
                                      const struct muster_plan *plan, size_t element_size_bytes,
                                      size_t *ret_algorithm)
{
    struct muster_plan rough = *plan;
    rough.count = rounded(plan->count);
    struct muster_choice wanted = {.count = rough.count,
                                   .collective = plan->collective,
                                   .root = plan->root,
                                   .element_size_bytes = (uint32_t)element_size_bytes,
                                   .ordered = plan->reduction_order != NULL,
                                   .keeps = plan->keep_input,
                                   .closes = plan->finish_together,
                                   .on_device = plan->device != NULL};
    const struct muster_choice *cached = find(choices, &wanted);
    if (cached == NULL) {
        TRY(muster_select(&rough, element_size_bytes, &choices->model, &wanted.algorithm));
        cached = &choices->cached[choices->made_count % MUSTER_CHOICES_MAX];
        choices->cached[choices->made_count++ % MUSTER_CHOICES_MAX] = wanted;
    }
    *ret_algorithm = cached->algorithm;
    return MUSTER_OK;
}

/* Calls with blocks of different sizes have no size class: the algorithm is chosen for each list of
 * sizes. */
static muster_status choose_by_cost(struct muster_choices *choices, const struct muster_plan *plan,
                                    size_t element_size_bytes, size_t *ret_algorithm)
{
    char why[MUSTER_ERROR_MAX];
    size_t algorithm;
    bool listed = plan->input_bounds != NULL || plan->output_bounds != NULL;
    if (!listed && choose_for_class(choices, plan, element_size_bytes, &algorithm) == MUSTER_OK &&
        muster_algorithm_fits(algorithm, plan, why, sizeof why)) {
        *ret_algorithm = algorithm;
        return MUSTER_OK;
    }
    return muster_select(plan, element_size_bytes, &choices->model, ret_algorithm);
}

muster_status muster_choices_make(struct muster_choices *choices, const struct muster_plan *plan,
                                  size_t element_size_bytes, size_t *ret_algorithm)
{
    AUTO_FREE uint64_t *zeros = calloc((size_t)plan->topology->ranks + 1, sizeof *zeros);
    if (zeros == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to choose an algorithm");
    }
    const struct muster_plan agreed = agreed_plan(plan, zeros);
    if (choices->override.by_collective[plan->collective].is_set && plan->reduction_order != NULL) {
        /* A reproducible call that the override does not fit is refused, not run with another. */
        TRY(muster_plan_check(choices->override.by_collective[plan->collective].algorithm,
                              &agreed));
    }
    if (muster_algorithm_override_find(&choices->override, &agreed, ret_algorithm)) {
        return MUSTER_OK;
    }
    return choose_by_cost(choices, &agreed, element_size_bytes, ret_algorithm);
}
