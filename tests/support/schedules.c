/* Makes, copies and checks the schedules of all ranks; topologies and random numbers for them. */
#include "tests/support/schedules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/base/status.h"

static void must(muster_status status, const char *what)
{
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "%s: %s\n", what, muster_last_error());
        abort();
    }
}

static void *room(uint32_t ranks, size_t size)
{
    void *items = calloc(ranks, size);
    if (items == NULL) {
        abort();
    }
    return items;
}

struct test_job test_job_create(size_t algorithm, const struct muster_plan *plan, bool uneven)
{
    uint32_t ranks = plan->topology->ranks;
    struct test_job job = {.algorithm = algorithm,
                           .ranks = ranks,
                           .in_place = plan->in_place,
                           .promises = (plan->keep_input ? MUSTER_CHECK_INPUT_KEPT : 0U) |
                                       (plan->finish_together ? MUSTER_CHECK_FINISH_TOGETHER : 0U),
                           .plans = room(ranks, sizeof *job.plans),
                           .shapes = room(ranks, sizeof *job.shapes),
                           .schedules = room(ranks, sizeof *job.schedules),
                           .blocks = room(ranks, sizeof *job.blocks)};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        job.plans[rank] = *plan;
        job.plans[rank].rank = rank;
        job.shapes[rank] = muster_algorithm_shape(algorithm, &job.plans[rank]);
        if (uneven || muster_collective_needs_bounds(plan->collective)) {
            job.blocks[rank] = test_blocks_make(&job.shapes[rank]);
            job.plans[rank].input_bounds = job.shapes[rank].input_bounds;
            job.plans[rank].output_bounds = job.shapes[rank].output_bounds;
        }
        must(muster_schedule_generate(algorithm, &job.plans[rank], &job.schedules[rank]),
             "generate");
    }
    return job;
}

void test_job_finish(struct test_job *job)
{
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        test_blocks_finish(&job->blocks[rank]);
    }
    test_finish_all(job->schedules, job->ranks);
    free(job->plans);
    free(job->shapes);
    free(job->blocks);
}

void test_finish_all(struct muster_schedule *schedules, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        muster_schedule_finish(&schedules[rank]);
    }
    free(schedules);
}

struct muster_schedule *test_copy_all(const struct muster_schedule *schedules, uint32_t ranks)
{
    struct muster_schedule *copies = calloc(ranks, sizeof *copies);
    for (uint32_t rank = 0; copies != NULL && rank < ranks; rank++) {
        size_t size = schedules[rank].step_count * sizeof *schedules[rank].steps;
        copies[rank] = schedules[rank];
        copies[rank].steps = malloc(size + 1);
        if (copies[rank].steps == NULL) {
            abort();
        }
        if (size > 0) {
            memcpy(copies[rank].steps, schedules[rank].steps, size);
        }
    }
    return copies;
}

struct muster_check_result test_check(const struct test_job *job,
                                      const struct muster_schedule *schedules)
{
    struct muster_check_result result;
    must(muster_check_promises(job->shapes, schedules, job->ranks, job->in_place, job->promises,
                               &result),
         "check");
    return result;
}

struct muster_check_result test_prove(const struct test_job *job)
{
    struct muster_check_result result = test_check(job, job->schedules);
    if (!result.proven) {
        const struct muster_plan *plan = &job->plans[0];
        (void)fprintf(stderr, "%s %s, %" PRIu32 " ranks, %" PRIu32 " hosts {",
                      muster_collective_name(plan->collective),
                      muster_algorithms[job->algorithm % MUSTER_ALGORITHM_ROWS_MAX].name,
                      job->ranks, plan->topology->hosts);
        for (uint32_t host = 0; host < plan->topology->hosts; host++) {
            (void)fprintf(stderr, " %" PRIu32, plan->topology->host_sizes[host]);
        }
        (void)fprintf(stderr, " }, count %" PRIu64 ", root %" PRIu32 "%s%s%s%s: %s\n", plan->count,
                      plan->root, plan->in_place ? ", in place" : "",
                      plan->keep_input ? ", input kept" : "",
                      plan->finish_together ? ", finishing together" : "",
                      plan->input_bounds != NULL || plan->output_bounds != NULL ? ", uneven" : "",
                      result.why);
    }
    return result;
}

struct muster_plan test_plan(size_t algorithm, const struct muster_topology *topology,
                             uint64_t count, uint32_t root)
{
    enum muster_collective collective = muster_algorithms[algorithm].collective;
    struct muster_plan plan = {.collective = collective,
                               .topology = topology,
                               .root = muster_collective_has_root(collective) ? root : 0,
                               .count = collective == MUSTER_BARRIER ? 0 : count};
    return plan;
}

bool test_fits(size_t algorithm, const struct muster_plan *plan)
{
    char why[MUSTER_ERROR_MAX];
    return muster_algorithm_fits(algorithm, plan, why, sizeof why);
}

struct muster_topology test_topology(uint32_t hosts, const uint32_t *sizes)
{
    uint32_t count = 0;
    while (count < hosts && sizes[count] > 0) {
        count++;
    }
    struct muster_topology topology;
    must(muster_topology_init(count, sizes, &topology), "topology");
    return topology;
}

struct muster_topology test_topology_random(uint32_t hosts_min, uint32_t hosts_max,
                                            uint32_t size_max, uint64_t *random)
{
    uint32_t hosts = hosts_min + test_random_below(random, hosts_max - hosts_min + 1);
    uint32_t *sizes = room(hosts, sizeof *sizes);
    for (uint32_t host = 0; host < hosts; host++) {
        sizes[host] = 1 + test_random_below(random, size_max);
    }
    struct muster_topology topology = test_topology(hosts, sizes);
    free(sizes);
    return topology;
}

struct muster_topology test_topology_even(uint32_t ranks, uint32_t hosts)
{
    struct muster_topology topology;
    must(muster_topology_init_even(ranks, hosts, &topology), "topology");
    return topology;
}

/* xorshift64* (S. Vigna: An experimental exploration of Marsaglia's xorshift generators). */
uint64_t test_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

uint32_t test_random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)((test_random(state) >> 32) % bound);
}

uint64_t test_seed(void)
{
    const char *text = getenv("MUSTER_SEED");
    struct timespec now;
    (void)timespec_get(&now, TIME_UTC);
    /* The time in microseconds, so that two runs within one second have different seeds. */
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10)
                                 : (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    seed |= 1;
    (void)printf("MUSTER_SEED=%" PRIu64 "\n", seed);
    return seed;
}

void test_racks(struct muster_topology *topology, uint64_t *random)
{
    uint32_t *sizes = room(topology->hosts, sizeof *sizes);
    uint32_t racks = 1;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        racks += host > 0 && test_random_below(random, 3) == 0;
        sizes[racks - 1]++;
    }
    must(muster_topology_set_racks(topology, racks, sizes), "racks");
    free(sizes);
}
