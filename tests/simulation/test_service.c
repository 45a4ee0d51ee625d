/*
 * Whole jobs under a simulated network, clock and disk, from seeds: README.md. MUSTER_SEED runs one
 * seed and prints what happens in it. "all" runs 10,000, "mutant" the seeds that a mutant must fail
 * in.
 */
#include "tests/simulation/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static unsigned seeds = 200, calm_seeds = 40, crowd = 200;
static uint64_t first_seed;
static bool traced;

static void print_totals(const struct sim_totals *totals)
{
    print_message(
        "%llu events, %llu requests, %llu generations, %llu commits, %llu deaths (%llu of "
        "the living), %llu starts of the server, %llu power losses, %llu compactions, "
        "%llu twins, %llu resizes, %llu finished; %llu servers cut off, %llu calls of etcd without "
        "an answer, %llu requests forwarded, %llu moves of a job\n",
        (unsigned long long)totals->events, (unsigned long long)totals->requests,
        (unsigned long long)totals->generations, (unsigned long long)totals->commits,
        (unsigned long long)totals->deaths, (unsigned long long)totals->wrong_deaths,
        (unsigned long long)totals->restarts, (unsigned long long)totals->power_losses,
        (unsigned long long)totals->compactions, (unsigned long long)totals->twins,
        (unsigned long long)totals->resizes, (unsigned long long)totals->finishes,
        (unsigned long long)totals->cuts, (unsigned long long)totals->lost_calls,
        (unsigned long long)totals->forwards, (unsigned long long)totals->moves);
}

static void jobs_form_whatever_fails(void **state)
{
    struct sim_totals totals = {0};
    (void)state;
    print_message("seeds from MUSTER_SEED=%llu, %u of them\n", (unsigned long long)first_seed,
                  seeds);
    for (unsigned i = 0; i < seeds; i++) {
        sim_run(first_seed + i, NULL, traced, &totals);
    }
    print_totals(&totals);
    if (seeds >= 100) { /* else a kind may be missing by chance */
        assert_true(totals.deaths > 0 && totals.restarts > seeds && totals.compactions > 0);
        assert_true(totals.power_losses > 0 && totals.twins > 0 && totals.finishes > 0 &&
                    totals.refusals > 0);
        assert_true(totals.cuts > 0 && totals.lost_calls > 0 && totals.forwards > seeds &&
                    totals.moves > seeds);
    }
}

/* Again and again, with Watches as long as they are. */
static void run_calm(struct sim_plan faults)
{
    struct sim_totals totals = {0};
    for (unsigned i = 0; i < calm_seeds; i++) {
        struct sim_plan plan = faults;
        plan.workers = plan.max = plan.target = 2 + (unsigned)((first_seed + i) % 7);
        plan.hosts = 2;
        plan.min = 1;
        plan.faults_ns = (int64_t)120000 * SIM_MS;
        plan.step_ns = (int64_t)1000 * SIM_MS;
        plan.network = (struct sim_network_faults){.delay_ns = 2 * SIM_MS, .slow_ns = 20 * SIM_MS};
        plan.nobody_dies = true;
        sim_run(first_seed + i, &plan, traced, &totals);
    }
    print_totals(&totals);
}

/* The proxy before the server restarts, the server pauses for up to 3 s, it is 2 s behind with
 * reading. */
static void a_server_that_is_slow_loses_nobody(void **state)
{
    (void)state;
    run_calm((struct sim_plan){
        .fault_every_ns = (int64_t)40000 * SIM_MS, .pauses = 1, .behind = 2, .proxy_restarts = 1});
}

/* It is stopped, killed, or loses power, which no connection tells its clients. */
static void a_server_that_restarts_loses_nobody(void **state)
{
    (void)state;
    run_calm((struct sim_plan){.fault_every_ns = (int64_t)60000 * SIM_MS,
                               .stops = 1,
                               .server_kills = 1,
                               .power_losses = 2});
}

