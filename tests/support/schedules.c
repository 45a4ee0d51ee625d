#include "tests/support/schedules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(muster_status status, const char *what)
{
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "%s: %s\n", what, muster_last_error());
        abort();
    }
}

struct muster_schedule *test_generate_all(size_t algorithm, const struct muster_plan *plan)
{
    uint32_t ranks = plan->topology->ranks;
    struct muster_schedule *schedules = calloc(ranks, sizeof *schedules);
    if (schedules == NULL) {
        abort();
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct muster_plan mine = *plan;
        mine.rank = rank;
        must(muster_schedule_generate(algorithm, &mine, &schedules[rank]), "generate");
    }
    return schedules;
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

struct muster_check_result test_check(const struct muster_schedule *schedules, uint32_t ranks)
{
    struct muster_check_result result;
    must(muster_check(schedules, ranks, &result), "check");
    return result;
}

struct muster_check_result test_prove(size_t algorithm, const struct muster_plan *plan)
{
    struct muster_schedule *schedules = test_generate_all(algorithm, plan);
    struct muster_check_result result = test_check(schedules, plan->topology->ranks);
    if (!result.proven) {
        (void)fprintf(stderr, "%s %s, %" PRIu32 " ranks, %" PRIu32 " hosts {",
                      muster_collective_name(plan->collective), muster_algorithms[algorithm].name,
                      plan->topology->ranks, plan->topology->hosts);
        for (uint32_t host = 0; host < plan->topology->hosts; host++) {
            (void)fprintf(stderr, " %" PRIu32, plan->topology->host_sizes[host]);
        }
        (void)fprintf(stderr, " }, count %" PRIu64 ", root %" PRIu32 ": %s\n", plan->count,
                      plan->root, result.why);
    }
    test_finish_all(schedules, plan->topology->ranks);
    return result;
}

struct muster_topology test_topology(uint32_t hosts, const uint32_t *sizes)
{
    struct muster_topology topology;
    must(muster_topology_init(hosts, sizes, &topology), "topology");
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
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    seed |= 1;
    (void)printf("MUSTER_SEED=%" PRIu64 "\n", seed);
    return seed;
}
