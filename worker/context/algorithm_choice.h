/*
 * Which algorithm the calls of a context run with: the overridden one, or the cheapest by the cost
 * model. A choice by cost may take milliseconds, so it is made once for calls of about the same
 * size. Calls have about the same size if their counts are equal after rounding up to four binary
 * digits; such counts differ by an eighth at most.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_ALGORITHM_CHOICE_H
#define MUSTER_WORKER_CONTEXT_ALGORITHM_CHOICE_H

#include "collectives/select/algorithm_override.h"
#include "collectives/select/select.h"

enum { MUSTER_CHOICES_MAX = 128 };

struct muster_choice {
    uint64_t count; /* rounded up */
    uint32_t collective;
    uint32_t root;
    uint32_t element_size_bytes;
    uint32_t ordered;
    bool keeps, closes; /* promises: see muster_plan */
    bool on_device;     /* the plan has a device */
    size_t algorithm;
};

/* The override, and the newest choices by this cost model. */
struct muster_choices {
    struct muster_algorithm_override override;
    struct muster_cost_model model;
    struct muster_choice cached[MUSTER_CHOICES_MAX];
    uint32_t made_count; /* so far; cached[made_count % MUSTER_CHOICES_MAX] is the oldest */
};

/* Drops all choices: something that they depend on has changed. */
void muster_choices_clear(struct muster_choices *choices);

/* Whether the algorithm of this collective is overridden. */
bool muster_choices_has_override(const struct muster_choices *choices,
                                 enum muster_collective collective);

/* All ranks choose alike, as the choice depends only on what they agree on. MUSTER_INVALID: no
 * algorithm fits, or not the overridden one. */
MUSTER_CHECKED muster_status muster_choices_make(struct muster_choices *choices,
                                                 const struct muster_plan *plan,
                                                 size_t element_size_bytes, size_t *ret_algorithm);

#endif
