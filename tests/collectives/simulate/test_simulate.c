/* The simulator against times computed by hand, for small jobs with schedules written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/simulate/simulate.h"
#include "tests/support/schedules.h"

/* Simple figures: 1 GB/s is 1000 elements of one byte in a microsecond. */
static const struct muster_cost_model round_figures = {
    .core = {.reduce_GBps = 4, .copy_GBps = 2},
    .links = {[MUSTER_LEVEL_HOST] =
                  {.latency_us = 10, .posting_us = 2, .bandwidth_GBps = 2, .shared_GBps = 3},
              [MUSTER_LEVEL_RACK] =
                  {.latency_us = 100, .posting_us = 5, .bandwidth_GBps = 1, .shared_GBps = 1.5},
              [MUSTER_LEVEL_WORLD] =
                  {.latency_us = 1000, .posting_us = 5, .bandwidth_GBps = 1, .shared_GBps = 1}},
    .eager_bytes = 1000,
};

enum { RANKS_MAX = 4, STEPS_MAX = 8 };

/* A job whose schedules are written by hand. */
struct job {
    struct muster_topology topology;
    struct muster_cost_model model;
    struct muster_step steps[RANKS_MAX][STEPS_MAX];
    size_t step_counts[RANKS_MAX];
    const struct muster_fault *faults;
    size_t fault_count;
    struct muster_simulation_result result;
    double finish_us[RANKS_MAX];
};

static struct job job_on(uint32_t ranks, uint32_t hosts)
{
    return (struct job){.topology = test_topology_even(ranks, hosts), .model = round_figures};
}

static void step(struct job *job, uint32_t rank, uint32_t round, enum muster_step_kind kind,
                 uint32_t peer, uint64_t count)
{
    job->steps[rank][job->step_counts[rank]++] = (struct muster_step){
        .kind = (uint8_t)kind, .round = round, .peer = peer, .span = {.count = count}};
}

static void message(struct job *job, uint32_t from, uint32_t to, uint32_t round, uint64_t count)
{
    step(job, from, round, MUSTER_STEP_SEND, to, count);
    step(job, to, round, MUSTER_STEP_RECV, from, count);
}

static struct muster_simulation *prepare(const struct job *job)
{
    const struct muster_simulation_options options = {.topology = &job->topology,
                                                      .model = &job->model,
                                                      .element_size_bytes = 1,
                                                      .faults = job->faults,
                                                      .fault_count = job->fault_count,
                                                      .trace = true};
    struct muster_simulation *simulation = NULL;
    assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_OK);
    for (uint32_t rank = 0; rank < job->topology.ranks; rank++) {
        struct muster_schedule schedule = {.rank = rank,
                                           .ranks = job->topology.ranks,
                                           .lanes = job->step_counts[rank] > 0 ? 1 : 0,
                                           .step_count = job->step_counts[rank],
                                           .steps = (struct muster_step *)job->steps[rank]};
        assert_int_equal(muster_simulation_add(simulation, &schedule), MUSTER_OK);
    }
    return simulation;
}

/* Runs the job and returns the time. A job runs once. */
static double run(struct job *job)
{
    struct muster_simulation *simulation = prepare(job);
    assert_int_equal(muster_simulation_run(simulation, &job->result), MUSTER_OK);
    for (uint32_t rank = 0; rank < job->topology.ranks; rank++) {
        job->finish_us[rank] = muster_simulation_finish_us(simulation, rank);
    }
    muster_simulation_destroy(simulation);
    muster_topology_finish(&job->topology);
    return job->result.total_us;
}

/* Times are on a grid of about a thousandth of a microsecond. */
static void assert_us(double time_us, double expected_us)
{
    if (time_us < expected_us - 1e-6 || time_us > expected_us + 0.02) {
        fail_msg("%.4f us, expected %.4f", time_us, expected_us);
    }
}

static void an_empty_message_takes_its_latency(void **state)
{
    (void)state;
    struct job job = job_on(2, 1);
    message(&job, 0, 1, 0, 0);
    assert_us(run(&job), 10);
    assert_us(job.finish_us[0], 2); /* posted, and sent */
    assert_us(job.finish_us[1], 10);
    job = job_on(2, 2);
    message(&job, 0, 1, 0, 0);
    assert_us(run(&job), 100);
}

