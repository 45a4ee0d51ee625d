/* The simulator on random jobs of every algorithm: bounds, repeatability, faults. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/simulate/simulate.h"
#include "tests/support/schedules.h"

enum { ROUNDS = 1500, RANKS_MAX = 24, HOSTS_MAX = 6, ELEMENT_BYTES = 4 };

static uint64_t seed;

/* One random job and its options. */
struct draw {
    struct muster_topology topology;
    struct test_job job;
    struct muster_cost_model model;
    struct muster_fault faults[8];
    size_t fault_count;
};

static double between(uint64_t *state, double low, double high)
{
    return low * pow(high / low, (double)test_random_below(state, 1000) / 999);
}

static struct muster_cost_model random_model(uint64_t *state)
{
    struct muster_cost_model model = {
        .core = {.reduce_GBps = between(state, 0.5, 20), .copy_GBps = between(state, 0.5, 20)}};
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        struct muster_link_figures *link = &model.links[level];
        link->latency_us = between(state, 1, 1000);
        link->posting_us = link->latency_us / between(state, 2, 50);
        link->bandwidth_GBps = between(state, 0.05, 20);
        link->shared_GBps = link->bandwidth_GBps * between(state, 1, 10);
    }
    model.eager_bytes = test_random_below(state, 2) * (16 << 10);
    model.core.cores = test_random_below(state, 3);
    model.burst_bytes = test_random_below(state, 2) * test_random_below(state, 1 << 18);
    return model;
}

static struct draw draw(uint64_t *state)
{
    struct draw drawn = {.topology =
                             test_topology_random(1, HOSTS_MAX, RANKS_MAX / HOSTS_MAX, state)};
    test_racks(&drawn.topology, state);
    drawn.model = random_model(state);
    size_t algorithm;
    struct muster_plan plan;
    do {
        algorithm = test_random_below(state, (uint32_t)muster_algorithm_count);
        uint64_t count = test_random_below(state, 1U << test_random_below(state, 20));
        plan = test_plan(algorithm, &drawn.topology, count,
                         test_random_below(state, drawn.topology.ranks));
    } while (!test_fits(algorithm, &plan));
    drawn.job = test_job_create(algorithm, &plan, false);
    return drawn;
}

static void finish(struct draw *drawn)
{
    test_job_finish(&drawn->job);
    muster_topology_finish(&drawn->topology);
}

static const char *name_of(const struct draw *drawn)
{
    static char text[128];
    const struct muster_algorithm *row = &muster_algorithms[drawn->job.algorithm];
    (void)snprintf(text, sizeof text, "seed %llu: %s %s on %u ranks", (unsigned long long)seed,
                   muster_collective_name(row->collective), row->name, drawn->job.ranks);
    return text;
}

/* Adds the schedules in the order of ranks, beginning with rank `first`. Fills finish_us [ranks] if
 * it is not NULL. */
static struct muster_simulation_result simulate(const struct draw *drawn, uint32_t first,
                                                double *finish_us)
{
    const struct muster_simulation_options options = {.topology = &drawn->topology,
                                                      .model = &drawn->model,
                                                      .element_size_bytes = ELEMENT_BYTES,
                                                      .faults = drawn->faults,
                                                      .fault_count = drawn->fault_count};
    struct muster_simulation *simulation = NULL;
    struct muster_simulation_result result = {0};
    assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_OK);
    for (uint32_t i = 0; i < drawn->job.ranks; i++) {
        uint32_t rank = (first + i) % drawn->job.ranks;
        assert_int_equal(muster_simulation_add(simulation, &drawn->job.schedules[rank]), MUSTER_OK);
    }
    assert_int_equal(muster_simulation_run(simulation, &result), MUSTER_OK);
    for (uint32_t rank = 0; finish_us != NULL && rank < drawn->job.ranks; rank++) {
        finish_us[rank] = muster_simulation_finish_us(simulation, rank);
    }
    muster_simulation_destroy(simulation);
    return result;
}