/* All of that in any order, also one while another lasts; a member joins, and one leaves. */
static void faults_of_the_server_that_meet_kill_nobody(void **state)
{
    (void)state;
    run_calm((struct sim_plan){.fault_every_ns = (int64_t)40000 * SIM_MS,
                               .pauses = 2,
                               .proxy_restarts = 2,
                               .stops = 1,
                               .server_kills = 1,
                               .power_losses = 1,
                               .mixed = true});
}

/* Again and again, with generations that last a second or less. */
static void run_hasty(struct sim_plan faults)
{
    struct sim_totals totals = {0};
    for (unsigned i = 0; i < calm_seeds; i++) {
        struct sim_plan plan = faults;
        plan.workers = plan.max = 3 + (unsigned)((first_seed + i) % 5);
        plan.hosts = 2;
        plan.min = 1;
        plan.faults_ns = (int64_t)20000 * SIM_MS;
        plan.fault_every_ns = (int64_t)500 * SIM_MS;
        plan.step_ns = (int64_t)50 * SIM_MS;
        plan.network.delay_ns = 2 * SIM_MS;
        plan.network.slow_ns = (int64_t)500 * SIM_MS;
        sim_run(first_seed + i, &plan, traced, &totals);
    }
    print_totals(&totals);
}

/* Copies of requests arrive in a later generation; members that are stopped for a moment hear of
 * nothing meanwhile. */
static void late_copies_change_nothing(void **state)
{
    (void)state;
    run_hasty((struct sim_plan){
        .network = {.twin = 500, .reset = 100, .twin_ns = (int64_t)2000 * SIM_MS},
        .kills = 2,
        .freezes = 4,
        .starts = 4,
    });
}

/* The owner is stopped for longer than its lease, and another one forms generations meanwhile. */
static void an_owner_that_was_stopped_tells_nothing_old(void **state)
{
    (void)state;
    run_hasty((struct sim_plan){.servers = 2, .kills = 3, .starts = 4, .pauses = 2, .cuts = 1});
}

/* Of several servers any is killed, stopped, paused or cut off from etcd, or all are; others have
 * its jobs then. */
static void servers_that_take_over_lose_nobody(void **state)
{
    (void)state;
    run_calm((struct sim_plan){.servers = 3,
                               .fault_every_ns = (int64_t)40000 * SIM_MS,
                               .stops = 2,
                               .server_kills = 2,
                               .power_losses = 1,
                               .pauses = 2,
                               .cuts = 3,
                               .outages = 1,
                               .lost_calls = 5});
}

static void a_crowd_forms(void **state)
{
    struct sim_totals totals = {0};
    struct sim_plan plan;
    (void)state;
    sim_random_seed(first_seed);
    sim_plan_draw(&plan, crowd);
    plan.work = 0;
    plan.max = crowd;
    plan.faults_ns = (int64_t)5000 * SIM_MS;
    sim_run(first_seed, &plan, traced, &totals);
    print_totals(&totals);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_form_whatever_fails),
        cmocka_unit_test(a_server_that_is_slow_loses_nobody),
        cmocka_unit_test(a_server_that_restarts_loses_nobody),
        cmocka_unit_test(faults_of_the_server_that_meet_kill_nobody),
        cmocka_unit_test(late_copies_change_nothing),
        cmocka_unit_test(an_owner_that_was_stopped_tells_nothing_old),
        cmocka_unit_test(servers_that_take_over_lose_nobody),
        cmocka_unit_test(a_crowd_forms),
    };
    const char *given = getenv("MUSTER_SEED");
    first_seed = (uint64_t)time(NULL) * 100000;
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        seeds = 10000;
        calm_seeds = 500;
        crowd = 1000;
    }
    if (argc > 1 && strcmp(argv[1], "mutant") == 0) {
        first_seed = 1;
        seeds = 600;
        calm_seeds = 2000;
    }
    if (given != NULL) {
        first_seed = strtoull(given, NULL, 10);
        seeds = calm_seeds = 1;
        traced = true;
    }
    if (argc > 3 && strcmp(argv[1], "from") == 0) {
        first_seed = strtoull(argv[2], NULL, 10);
        seeds = calm_seeds = (unsigned)strtoul(argv[3], NULL, 10);
    }
    if (argc > 4) {
        cmocka_set_test_filter(argv[4]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
