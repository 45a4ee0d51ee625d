/*
 * A trial: which of several algorithms does one kind of call fastest, found by its first calls.
 *
 * What is predicted to be fast is tried, in rounds. In a round the algorithms take turns, some
 * calls at a time; then the members tell each other what every call took them, the slower half
 * goes, and the others get twice as many calls, in more turns, so that what goes on beside them
 * meets all alike, until one is left or what is lost with those that are slower than the fastest is
 * no longer worth it. Calls that take long begin with one call each. Members that make the same
 * calls and hear the same times come to the same verdict: nothing here depends on anything else.
 *
 * After A. Faraj, X. Yuan, D. Lowenthal: STAR-MPI: self tuned adaptive routines for MPI collective
 * operations, ICS 2006; the rounds are the sequential halving of Z. Karnin, T. Koren, O. Somekh:
 * Almost optimal exploration in multi-armed bandits, ICML 2013. Pure.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_AUTOTUNE_RUN_H
#define MUSTER_COLLECTIVES_SELECT_AUTOTUNE_RUN_H

#include "collectives/select/cost.h"

enum {
    MUSTER_AUTOTUNE_ALGORITHMS_MAX = 8,
    MUSTER_AUTOTUNE_CALLS_MAX = 32, /* of a round, of all algorithms together */
    MUSTER_AUTOTUNE_ROUNDS_MAX = 5,
    MUSTER_AUTOTUNE_WORDS_MAX = 2 * MUSTER_AUTOTUNE_CALLS_MAX,
};

struct muster_autotune_run {
    size_t algorithms[MUSTER_AUTOTUNE_ALGORITHMS_MAX]; /* that are still in question */
    size_t predicted;                                  /* the one that is taken in case of doubt */
    uint32_t count;                                    /* of algorithms */
    uint32_t calls;                                    /* that each has in this round */
    uint32_t made;                                     /* in this round, so far, of all */
    double lost_us;                                    /* with those that are slower */
    double spent_us;                                   /* in all */
    float taken_us[MUSTER_AUTOTUNE_CALLS_MAX];         /* by this member; of those calls */
};

/* Chooses what to try, for this plan: the predicted algorithm, and others that are predicted to be
 * not much slower, or that cost little to try. All members that agree on the plan (its rank and
 * in_place are ignored) and on the model get the same. With one algorithm there is nothing to try:
 * count is 1 then. */
MUSTER_CHECKED muster_status muster_autotune_run_init(struct muster_autotune_run *ret_trial,
                                                      size_t predicted,
                                                      const struct muster_plan *plan,
                                                      size_t element_size_bytes,
                                                      const struct muster_cost_model *model);

/* With these, [count] from 1 to MUSTER_AUTOTUNE_ALGORITHMS_MAX; the first is the predicted one,
 * which is said to take so long. */
void muster_autotune_run_begin(struct muster_autotune_run *ret_trial, const size_t *algorithms,
                               uint32_t count, double predicted_us);

/* The round is over: the members have to agree before the next call. */
bool muster_autotune_run_is_due(const struct muster_autotune_run *trial);

/* What the next call runs with; not when it is due. */
size_t muster_autotune_run_next(const struct muster_autotune_run *trial);

/* That call is done, and took this member so long. */
void muster_autotune_run_note(struct muster_autotune_run *trial, double taken_us);

/* What this member says when it is due: so many words are to be made the largest of all members'.
 */
uint32_t muster_autotune_run_say(const struct muster_autotune_run *trial,
                                 float ret_said[MUSTER_AUTOTUNE_WORDS_MAX]);

/* What came out of it. True: the verdict; false: there is another round. In the default
 * floating-point environment. */
bool muster_autotune_run_judge(struct muster_autotune_run *trial,
                               const float heard[MUSTER_AUTOTUNE_WORDS_MAX], size_t *ret_algorithm);

#endif