static enum muster_link_level level_of(const struct muster_topology *topology, uint32_t rank,
                                       uint32_t peer)
{
    struct muster_position here = muster_topology_locate(topology, rank);
    struct muster_position there = muster_topology_locate(topology, peer);
    if (here.host == there.host) {
        return MUSTER_LEVEL_HOST;
    }
    return here.rack == there.rack ? MUSTER_LEVEL_RACK : MUSTER_LEVEL_WORLD;
}

/* A burst is as fast as a message within a host. */
static double rate_of_port(const struct muster_cost_model *model, enum muster_link_level level)
{
    double local_GBps = model->links[MUSTER_LEVEL_HOST].bandwidth_GBps;
    double own_GBps = model->links[level].bandwidth_GBps;
    return model->burst_bytes > 0 && local_GBps > own_GBps ? local_GBps : own_GBps;
}

/* How long a rank's ports and its core are busy, whichever is longest. */
static double bound_us(const struct draw *drawn, uint32_t rank)
{
    const struct muster_cost_model *model = &drawn->model;
    const struct muster_schedule *schedule = &drawn->job.schedules[rank];
    double out_us[MUSTER_LEVEL_COUNT] = {0};
    double in_us[MUSTER_LEVEL_COUNT] = {0};
    double core_us = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        double rate_GBps =
            step->kind == MUSTER_STEP_COPY ? model->core.copy_GBps : model->core.reduce_GBps;
        core_us += step->kind >= MUSTER_STEP_RECV_REDUCE
                       ? muster_cost_bytes_us(step->span.count, ELEMENT_BYTES, rate_GBps)
                       : 0;
        if (step->kind > MUSTER_STEP_RECV_REDUCE) {
            continue;
        }
        enum muster_link_level level = level_of(&drawn->topology, rank, step->peer);
        const struct muster_link_figures *link = &model->links[level];
        bool sends = step->kind == MUSTER_STEP_SEND;
        *(sends ? &out_us[level] : &in_us[level]) +=
            muster_cost_bytes_us(step->span.count, ELEMENT_BYTES, rate_of_port(model, level));
        core_us += link->posting_us;
    }
    double most_us = core_us;
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        most_us = out_us[level] > most_us ? out_us[level] : most_us;
        most_us = in_us[level] > most_us ? in_us[level] : most_us;
    }
    return most_us;
}

/* How long the uplink of a host is busy in the direction out of it. */
static double uplink_us(const struct draw *drawn, uint32_t host)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < drawn->topology.host_sizes[host]; i++) {
        uint32_t rank = drawn->topology.host_first[host] + i;
        const struct muster_schedule *schedule = &drawn->job.schedules[rank];
        for (size_t j = 0; j < schedule->step_count; j++) {
            const struct muster_step *step = &schedule->steps[j];
            if (step->kind == MUSTER_STEP_SEND &&
                level_of(&drawn->topology, rank, step->peer) != MUSTER_LEVEL_HOST) {
                elements += step->span.count;
            }
        }
    }
    return muster_cost_bytes_us(elements, ELEMENT_BYTES,
                                drawn->model.links[MUSTER_LEVEL_RACK].shared_GBps);
}

static void nothing_is_faster_than_ports_uplinks_and_cores(void **state)
{
    (void)state;
    uint64_t random = seed;
    for (int round = 0; round < ROUNDS; round++) {
        struct draw drawn = draw(&random);
        struct muster_simulation_result result = simulate(&drawn, 0, NULL);
        if (!result.finished) {
            fail_msg("%s: %s", name_of(&drawn), result.verdict);
        }
        for (uint32_t rank = 0; rank < drawn.job.ranks; rank++) {
            double least_us = bound_us(&drawn, rank);
            if (result.total_us < least_us * (1 - 1e-9)) {
                fail_msg("%s: rank %u needs %g us, simulated %g us", name_of(&drawn), rank,
                         least_us, result.total_us);
            }
        }
        for (uint32_t host = 0; host < drawn.topology.hosts; host++) {
            double least_us = uplink_us(&drawn, host);
            if (result.total_us < least_us * (1 - 1e-9)) {
                fail_msg("%s: the uplink of host %u needs %g us, simulated %g us", name_of(&drawn),
                         host, least_us, result.total_us);
            }
        }
        finish(&drawn);
    }
}