static void a_small_message_leaves_at_once_and_a_large_one_when_the_receiver_is_ready(void **state)
{
    (void)state;
    struct job job = job_on(2, 2);
    message(&job, 0, 1, 0, 1000);
    assert_us(run(&job), 100 + 1);
    assert_us(job.finish_us[0], 5);
    job = job_on(2, 2);
    message(&job, 0, 1, 0, 2000);
    /* 100 until the sender knows of the receive; 2 on the wire; then flight and completion. */
    assert_us(run(&job), 100 + 2 + 95);
    assert_us(job.finish_us[0], 100 + 2);
    /* A receive that was posted long before is known to the sender long before. */
    job = job_on(2, 2);
    step(&job, 0, 0, MUSTER_STEP_COPY, 0, 1000000); /* 500 us */
    step(&job, 0, 1, MUSTER_STEP_SEND, 1, 2000);
    step(&job, 1, 0, MUSTER_STEP_RECV, 0, 2000);
    assert_us(run(&job), 500 + 5 + 2 + 95);
    assert_int_equal(job.result.bytes[MUSTER_LEVEL_RACK], 2000);
    assert_int_equal(job.result.messages[MUSTER_LEVEL_RACK], 1);
    assert_int_equal(job.result.messages[MUSTER_LEVEL_HOST], 0);
}

static void an_early_message_waits_in_its_buffer(void **state)
{
    (void)state;
    struct job job = job_on(2, 2);
    step(&job, 0, 0, MUSTER_STEP_SEND, 1, 1000);
    step(&job, 1, 0, MUSTER_STEP_COPY, 0, 1000000);
    step(&job, 1, 1, MUSTER_STEP_RECV, 0, 1000);
    assert_us(run(&job), 500 + 5);
    assert_us(job.finish_us[0], 5);
}

static void both_directions_at_once_take_no_longer_than_one(void **state)
{
    (void)state;
    struct job job = job_on(2, 2);
    message(&job, 0, 1, 0, 1000000);
    message(&job, 1, 0, 0, 1000000);
    assert_us(run(&job), 100 + 1000 + 95);
}

static void messages_share_a_port(void **state)
{
    (void)state;
    struct job job = job_on(3, 3);
    message(&job, 0, 1, 0, 1000000);
    message(&job, 0, 2, 0, 2000000);
    assert_us(run(&job), 100 + 3000 + 95);
    /* Half of the port each until the smaller one has left. */
    assert_us(job.finish_us[1], 100 + 2000 + 95);
}

static void ranks_of_a_host_share_its_uplink(void **state)
{
    (void)state;
    struct job job = job_on(4, 2);
    message(&job, 0, 2, 0, 1500000);
    message(&job, 1, 3, 0, 3000000);
    /* 0.75 GB/s each until the smaller one has left, then 1 GB/s, the port's rate. */
    assert_us(run(&job), 100 + 2000 + 1500 + 95);
    assert_us(job.finish_us[2], 100 + 2000 + 95);
}

static void ranks_of_a_host_share_its_memory(void **state)
{
    (void)state;
    struct job job = job_on(4, 1);
    message(&job, 0, 1, 0, 3000000);
    message(&job, 2, 3, 0, 3000000);
    assert_us(run(&job), 10 + 2000 + 8);
}

static void hosts_of_a_rack_share_its_uplink(void **state)
{
    (void)state;
    struct job job = job_on(4, 4);
    const uint32_t racks[] = {2, 2};
    assert_int_equal(muster_topology_set_racks(&job.topology, 2, racks), MUSTER_OK);
    message(&job, 0, 2, 0, 3000000);
    message(&job, 1, 3, 0, 3000000);
    assert_us(run(&job), 1000 + 6000 + 995);
    assert_int_equal(job.result.bytes[MUSTER_LEVEL_WORLD], 6000000);
}

static void a_burst_passes_an_uplink_after_a_pause(void **state)
{
    (void)state;
    struct job job = job_on(2, 2);
    job.model.links[MUSTER_LEVEL_RACK].shared_GBps = 1;
    job.model.burst_bytes = 150000;
    message(&job, 0, 1, 0, 300000);
    /* In the first 100 us 100,000 tokens come in. They let it go at 2 GB/s, twice as fast as they
     * come in, for 100 us; the rest goes at 1 GB/s. */
    assert_us(run(&job), 100 + 100 + 100 + 95);
    job = job_on(2, 2);
    job.model.links[MUSTER_LEVEL_RACK].shared_GBps = 1;
    job.model.burst_bytes = 50000; /* the bucket holds no more */
    message(&job, 0, 1, 0, 300000);
    assert_us(run(&job), 100 + 50 + 200 + 95);
}

