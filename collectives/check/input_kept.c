/* Proves that a schedule keeps its input: what a step writes to OUTPUT is a part of the result. */
#include <inttypes.h>

#include "collectives/check/check_parts.h"
#include "worker/base/status.h"

/* True if the elements, of which the first one is output[begin], are the expected ones. */
static bool is_result(const struct muster_shape *shapes, uint32_t rank, uint64_t begin,
                      const struct muster_element_range *range, const struct muster_terms *terms)
{
    for (uint64_t done = 0; done < range->count;) {
        struct muster_expected expected = muster_shape_expected(shapes, rank, begin + done);
        bool right = expected.reduced ? muster_terms_is_full(terms, range->term)
                                      : range->term == muster_terms_leaf(expected.rank);
        if (!right || range->origin + done != expected.origin) {
            return false;
        }
        done += expected.count;
    }
    return true;
}

static muster_status see_step(void *user, const struct muster_walk_step *where,
                              const struct muster_element_ranges *ranges,
                              const struct muster_terms *terms)
{
    const struct muster_shape *shapes = user;
    const struct muster_step *step = where->step;
    if (step->kind == MUSTER_STEP_SEND || step->target != MUSTER_OUTPUT) {
        return MUSTER_OK;
    }
    for (size_t i = 0; i < ranges->used; i++) {
        const struct muster_element_range *range = &ranges->items[i];
        uint64_t begin = step->at + range->begin;
        if (!is_result(shapes, where->rank, begin, range, terms)) {
            return muster_error_set(MUSTER_INVALID,
                                    "does not keep the input: writes output[%" PRIu64
                                    "], which is not a result yet",
                                    begin);
        }
    }
    return MUSTER_OK;
}

static muster_status see_output(void *user, uint32_t rank,
                                const struct muster_element_ranges *ranges,
                                const struct muster_terms *terms)
{
    (void)user;
    (void)rank;
    (void)ranges;
    (void)terms;
    return MUSTER_OK;
}

struct muster_values_observer muster_input_kept_observer(const struct muster_shape *shapes)
{
    /* The observer only reads them. */
    return (struct muster_values_observer){
        .user = (void *)shapes, .on_step = see_step, .on_output = see_output};
}