/* The bound is never above the simulated time, and often near to it. */
static void nothing_is_faster_than_the_simulators_own_bound(void **state)
{
    (void)state;
    uint64_t random = seed + 7;
    double ratios = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct draw drawn = draw(&random);
        drawn.model.core.one_machine = test_random_below(&random, 2);
        const struct muster_simulation_options options = {.topology = &drawn.topology,
                                                          .model = &drawn.model,
                                                          .element_size_bytes = ELEMENT_BYTES};
        struct muster_simulation *simulation = NULL;
        struct muster_simulation_result result = {0};
        double least_us = -1;
        assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_OK);
        for (uint32_t rank = 0; rank < drawn.job.ranks; rank++) {
            assert_int_equal(muster_simulation_add(simulation, &drawn.job.schedules[rank]),
                             MUSTER_OK);
        }
        assert_int_equal(muster_simulation_bound_us(simulation, &least_us), MUSTER_OK);
        assert_int_equal(muster_simulation_run(simulation, &result), MUSTER_OK);
        muster_simulation_destroy(simulation);
        if (!(least_us >= 0 && result.total_us >= least_us * (1 - 1e-9))) {
            fail_msg("%s: bound %g us, simulated %g us", name_of(&drawn), least_us,
                     result.total_us);
        }
        ratios += result.total_us > 0 ? least_us / result.total_us : 1;
        finish(&drawn);
    }
    assert_true(ratios > ROUNDS / 3.0); /* on average it is useful */
    print_message("bound / simulated: %.2f in the mean\n", ratios / ROUNDS);
}

static void all_sent_bytes_are_counted(void **state)
{
    (void)state;
    uint64_t random = seed + 1;
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct draw drawn = draw(&random);
        struct muster_simulation_result result = simulate(&drawn, 0, NULL);
        uint64_t elements = 0;
        uint64_t messages = 0;
        for (uint32_t rank = 0; rank < drawn.job.ranks; rank++) {
            struct muster_schedule_totals totals =
                muster_schedule_total(&drawn.job.schedules[rank]);
            elements += totals.elements_sent;
            messages += totals.messages_sent;
        }
        assert_int_equal(result.bytes[0] + result.bytes[1] + result.bytes[2],
                         elements * ELEMENT_BYTES);
        assert_int_equal(result.messages[0] + result.messages[1] + result.messages[2], messages);
        finish(&drawn);
    }
}

static void the_same_job_takes_the_same_time_whatever_the_order_of_schedules(void **state)
{
    (void)state;
    uint64_t random = seed + 2;
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct draw drawn = draw(&random);
        double once_us[RANKS_MAX];
        double again_us[RANKS_MAX];
        (void)simulate(&drawn, 0, once_us);
        (void)simulate(&drawn, 1 + test_random_below(&random, RANKS_MAX), again_us);
        assert_memory_equal(once_us, again_us, drawn.job.ranks * sizeof *once_us);
        finish(&drawn);
    }
}

static void scale(struct muster_cost_model *model, double slower, double narrower)
{
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        model->links[level].latency_us *= slower;
        model->links[level].posting_us *= slower;
        model->links[level].bandwidth_GBps /= narrower;
        model->links[level].shared_GBps /= narrower;
    }
}

/* So that nothing but ports and a rank's own core limits a message. */
static void make_ample(struct muster_cost_model *model)
{
    model->core.cores = 0;
    model->burst_bytes = 0;
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        model->links[level].shared_GBps *= 1000;
    }
}

/* Where several messages share a port or a core, a message that arrives earlier can delay another
 * that is more urgent (R. Graham: Bounds on multiprocessing timing anomalies, 1969), so a better
 * network may be slower for a single job. On average it is not: twice the latency or half the
 * bandwidth makes jobs one to two times as slow. */