/* Four ranks on four hosts, the reduce-scatter half of a ring: three rounds of a quarter. */
static void a_ring_takes_its_rounds(void **state)
{
    (void)state;
    struct job job = job_on(4, 4);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            step(&job, rank, round, MUSTER_STEP_SEND, (rank + 1) % 4, 100000);
            step(&job, rank, round, MUSTER_STEP_RECV_REDUCE, (rank + 3) % 4, 100000);
        }
    }
    /* 100 until the receive is known, 100 on the wire, 95, and the reduction of the one piece. */
    assert_us(run(&job), 3 * (100 + 100 + 95 + 25));
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_us(job.finish_us[rank], 960);
    }
}

static void reducing_overlaps_receiving(void **state)
{
    (void)state;
    const uint64_t count = 10 * (128 << 10);
    const double bytes = (double)count;
    for (int slow = 0; slow < 2; slow++) {
        struct job job = job_on(2, 2);
        job.model.core.reduce_GBps = slow == 1 ? 0.5 : 4;
        step(&job, 0, 0, MUSTER_STEP_SEND, 1, count);
        step(&job, 1, 0, MUSTER_STEP_RECV_REDUCE, 0, count);
        double arrived_us = 100 + bytes / 1000 + 95;
        double last_us = arrived_us + bytes / 10 / 4000;
        /* A slow core begins with the first piece, and then is never idle. */
        double busy_us = 100 + 90 + bytes / 10 / 1000 + bytes / 500 + 5;
        assert_us(run(&job), slow == 1 ? busy_us : last_us);
    }
}

static void ranks_share_the_cores_of_their_host(void **state)
{
    (void)state;
    struct job job = job_on(3, 1);
    for (uint32_t rank = 0; rank < 3; rank++) {
        step(&job, rank, 0, MUSTER_STEP_COPY, 0, 1000000);
    }
    struct job few = job;
    few.topology = test_topology_even(3, 1);
    few.model.core.cores = 2;
    assert_us(run(&job), 500);
    assert_us(run(&few), 1000);
}

static void hosts_that_are_one_machine_share_its_cores(void **state)
{
    (void)state;
    struct job job = job_on(3, 3);
    job.model.core.cores = 2;
    for (uint32_t rank = 0; rank < 3; rank++) {
        step(&job, rank, 0, MUSTER_STEP_COPY, 0, 1000000);
    }
    struct job pretended = job;
    pretended.topology = test_topology_even(3, 3);
    pretended.model.core.one_machine = 1;
    assert_us(run(&job), 500);
    assert_us(run(&pretended), 1000);
}

static void a_waiting_rank_sleeps_where_cores_are_shared(void **state)
{
    (void)state;
    struct job job = job_on(3, 1);
    message(&job, 0, 1, 0, 0);
    message(&job, 0, 2, 0, 0);
    struct job shared = job;
    shared.topology = test_topology_even(3, 1);
    shared.model.core.cores = 1;
    assert_us(run(&job), 2 + 10);
    /* Two are posted; then two ranks wake and complete their receives, one after the other. */
    assert_us(run(&shared), 2 * 2 + 2 * (6 + 2));
    job = job_on(3, 1);
    job.model.core.cores = 1;
    message(&job, 0, 2, 0, 0);
    message(&job, 1, 2, 0, 0);
    /* A rank that is awake completes its second receive at once. */
    assert_us(run(&job), 2 * 2 + 6 + 2 * 2);
}

static void a_late_or_slow_rank_delays_the_others(void **state)
{
    (void)state;
    struct muster_fault fault = {.kind = MUSTER_FAULT_LATE_RANK, .rank = 0, .at_us = 77};
    struct job job = job_on(2, 2);
    message(&job, 0, 1, 0, 1000);
    job.faults = &fault;
    job.fault_count = 1;
    assert_us(run(&job), 77 + 101);
    fault = (struct muster_fault){.kind = MUSTER_FAULT_SLOW_RANK, .rank = 1, .factor = 3};
    job = job_on(2, 2);
    message(&job, 0, 1, 0, 1000);
    job.faults = &fault;
    job.fault_count = 1;
    assert_us(run(&job), 101 + 2 * 5);
    fault =
        (struct muster_fault){.kind = MUSTER_FAULT_SLOW_LINK, .rank = 1, .peer = 0, .factor = 2};
    job = job_on(2, 2);
    message(&job, 0, 1, 0, 1000);
    job.faults = &fault;
    job.fault_count = 1;
    assert_us(run(&job), 5 + 2 + 180 + 5);
}

