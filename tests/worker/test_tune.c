/* Link figures on their way through a job: measured when it begins, kept with it, taken up by those
 * that come after, and what selection goes by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"
#include "worker/session.h"

enum { SIZE = 4, TIMEOUT_MS = 20000 };

static struct test_service service;
static struct muster_figures seen[SIZE];

static int start_service(void **state)
{
    (void)state;
    return test_service_start(&service, NULL) ? 0 : -1;
}

static int stop_service(void **state)
{
    (void)state;
    return test_service_stop(&service) == 0 ? 0 : -1;
}

static struct crew crew_for(const char *job, crew_function function)
{
    return (struct crew){
        .url = service.url, .job = job, .count = SIZE, .hosts = 2, .function = function};
}

static void look(struct crew_member *member)
{
    double one = 1;
    double sum = 0;
    seen[member->index] = member->session->figures;
    MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &one, &sum, 1,
                                       MUSTER_FLOAT64, MUSTER_SUM, NULL));
    MEMBER_CHECK(member, sum == SIZE);
}

static void expect_alike(void)
{
    for (int i = 1; i < SIZE; i++) {
        assert_memory_equal(&seen[i].model, &seen[0].model, sizeof seen[0].model);
        assert_int_equal(seen[i].levels, seen[0].levels);
        assert_int_equal(seen[i].hosts, seen[0].hosts);
    }
}

/* The key of the hosts that a crew has. */
static uint32_t hosts_of_crew(void)
{
    struct muster_wire_host hosts[2] = {{.name = "host-a"}, {.name = "host-b"}};
    const struct muster_join_response response = {.host_count = 2, .hosts = hosts};
    return muster_tune_hosts(&response);
}

/* The job has what its members have, under both keys. */
static void look_and_compare(struct crew_member *member)
{
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_client *client = NULL;
    crew_meet(member); /* rank 0 is through with keeping */
    muster_figures_key(hosts_of_crew(), key);
    const char *const keys[] = {key, MUSTER_FIGURES_NEWEST};
    MEMBER_OK(member, muster_client_create(service.url, NULL, &client));
    for (int i = 0; i < 2; i++) {
        struct muster_figures kept;
        const struct muster_figures *here = &member->session->figures;
        MEMBER_OK(member,
                  muster_figures_get(client, member->crew->job, keys[i], TIMEOUT_MS, &kept));
        MEMBER_CHECK(member, kept.levels == here->levels && kept.hosts == here->hosts);
        MEMBER_CHECK(member, fabs(kept.model.links[0].latency_us / here->model.links[0].latency_us -
                                  1) < 1e-6);
    }
    muster_client_destroy(client);
    look(member);
}

static void may_not_measure(struct crew_member *member)
{
    member->options.measure = 0;
}

static void a_job_that_begins_measures_and_keeps_what_it_found(void **state)
{
    (void)state;
    struct crew crew = crew_for("measures", look_and_compare);
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_int_equal(seen[0].levels, 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK);
    assert_int_equal(seen[0].hosts, hosts_of_crew());
    assert_memory_not_equal(&seen[0].model, &muster_cost_model_default, sizeof seen[0].model);
}

static void a_job_that_may_not_measure_takes_ordinary_figures(void **state)
{
    (void)state;
    struct crew crew = crew_for("ordinary", look);
    crew.prepare = may_not_measure;
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_int_equal(seen[0].levels, 0);
    assert_memory_equal(&seen[0].model, &muster_cost_model_default, sizeof seen[0].model);
}

/* Figures by which only the number of messages in a row counts. */
static void put_figures(struct crew_member *member)
{
    struct muster_figures figures;
    char key[MUSTER_FIGURES_KEY_SIZE];
    struct muster_client *client = NULL;
    muster_figures_init(&figures);
    figures.hosts = hosts_of_crew();
    figures.levels = 1U << MUSTER_LEVEL_HOST | 1U << MUSTER_LEVEL_RACK;
    for (int level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        figures.model.links[level].latency_us = 1e6;
    }
    muster_figures_key(figures.hosts, key);
    MEMBER_OK(member, muster_client_create(service.url, NULL, &client));
    MEMBER_OK(member, muster_figures_put(client, member->crew->job, key, TIMEOUT_MS, &figures));
    muster_client_destroy(client);
}

static size_t chosen[SIZE];

static void choose(struct crew_member *member)
{
    static float data[SIZE][1 << 16];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = data[member->index],
                                           .out = data[member->index],
                                           .count = 1 << 16,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM};
    if (member->index == 0) {
        put_figures(member);
    }
    crew_meet(member);
    member->session->settings.measure = true;
    MEMBER_OK(member, muster_session_rejoin(member->session, true));
    look(member);
    MEMBER_OK(member, muster_context_algorithm(member->session->generation.contexts[MUSTER_GLOBAL],
                                               &request, &chosen[member->index]));
}

/* What the figures say is best, by simulation. */
static size_t best_by_simulation(const struct muster_cost_model *model)
{
    struct muster_topology topology;
    assert_int_equal(muster_topology_init_even(SIZE, 2, &topology), MUSTER_OK);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1 << 16, .in_place = true};
    size_t best = SIZE_MAX;
    double best_us = 0;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        double us = 0;
        char why[MUSTER_ERROR_MAX];
        if (muster_algorithms[i].collective != MUSTER_ALLREDUCE ||
            !muster_algorithm_fits(i, &plan, why, sizeof why)) {
            continue;
        }
        assert_int_equal(muster_select_cost_us(i, &plan, sizeof(float), model, &us), MUSTER_OK);
        if (best == SIZE_MAX || us < best_us) {
            best = i;
            best_us = us;
        }
    }
    muster_topology_finish(&topology);
    return best;
}

static void what_the_job_keeps_for_its_hosts_is_what_it_chooses_by(void **state)
{
    (void)state;
    struct crew crew = crew_for("keeps", choose);
    crew.prepare = may_not_measure;
    assert_int_equal(crew_run(&crew), 0);
    expect_alike();
    assert_true(seen[0].model.links[MUSTER_LEVEL_HOST].latency_us == 1e6);
    double best_us = 0;
    double chosen_us = 0;
    struct muster_topology topology;
    assert_int_equal(muster_topology_init_even(SIZE, 2, &topology), MUSTER_OK);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1 << 16, .in_place = true};
    size_t best = best_by_simulation(&seen[0].model);
    assert_int_equal(muster_select_cost_us(best, &plan, sizeof(float), &seen[0].model, &best_us),
                     MUSTER_OK);
    for (int i = 0; i < SIZE; i++) {
        assert_int_equal(chosen[i], chosen[0]);
    }
    assert_int_equal(
        muster_select_cost_us(chosen[0], &plan, sizeof(float), &seen[0].model, &chosen_us),
        MUSTER_OK);
    assert_true(chosen_us <= best_us * 1.04); /* selection does not look for less */
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_begins_measures_and_keeps_what_it_found),
        cmocka_unit_test(a_job_that_may_not_measure_takes_ordinary_figures),
        cmocka_unit_test(what_the_job_keeps_for_its_hosts_is_what_it_chooses_by),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