static const double anomaly = 0.25;

static bool is_off(double once_us, double worse_us)
{
    return worse_us < once_us * anomaly || worse_us > once_us * 2 / anomaly + 1;
}

static void more_latency_or_less_bandwidth_takes_longer(void **state)
{
    (void)state;
    uint64_t random = seed + 3;
    double slower_log = 0;
    double narrower_log = 0;
    for (int round = 0; round < ROUNDS / 2; round++) {
        struct draw drawn = draw(&random);
        make_ample(&drawn.model);
        double once_us = simulate(&drawn, 0, NULL).total_us;
        struct muster_cost_model model = drawn.model;
        scale(&drawn.model, 2, 1);
        double slower_us = simulate(&drawn, 0, NULL).total_us;
        drawn.model = model;
        scale(&drawn.model, 1, 2);
        double narrower_us = simulate(&drawn, 0, NULL).total_us;
        if (is_off(once_us, slower_us) || is_off(once_us, narrower_us)) {
            fail_msg("%s: %g us; with twice the latency %g us, with half the bandwidth %g us",
                     name_of(&drawn), once_us, slower_us, narrower_us);
        }
        slower_log += log((slower_us + 1) / (once_us + 1));
        narrower_log += log((narrower_us + 1) / (once_us + 1));
        finish(&drawn);
    }
    assert_true(slower_log > 0 && slower_log < ROUNDS / 2 * log(2));
    assert_true(narrower_log > 0 && narrower_log < ROUNDS / 2 * log(2));
}

static void stragglers_delay(void **state)
{
    (void)state;
    uint64_t random = seed + 4;
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct draw drawn = draw(&random);
        make_ample(&drawn.model);
        double once_us = simulate(&drawn, 0, NULL).total_us;
        const struct muster_fault_mix mix = {
            .late_ranks = 1, .slow_ranks = 1, .slow_links = 2, .factor_max = 5, .at_us_max = 1000};
        drawn.fault_count =
            muster_faults_draw(test_random(&random), drawn.job.ranks, &mix, drawn.faults, 8);
        struct muster_simulation_result result = simulate(&drawn, 0, NULL);
        assert_true(result.finished);
        /* A late rank no longer delays others at shared resources, so an anomaly may be large here.
         */
        assert_true(result.total_us >= 0.5 * once_us);
        for (size_t i = 0; i < drawn.fault_count; i++) {
            const struct muster_fault *fault = &drawn.faults[i];
            bool busy = drawn.job.schedules[fault->rank].step_count > 0;
            assert_true(fault->kind != MUSTER_FAULT_LATE_RANK || !busy ||
                        result.total_us >= fault->at_us);
        }
        finish(&drawn);
    }
}

static bool uses_link(const struct draw *drawn, uint32_t rank, uint32_t peer)
{
    const struct muster_schedule *schedule = &drawn->job.schedules[rank];
    for (size_t i = 0; i < schedule->step_count; i++) {
        if (schedule->steps[i].kind <= MUSTER_STEP_RECV_REDUCE && schedule->steps[i].peer == peer) {
            return true;
        }
    }
    return false;
}

static void a_dead_link_ends_in_a_verdict_that_names_it(void **state)
{
    (void)state;
    uint64_t random = seed + 5;
    for (int round = 0; round < ROUNDS; round++) {
        struct draw drawn = draw(&random);
        const struct muster_fault_mix mix = {.dead_links = 1};
        drawn.fault_count =
            muster_faults_draw(test_random(&random), drawn.job.ranks, &mix, drawn.faults, 1);
        struct muster_simulation_result result = simulate(&drawn, 0, NULL);
        if (drawn.fault_count == 0 ||
            !uses_link(&drawn, drawn.faults[0].rank, drawn.faults[0].peer)) {
            assert_true(result.finished);
            finish(&drawn);
            continue;
        }
        uint32_t low = drawn.faults[0].rank;
        uint32_t high = drawn.faults[0].peer;
        char name[64];
        (void)snprintf(name, sizeof name, "link %u-%u is dead: rank ", low < high ? low : high,
                       low < high ? high : low);
        if (result.finished || strncmp(result.verdict, name, strlen(name)) != 0) {
            fail_msg("%s: expected %s, got \"%s\"", name_of(&drawn), name, result.verdict);
        }
        finish(&drawn);
    }
}