static void a_dying_link_stops_flowing_messages_and_later_ones(void **state)
{
    (void)state;
    const struct muster_fault fault = {
        .kind = MUSTER_FAULT_DEAD_LINK, .rank = 1, .peer = 0, .at_us = 150};
    struct job job = job_on(3, 3);
    message(&job, 0, 1, 0, 100000); /* flows from 100 to 200 */
    message(&job, 1, 2, 1, 0);
    job.faults = &fault;
    job.fault_count = 1;
    (void)run(&job);
    assert_false(job.result.finished);
    assert_int_equal(job.result.unfinished, 3);
    assert_string_equal(job.result.verdict,
                        "link 0-1 is dead: rank 0 waits for rank 1 (lane 0, "
                        "round 0: send); rank 1 for 0, rank 2 for 1");
    /* A message that had arrived before is received. */
    job = job_on(2, 2);
    message(&job, 0, 1, 0, 10);
    job.faults = &fault;
    job.fault_count = 1;
    (void)run(&job);
    assert_true(job.result.finished);
    assert_string_equal(job.result.verdict, "");
}

static void a_dead_rank_is_named(void **state)
{
    (void)state;
    const struct muster_fault fault = {.kind = MUSTER_FAULT_DEAD_RANK, .rank = 0};
    struct job job = job_on(3, 1);
    message(&job, 0, 1, 0, 10);
    message(&job, 1, 2, 1, 10);
    job.faults = &fault;
    job.fault_count = 1;
    (void)run(&job);
    assert_string_equal(job.result.verdict,
                        "rank 0 is dead: rank 1 waits for rank 0 (lane 0, "
                        "round 0: receive); rank 2 for 1");
    /* No rank waits for one that only receives. */
    const struct muster_fault listener = {.kind = MUSTER_FAULT_DEAD_RANK, .rank = 1, .at_us = 1};
    job = job_on(2, 1);
    message(&job, 0, 1, 0, 10);
    job.faults = &listener;
    job.fault_count = 1;
    (void)run(&job);
    assert_string_equal(job.result.verdict, "rank 1 is dead, and no rank waits");
}

static void a_deadlock_is_a_verdict(void **state)
{
    (void)state;
    struct job job = job_on(2, 1);
    step(&job, 0, 0, MUSTER_STEP_RECV, 1, 1);
    step(&job, 0, 1, MUSTER_STEP_SEND, 1, 1);
    step(&job, 1, 0, MUSTER_STEP_RECV, 0, 1);
    step(&job, 1, 1, MUSTER_STEP_SEND, 0, 1);
    (void)run(&job);
    assert_false(job.result.finished);
    assert_string_equal(
        job.result.verdict,
        "deadlock: rank 0 waits for rank 1 (lane 0, round 0: receive); rank 1 for 0");
}

static void steps_have_their_times(void **state)
{
    (void)state;
    struct job job = job_on(2, 2);
    step(&job, 0, 0, MUSTER_STEP_COPY, 0, 1000000);
    step(&job, 0, 1, MUSTER_STEP_SEND, 1, 1000);
    step(&job, 1, 0, MUSTER_STEP_RECV, 0, 1000);
    struct muster_simulation *simulation = prepare(&job);
    assert_int_equal(muster_simulation_run(simulation, &job.result), MUSTER_OK);
    const struct muster_step_times *times = muster_simulation_times(simulation, 0);
    assert_us(times[0].start_us, 0);
    assert_us(times[0].end_us, 500);
    assert_us(times[1].start_us, 500);
    assert_us(times[1].end_us, 505);
    times = muster_simulation_times(simulation, 1);
    assert_us(times[0].start_us, 0);
    assert_us(times[0].end_us, 601);
    muster_simulation_destroy(simulation);
    muster_topology_finish(&job.topology);
}

