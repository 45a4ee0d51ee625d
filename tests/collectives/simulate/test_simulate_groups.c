/* Group steps in the simulator: their time, who waits for whom, and what a dead member does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/schedule/builder.h"
#include "collectives/select/host_memory.h"
#include "collectives/simulate/simulate.h"
#include "tests/support/schedules.h"

static const struct muster_memory_reach reach = {.staging_bytes = 256 << 10, .buffers = true};

static struct muster_cost_model model(void)
{
    struct muster_cost_model made = muster_cost_model_default;
    made.core.cores = 0; /* a core for each rank */
    return made;
}

static struct muster_simulation *create(const struct muster_topology *topology,
                                        const struct muster_cost_model *with,
                                        const struct muster_fault *fault)
{
    struct muster_simulation *simulation = NULL;
    const struct muster_simulation_options options = {.topology = topology,
                                                      .model = with,
                                                      .element_size_bytes = 4,
                                                      .faults = fault,
                                                      .fault_count = fault != NULL ? 1 : 0,
                                                      .trace = true};
    assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_OK);
    return simulation;
}

static void a_whole_call_takes_the_predicted_time_and_not_less_than_the_bound(void **state)
{
    (void)state;
    const struct muster_cost_model with = model();
    struct muster_topology topology = test_topology_even(4, 1);
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        for (uint64_t count = 4; count <= 1 << 22 && muster_algorithms[algorithm].memory;
             count *= 32) {
            struct muster_plan plan = test_plan(algorithm, &topology, count, 0);
            struct muster_simulation_result result;
            enum muster_memory_method method;
            double predicted_us = 0;
            double bound_us = 0;
            plan.memory = &reach;
            if (muster_collective_needs_bounds(plan.collective)) {
                continue;
            }
            struct muster_simulation *simulation = create(&topology, &with, NULL);
            assert_int_equal(muster_simulation_add_all(simulation, algorithm, &plan), MUSTER_OK);
            assert_int_equal(muster_simulation_bound_us(simulation, &bound_us), MUSTER_OK);
            assert_int_equal(muster_simulation_run(simulation, &result), MUSTER_OK);
            assert_true(muster_memory_choose(&plan, 4, &with, &method, &predicted_us));
            assert_true(result.finished);
            assert_float_equal(result.total_us, predicted_us, (float)(0.01 + predicted_us / 100));
            assert_true(bound_us <= result.total_us);
            muster_simulation_destroy(simulation);
        }
    }
    muster_topology_finish(&topology);
}

/* Two hosts of two ranks, each with a barrier of its host. */
static void run_barriers(const struct muster_fault *fault,
                         struct muster_simulation_result *ret_result, double ret_finish_us[4])
{
    const struct muster_cost_model with = model();
    struct muster_topology topology = test_topology_even(4, 2);
    struct muster_simulation *simulation = create(&topology, &with, fault);
    for (uint32_t rank = 0; rank < 4; rank++) {
        const struct muster_plan plan = {
            .collective = MUSTER_BARRIER, .topology = &topology, .rank = rank};
        struct muster_builder builder;
        struct muster_schedule schedule;
        muster_builder_init(&plan, &builder);
        muster_builder_group(&builder,
                             &(struct muster_group_call){.kind = MUSTER_STEP_GROUP_BARRIER,
                                                         .scope = MUSTER_STEP_OVER_HOST});
        assert_int_equal(muster_builder_finish(&builder, &schedule), MUSTER_OK);
        assert_int_equal(muster_simulation_add(simulation, &schedule), MUSTER_OK);
        muster_schedule_finish(&schedule);
    }
    assert_int_equal(muster_simulation_run(simulation, ret_result), MUSTER_OK);
    for (uint32_t rank = 0; rank < 4; rank++) {
        ret_finish_us[rank] = muster_simulation_finish_us(simulation, rank);
    }
    muster_simulation_destroy(simulation);
    muster_topology_finish(&topology);
}

static void a_late_rank_delays_its_own_host_only(void **state)
{
    (void)state;
    const struct muster_fault late = {.kind = MUSTER_FAULT_LATE_RANK, .rank = 3, .at_us = 50};
    struct muster_simulation_result result;
    double finish_us[4];
    run_barriers(&late, &result, finish_us);
    assert_true(result.finished);
    assert_true(finish_us[0] < 10 && finish_us[1] < 10);
    assert_true(finish_us[2] >= 50 && finish_us[3] >= 50);
}

static void a_dead_member_is_named(void **state)
{
    (void)state;
    const struct muster_fault dead = {.kind = MUSTER_FAULT_DEAD_RANK, .rank = 1, .at_us = 0};
    struct muster_simulation_result result;
    double finish_us[4];
    run_barriers(&dead, &result, finish_us);
    assert_false(result.finished);
    assert_string_equal(result.verdict,
                        "rank 1 is dead: rank 0 waits for rank 1 (lane 0, round 0: "
                        "group step)");
    assert_true(finish_us[2] >= 0 && finish_us[3] >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_call_takes_the_predicted_time_and_not_less_than_the_bound),
        cmocka_unit_test(a_late_rank_delays_its_own_host_only),
        cmocka_unit_test(a_dead_member_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