/* With any mixture of faults at any time, all ranks finish or there is a verdict. */
static void a_simulation_with_faults_ends(void **state)
{
    (void)state;
    uint64_t random = seed + 6;
    for (int round = 0; round < ROUNDS; round++) {
        struct draw drawn = draw(&random);
        const struct muster_fault_mix mix = {.late_ranks = test_random_below(&random, 2),
                                             .slow_links = test_random_below(&random, 2),
                                             .dead_ranks = test_random_below(&random, 3),
                                             .dead_links = test_random_below(&random, 3),
                                             .factor_max = 3,
                                             .at_us_max = between(&random, 1, 10000)};
        drawn.fault_count =
            muster_faults_draw(test_random(&random), drawn.job.ranks, &mix, drawn.faults, 8);
        struct muster_simulation_result result = simulate(&drawn, 0, NULL);
        if (result.finished != (result.verdict[0] == '\0') || result.beyond_limit ||
            strstr(result.verdict, "deadlock") != NULL) {
            fail_msg("%s: \"%s\"", name_of(&drawn), result.verdict);
        }
        finish(&drawn);
    }
}

static void the_same_seed_draws_the_same_faults(void **state)
{
    (void)state;
    const struct muster_fault_mix mix = {.late_ranks = 3,
                                         .slow_ranks = 2,
                                         .slow_links = 2,
                                         .dead_ranks = 1,
                                         .dead_links = 2,
                                         .factor_max = 4,
                                         .at_us_max = 100};
    struct muster_fault once[10] = {0};
    struct muster_fault again[10] = {0};
    assert_int_equal(muster_faults_draw(seed, 9, &mix, once, 10), 10);
    assert_int_equal(muster_faults_draw(seed, 9, &mix, again, 10), 10);
    assert_memory_equal(once, again, sizeof once);
    assert_int_equal(muster_faults_draw(seed, 1, &mix, once, 10), 6); /* no links on one rank */
    assert_int_equal(muster_faults_draw(seed, 9, &mix, once, 4), 4);
}

/* The schedules of a large job need not be in memory at the same time. */
static void four_thousand_ranks_are_simulated_quickly(void **state)
{
    (void)state;
    const uint32_t ranks = 4096;
    struct muster_topology topology = test_topology_even(ranks, ranks / 8);
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "halving_doubling", &algorithm),
                     MUSTER_OK);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1 << 20};
    double once_us = 0;
    assert_int_equal(
        muster_simulate_us(algorithm, &plan, 4, &muster_cost_model_default, 0, &once_us),
        MUSTER_OK);
    assert_true(once_us > 1000 && once_us < 1e6);
    double limited_us = 0;
    assert_int_equal(muster_simulate_us(algorithm, &plan, 4, &muster_cost_model_default,
                                        once_us / 10, &limited_us),
                     MUSTER_OK);
    assert_true(limited_us > once_us / 10);
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_faster_than_ports_uplinks_and_cores),
        cmocka_unit_test(nothing_is_faster_than_the_simulators_own_bound),
        cmocka_unit_test(all_sent_bytes_are_counted),
        cmocka_unit_test(the_same_job_takes_the_same_time_whatever_the_order_of_schedules),
        cmocka_unit_test(more_latency_or_less_bandwidth_takes_longer),
        cmocka_unit_test(stragglers_delay),
        cmocka_unit_test(a_dead_link_ends_in_a_verdict_that_names_it),
        cmocka_unit_test(a_simulation_with_faults_ends),
        cmocka_unit_test(the_same_seed_draws_the_same_faults),
        cmocka_unit_test(four_thousand_ranks_are_simulated_quickly),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