static void invalid_jobs_are_refused(void **state)
{
    (void)state;
    struct job job = job_on(2, 1);
    step(&job, 0, 0, MUSTER_STEP_SEND, 1, 5);
    step(&job, 1, 0, MUSTER_STEP_RECV, 0, 6);
    struct muster_simulation *simulation = prepare(&job);
    assert_int_equal(muster_simulation_run(simulation, &job.result), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "sends 5 elements to rank 1, which receives 6"));
    struct muster_schedule second = {.rank = 1, .ranks = 2};
    assert_int_equal(muster_simulation_add(simulation, &second), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "a second schedule for rank 1"));
    muster_simulation_destroy(simulation);

    struct muster_simulation_options options = {
        .topology = &job.topology, .model = &job.model, .element_size_bytes = 1};
    assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_OK);
    assert_int_equal(muster_simulation_run(simulation, &job.result), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "no schedule for rank 0"));
    muster_simulation_destroy(simulation);

    const struct muster_fault faults[] = {
        {.kind = (enum muster_fault_kind)9},
        {.kind = MUSTER_FAULT_LATE_RANK, .rank = 2},
        {.kind = MUSTER_FAULT_LATE_RANK, .at_us = -1},
        {.kind = MUSTER_FAULT_SLOW_RANK, .factor = 0.5},
        {.kind = MUSTER_FAULT_DEAD_LINK, .rank = 1, .peer = 1},
        {.kind = MUSTER_FAULT_DEAD_LINK, .rank = 1, .peer = 2},
    };
    simulation = NULL;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        options.faults = &faults[i];
        options.fault_count = 1;
        assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_INVALID);
        assert_non_null(strstr(muster_last_error(), "fault: "));
        assert_null(simulation);
    }
    job.model.links[MUSTER_LEVEL_RACK].shared_GBps = 0;
    options.fault_count = 0;
    assert_int_equal(muster_simulation_create(&options, &simulation), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "rack shared_GBps is 0"));
    muster_topology_finish(&job.topology);
}

/* A message and one back: between other ranks, in the other order, of another size. */
static void jobs_are_alike_if_as_many_ranks_do_the_same(void **state)
{
    (void)state;
    static const struct {
        uint32_t from, to, back, size;
        bool alike;
    } others[] = {{0, 1, 0, 8, true},  {1, 0, 1, 8, true},  {2, 3, 2, 8, true},
                  {0, 1, 0, 9, false}, {0, 2, 0, 8, false}, {0, 1, 3, 8, false}};
    struct job one = job_on(4, 2);
    message(&one, 0, 1, 0, 8);
    message(&one, 1, 0, 1, 4);
    struct muster_simulation *first = prepare(&one);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct job other = job_on(4, 2);
        message(&other, others[i].from, others[i].to, 0, others[i].size);
        message(&other, others[i].to, others[i].back, 1, 4);
        struct muster_simulation *second = prepare(&other);
        assert_true(muster_simulation_is_alike(first, second) == others[i].alike);
        assert_true(muster_simulation_is_alike(second, first) == others[i].alike);
        muster_simulation_destroy(second);
        muster_topology_finish(&other.topology);
    }
    muster_simulation_destroy(first);
    muster_topology_finish(&one.topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_message_takes_its_latency),
        cmocka_unit_test(a_small_message_leaves_at_once_and_a_large_one_when_the_receiver_is_ready),
        cmocka_unit_test(an_early_message_waits_in_its_buffer),
        cmocka_unit_test(both_directions_at_once_take_no_longer_than_one),
        cmocka_unit_test(messages_share_a_port),
        cmocka_unit_test(ranks_of_a_host_share_its_uplink),
        cmocka_unit_test(ranks_of_a_host_share_its_memory),
        cmocka_unit_test(hosts_of_a_rack_share_its_uplink),
        cmocka_unit_test(a_burst_passes_an_uplink_after_a_pause),
        cmocka_unit_test(a_ring_takes_its_rounds),
        cmocka_unit_test(reducing_overlaps_receiving),
        cmocka_unit_test(ranks_share_the_cores_of_their_host),
        cmocka_unit_test(hosts_that_are_one_machine_share_its_cores),
        cmocka_unit_test(a_waiting_rank_sleeps_where_cores_are_shared),
        cmocka_unit_test(a_late_or_slow_rank_delays_the_others),
        cmocka_unit_test(a_dying_link_stops_flowing_messages_and_later_ones),
        cmocka_unit_test(a_dead_rank_is_named),
        cmocka_unit_test(a_deadlock_is_a_verdict),
        cmocka_unit_test(steps_have_their_times),
        cmocka_unit_test(invalid_jobs_are_refused),
        cmocka_unit_test(jobs_are_alike_if_as_many_ranks_do_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
