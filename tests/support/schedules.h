/* For tests: the schedules of all ranks of one call. */
#ifndef MUSTER_TESTS_SUPPORT_SCHEDULES_H
#define MUSTER_TESTS_SUPPORT_SCHEDULES_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/check.h"

/* Generates every rank's schedule; plan->rank is ignored. Aborts with the text on an error, which
 * no test that calls this expects. */
struct muster_schedule *test_generate_all(size_t algorithm, const struct muster_plan *plan);
void test_finish_all(struct muster_schedule *schedules, uint32_t ranks);

/* The same schedules, to be changed. */
struct muster_schedule *test_copy_all(const struct muster_schedule *schedules, uint32_t ranks);

/* The checker's verdict; aborts without memory. */
struct muster_check_result test_check(const struct muster_schedule *schedules, uint32_t ranks);

/* Generates and checks. Prints the verdict and the call if it is not proven. */
struct muster_check_result test_prove(size_t algorithm, const struct muster_plan *plan);

/* A topology; aborts if it is impossible. */
struct muster_topology test_topology(uint32_t hosts, const uint32_t *sizes);
struct muster_topology test_topology_even(uint32_t ranks, uint32_t hosts);

/* The same numbers from the same seed on every machine; the state must not be 0. */
uint64_t test_random(uint64_t *state);
uint32_t test_random_below(uint64_t *state, uint32_t bound);

/* MUSTER_SEED from the environment, else one that differs from run to run. Prints it. */
uint64_t test_seed(void);

#endif
