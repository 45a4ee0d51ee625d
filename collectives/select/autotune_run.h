/*
 * An autotune run: it finds out which of several algorithms does one class of calls fastest, by
 * measuring the first calls of the class.
 *
 * The candidates are the algorithms that are predicted to be fast. They are measured in rounds. In
 * a round the candidates take turns, some calls in a row each. Then the members exchange their
 * measured times, the slower half of the candidates is dropped, and the others get twice as many
 * calls in the next round. These are more turns, so that a disturbance from outside falls on all
 * candidates alike. The run ends when one candidate is left, or when another round would cost more
 * time than it can save. Where calls take long, the first round has one call of each candidate.
 * Members that make the same calls and see the same exchanged times reach the same decision: it
 * depends on nothing else.
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
    MUSTER_AUTOTUNE_CALLS_MAX = 32, /* in one round, of all candidates together */
    MUSTER_AUTOTUNE_ROUNDS_MAX = 5,
    MUSTER_AUTOTUNE_VALUES_MAX = 2 * MUSTER_AUTOTUNE_CALLS_MAX,
};

struct muster_autotune_run {
    size_t algorithms[MUSTER_AUTOTUNE_ALGORITHMS_MAX]; /* the candidates that are left */
    size_t predicted;    /* the algorithm with the lowest predicted time: kept unless another one
                            is clearly faster */
    uint32_t count;      /* of candidates */
    uint32_t calls_each; /* calls of each candidate in this round */
    uint32_t calls_made; /* in this round so far, of all candidates */
    double excess_us;    /* spent so far beyond what the fastest candidate would have taken */
    double spent_us;     /* in all calls so far */
    float measured_us[MUSTER_AUTOTUNE_CALLS_MAX]; /* of this round's calls, by this member */
};

/* Chooses the candidates for this plan: the predicted algorithm, and others that are predicted to
 * be not much slower, or that cost little to try. All members that agree on the plan (its rank and
 * in_place are ignored) and on the model get the same. With a count of 1 there is nothing to try.
 */
MUSTER_CHECKED muster_status muster_autotune_run_init(struct muster_autotune_run *ret_run,
                                                      size_t predicted,
                                                      const struct muster_plan *plan,
                                                      size_t element_size_bytes,
                                                      const struct muster_cost_model *model);

/* Begins with the given candidates, [count] from 1 to MUSTER_AUTOTUNE_ALGORITHMS_MAX. The first is
 * the predicted one, predicted_us is its predicted time. */
void muster_autotune_run_begin(struct muster_autotune_run *ret_run, const size_t *algorithms,
                               uint32_t count, double predicted_us);

/* The round's calls are all made: the members must exchange their times before the next call. */
bool muster_autotune_run_is_round_over(const struct muster_autotune_run *run);

/* The algorithm of the next call; not when the round is over. */
size_t muster_autotune_run_next(const struct muster_autotune_run *run);

/* That call has succeeded, and took this member so long. */
void muster_autotune_run_record(struct muster_autotune_run *run, double measured_us);

/* What this member contributes to the tuning exchange when the round is over. Returns the number of
 * values. The exchange is an elementwise maximum over the members. */
uint32_t muster_autotune_run_values(const struct muster_autotune_run *run,
                                    float ret_values[MUSTER_AUTOTUNE_VALUES_MAX]);

/* Takes the exchanged values into account. True: the run is over, and has decided. False: there is
 * another round. To be called in the default floating-point environment. */
bool muster_autotune_run_decide(struct muster_autotune_run *run,
                                const float exchanged[MUSTER_AUTOTUNE_VALUES_MAX],
                                size_t *ret_algorithm);

#endif
