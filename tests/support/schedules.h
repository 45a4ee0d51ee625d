/* For tests: the schedules of all ranks of one call. */
#ifndef MUSTER_TESTS_SUPPORT_SCHEDULES_H
#define MUSTER_TESTS_SUPPORT_SCHEDULES_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/check/check.h"
#include "tests/support/blocks.h"

/* One call on all ranks. */
struct test_job {
    size_t algorithm;
    uint32_t ranks;
    bool in_place;
    unsigned promises;                 /* to be checked: those of the plan */
    struct muster_plan *plans;         /* [ranks] */
    struct muster_shape *shapes;       /* [ranks] */
    struct muster_schedule *schedules; /* [ranks] */
    struct test_blocks *blocks;        /* [ranks] */
};

/* Generates every rank's schedule; plan->rank is ignored. Blocks have different sizes, derived from
 * plan->count, if the collective needs that, or if it allows that and `uneven` is true. Prints an
 * error and aborts. */
struct test_job test_job_create(size_t algorithm, const struct muster_plan *plan, bool uneven);
void test_job_finish(struct test_job *job);

/* The same schedules, to be changed. */
struct muster_schedule *test_copy_all(const struct muster_schedule *schedules, uint32_t ranks);
void test_finish_all(struct muster_schedule *schedules, uint32_t ranks);

/* The checker's verdict on these schedules of the job. Aborts if there is no memory. */
struct muster_check_result test_check(const struct test_job *job,
                                      const struct muster_schedule *schedules);

/* Checks the job's own schedules. Prints the verdict and the call if they are not proven. */
struct muster_check_result test_prove(const struct test_job *job);

/* A plan for this row of the table, with the root and the count if its collective has them. */
struct muster_plan test_plan(size_t algorithm, const struct muster_topology *topology,
                             uint64_t count, uint32_t root);

/* True if the algorithm fits the plan. */
bool test_fits(size_t algorithm, const struct muster_plan *plan);

/* Topologies; abort if they are impossible. A host of size 0 ends the list of `hosts` sizes. */
struct muster_topology test_topology(uint32_t hosts, const uint32_t *sizes);
struct muster_topology test_topology_even(uint32_t ranks, uint32_t hosts);

/* hosts_min to hosts_max hosts of 1 to size_max ranks each. */
struct muster_topology test_topology_random(uint32_t hosts_min, uint32_t hosts_max,
                                            uint32_t size_max, uint64_t *random);

/* Cuts the hosts into racks at random, each of one host or more. */
void test_racks(struct muster_topology *topology, uint64_t *random);

/* The same numbers from the same seed on every machine; the state must not be 0. */
uint64_t test_random(uint64_t *state);
uint32_t test_random_below(uint64_t *state, uint32_t bound);

/* MUSTER_SEED from the environment, else one that differs from run to run. Prints it. */
uint64_t test_seed(void);

#endif
