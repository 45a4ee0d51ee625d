/* Autotune runs with made-up times: whose turn it is, which candidates are dropped, what is
 * decided, and that the run ends; and the tuning table. */
#include "collectives/select/autotune_run.h"
#include "collectives/select/select.h"
#include "collectives/select/tuning.h"
#include "tests/support/schedules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MEMBERS_MAX = 5, REPEATS = 400, NONE = UINT32_MAX };

/* How long calls take. Algorithms are numbered from 0, and 0 is the predicted one. */
struct timing {
    uint64_t random;
    uint32_t members, count;
    double us[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    double noise;   /* a call takes up to this share longer, one in ten much longer */
    double late_us; /* the others start each call later than member 0, by 1 to 2 times this */
    double predicted_us;
    uint32_t change; /* from this call on, calls take us[], before it before_us[] */
    double before_us[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    uint32_t made;                                  /* calls so far, of all algorithms */
    uint32_t calls[MUSTER_AUTOTUNE_ALGORITHMS_MAX]; /* calls so far, of each algorithm */
    uint32_t rounds;
};

static double fraction(struct timing *timing)
{
    return test_random_below(&timing->random, 1000) / 1000.0;
}

/* One call of all members: it ends when the last one has come and the work is done. */
static void call_all(struct timing *timing, struct muster_autotune_run *runs)
{
    size_t algorithm = muster_autotune_run_next(&runs[0]);
    double came[MEMBERS_MAX] = {0};
    double last = 0;
    for (uint32_t i = 0; i < timing->members; i++) {
        assert_int_equal(muster_autotune_run_next(&runs[i]), algorithm);
        came[i] = i == 0 ? 0 : timing->late_us * (1 + fraction(timing));
        last = fmax(last, came[i]);
    }
    double outlier = timing->noise > 0 && test_random_below(&timing->random, 10) == 0 ? 20 : 0;
    double usual =
        timing->made++ < timing->change ? timing->before_us[algorithm] : timing->us[algorithm];
    double work = usual * (1 + outlier + timing->noise * fraction(timing));
    for (uint32_t i = 0; i < timing->members; i++) {
        muster_autotune_run_record(&runs[i], last - came[i] + work);
    }
    timing->calls[algorithm]++;
}

/* The tuning exchange: the maxima of all members' values. Returns the decided algorithm, or NONE:
 * there is another round. */
static uint32_t exchange_times(struct timing *timing, struct muster_autotune_run *runs)
{
    float exchanged[MUSTER_AUTOTUNE_VALUES_MAX];
    float values[MUSTER_AUTOTUNE_VALUES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < timing->members; i++) {
        count = muster_autotune_run_values(&runs[i], values);
        for (uint32_t j = 0; j < count; j++) {
            exchanged[j] = i == 0 || values[j] > exchanged[j] ? values[j] : exchanged[j];
        }
    }
    assert_in_range(count, 2, MUSTER_AUTOTUNE_VALUES_MAX);
    size_t decided = NONE;
    bool over = muster_autotune_run_decide(&runs[0], exchanged, &decided);
    for (uint32_t i = 1; i < timing->members; i++) {
        size_t mine = NONE;
        assert_int_equal(muster_autotune_run_decide(&runs[i], exchanged, &mine), over);
        assert_int_equal(mine, decided);
    }
    timing->rounds++;
    return over ? (uint32_t)decided : NONE;
}

static uint32_t try_all(struct timing *timing)
{
    struct muster_autotune_run runs[MEMBERS_MAX];
    size_t algorithms[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    for (uint32_t i = 0; i < timing->count; i++) {
        algorithms[i] = i;
    }
    for (uint32_t i = 0; i < timing->members; i++) {
        muster_autotune_run_begin(&runs[i], algorithms, timing->count, timing->predicted_us);
    }
    for (;;) {
        while (!muster_autotune_run_is_round_over(&runs[0])) {
            call_all(timing, runs);
        }
        uint32_t decided = exchange_times(timing, runs);
        if (decided != NONE) {
            return decided;
        }
    }
}

static uint32_t calls_of(const struct timing *timing)
{
    uint32_t calls = 0;
    for (uint32_t i = 0; i < timing->count; i++) {
        calls += timing->calls[i];
    }
    return calls;
}

static struct timing random_world(uint64_t *random)
{
    struct timing timing = {.random = test_random(random) | 1};
    timing.members = 1 + test_random_below(random, MEMBERS_MAX);
    timing.count = 2 + test_random_below(random, MUSTER_AUTOTUNE_ALGORITHMS_MAX - 1);
    double scale = pow(10, test_random_below(random, 7)); /* to a second */
    for (uint32_t i = 0; i < timing.count; i++) {
        timing.us[i] = scale * (1 + fraction(&timing));
    }
    timing.predicted_us = timing.us[0];
    return timing;
}

static double best_of(const struct timing *timing)
{
    double best = timing->us[0];
    for (uint32_t i = 1; i < timing->count; i++) {
        best = fmin(best, timing->us[i]);
    }
    return best;
}

/* As good as the best: the predicted algorithm within 5%, and within 1% where calls take 100 ms. */
static bool is_good(const struct timing *timing, uint32_t decided)
{
    double best = best_of(timing);
    double least = decided != 0 ? 1.0001 : best < 100e3 ? 1.0501 : 1.0101;
    return timing->us[decided] <= least * best;
}

static void the_fastest_is_found_or_the_predicted_one_is_as_good(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        struct timing timing = random_world(&random);
        uint32_t decided = try_all(&timing);
        if (!is_good(&timing, decided)) {
            fail_msg("repeat %d: %u takes %g, the best %g", repeat, decided, timing.us[decided],
                     best_of(&timing));
        }
    }
}

/* With any noise, and with members that start calls late. */
static void every_candidate_has_a_turn_and_the_run_ends(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        struct timing timing = random_world(&random);
        timing.noise = test_random_below(&random, 3);
        timing.late_us = test_random_below(&random, 2) * 10 * timing.us[0];
        assert_in_range(try_all(&timing), 0, timing.count - 1);
        assert_in_range(timing.rounds, 1, MUSTER_AUTOTUNE_ROUNDS_MAX);
        assert_in_range(calls_of(&timing), timing.count,
                        MUSTER_AUTOTUNE_ROUNDS_MAX * (uintmax_t)MUSTER_AUTOTUNE_CALLS_MAX);
        for (uint32_t i = 0; i < timing.count; i++) {
            assert_true(timing.calls[i] >= 1);
        }
    }
}

/* The time that the calls took beyond that of the fastest algorithm. The first `calls` calls of
 * each algorithm are not counted, because its speed is not known before them. */
static double excess_after(const struct timing *timing, uint32_t calls)
{
    double excess_us = 0;
    for (uint32_t i = 0; i < timing->count; i++) {
        uint32_t counted = timing->calls[i] > calls ? timing->calls[i] - calls : 0;
        excess_us += counted * (timing->us[i] - best_of(timing));
    }
    return excess_us;
}

static void the_excess_over_the_fastest_is_bounded(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        struct timing timing = random_world(&random);
        (void)try_all(&timing);
        double excess_us = excess_after(&timing, 4);
        if (excess_us > 100e3 + best_of(&timing)) {
            fail_msg("repeat %d: an excess of %g us", repeat, excess_us);
        }
    }
}

static void long_calls_that_are_clearly_slower_are_measured_once(void **state)
{
    (void)state;
    struct timing timing = {.random = 1,
                            .members = 2,
                            .count = 4,
                            .us = {900e3, 800e3, 1300e3, 850e3},
                            .predicted_us = 900e3};
    assert_int_equal(try_all(&timing), 1);
    assert_int_equal(timing.calls[2], 1);
    for (uint32_t i = 0; i < timing.count; i++) {
        assert_true(i == 2 || timing.calls[i] >= 3);
    }
}

/* Candidates that are as fast cause no excess, so they get as many calls as short ones. */
static void long_calls_that_are_as_fast_are_measured_often(void **state)
{
    (void)state;
    struct timing timing = {.random = 1, .members = 3, .count = 8, .predicted_us = 20e3};
    for (uint32_t i = 0; i < timing.count; i++) {
        timing.us[i] = 20e3 + i;
    }
    assert_int_equal(try_all(&timing), 0);
    assert_int_equal(timing.calls[0], 1 + 2 + 4 + 8 + 16);
    assert_int_equal(calls_of(&timing), 8 + 8 * 2 + 8 * 4 + 4 * 8 + 2 * 16);
}

/* Each candidate has one call, then two: that is the least. */
static void a_run_of_long_calls_ends_soon(void **state)
{
    (void)state;
    struct timing timing = {.random = 1, .members = 3, .count = 8, .predicted_us = 900e3};
    for (uint32_t i = 0; i < timing.count; i++) {
        timing.us[i] = 900e3 + i;
    }
    assert_int_equal(try_all(&timing), 0);
    assert_int_equal(calls_of(&timing), 8 + 8 * 2);
}

/* Members may share a core when the first calls are made, where other algorithms are fast. Here
 * that lasts until half of the second round at most. */
static void a_short_disturbance_does_not_decide(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        struct timing timing = {
            .random = test_random(&random) | 1, .members = 2, .predicted_us = 9};
        timing.count = 2 + test_random_below(&random, 3);
        timing.change = test_random_below(&random, 8 * timing.count + 1);
        for (uint32_t i = 0; i < timing.count; i++) {
            timing.us[i] = 8 + 2 * fraction(&timing);
            timing.before_us[i] = 10 + 5 * fraction(&timing);
        }
        uint32_t decided = try_all(&timing);
        if (!is_good(&timing, decided)) {
            fail_msg("repeat %d: %u takes %g, the best %g", repeat, decided, timing.us[decided],
                     best_of(&timing));
        }
    }
}

/* Members come late to the first calls after an exchange, and such calls take less than that. */
static void the_predicted_algorithm_of_short_calls_survives_a_slow_first_round(void **state)
{
    (void)state;
    struct timing timing = {.random = 5,
                            .members = 2,
                            .count = 8,
                            .us = {0.6, 1.1, 1.2, 1.3, 1.5, 1.8, 2, 2},
                            .before_us = {2.6, 1.1, 1.2, 1.3, 1.5, 1.8, 2, 2},
                            .change = MUSTER_AUTOTUNE_CALLS_MAX,
                            .predicted_us = 0.3};
    assert_int_equal(try_all(&timing), 0);
}

/* A single slow call is ignored, as the first call of each algorithm often is one. */
static void a_single_slow_call_is_ignored(void **state)
{
    (void)state;
    struct muster_autotune_run run;
    const size_t algorithms[] = {0, 1};
    float exchanged[MUSTER_AUTOTUNE_VALUES_MAX];
    size_t decided = NONE;
    muster_autotune_run_begin(&run, algorithms, 2, 1000);
    for (uint32_t i = 0; !muster_autotune_run_is_round_over(&run); i++) {
        muster_autotune_run_record(&run, muster_autotune_run_next(&run) == 0 ? 300
                                         : i % 2 == 0                        ? 9000
                                                                             : 100);
    }
    (void)muster_autotune_run_values(&run, exchanged);
    assert_true(muster_autotune_run_decide(&run, exchanged, &decided));
    assert_int_equal(decided, 1);
}

/* Members that are late by more than the calls take: the fastest algorithm is still found. */
static void late_members_do_not_decide(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        struct timing timing = {.random = test_random(&random) | 1,
                                .members = 2 + test_random_below(&random, MEMBERS_MAX - 1),
                                .count = 3,
                                .us = {100, 40, 200},
                                .late_us = 5000,
                                .predicted_us = 100};
        assert_int_equal(try_all(&timing), 1);
    }
}

/* Whatever values the others send, the run decides for one of its algorithms. */
static void any_exchanged_values_lead_to_a_decision(void **state)
{
    (void)state;
    static const float values[] = {0, -1, 1, NAN, INFINITY, -INFINITY, 1e30F};
    uint64_t random = test_seed() | 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        struct muster_autotune_run run;
        const size_t algorithms[] = {3, 1, 4, 5};
        size_t decided = NONE;
        muster_autotune_run_begin(&run, algorithms, 4, 10);
        for (bool over = false; !over;) {
            float exchanged[MUSTER_AUTOTUNE_VALUES_MAX];
            while (!muster_autotune_run_is_round_over(&run)) {
                muster_autotune_run_record(&run, 1);
            }
            for (int i = 0; i < MUSTER_AUTOTUNE_VALUES_MAX; i++) {
                exchanged[i] = values[test_random_below(&random, 7)];
            }
            over = muster_autotune_run_decide(&run, exchanged, &decided);
        }
        assert_in_range(decided, 1, 5);
    }
}

/* Candidates -------------------------------------------------------------------------------- */

static void the_predicted_algorithm_is_the_first_candidate(void **state)
{
    (void)state;
    const uint32_t ranks[] = {2, 3, 8, 12, 40};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        struct muster_topology topology = test_topology_even(ranks[i], ranks[i] % 4 == 0 ? 4 : 1);
        for (uint64_t count = 1; count <= 1 << 24; count *= 16) {
            const struct muster_plan plan = {
                .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
            struct muster_autotune_run run;
            size_t predicted = 0;
            assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &predicted),
                             MUSTER_OK);
            assert_int_equal(
                muster_autotune_run_init(&run, predicted, &plan, 4, &muster_cost_model_default),
                MUSTER_OK);
            assert_in_range(run.count, 1, MUSTER_AUTOTUNE_ALGORITHMS_MAX);
            assert_int_equal(run.algorithms[0], predicted);
            for (uint32_t j = 0; j < run.count; j++) {
                assert_true(test_fits(run.algorithms[j], &plan));
                for (uint32_t k = 0; k < j; k++) {
                    assert_true(run.algorithms[j] != run.algorithms[k]);
                }
            }
        }
        muster_topology_finish(&topology);
    }
}

/* On two ranks all_to_one takes as long, by the model, as the predicted algorithm does. */
static void an_algorithm_of_equal_predicted_time_is_a_candidate(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(2, 1);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1};
    size_t predicted = 0;
    size_t server = 0;
    assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &predicted), MUSTER_OK);
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "all_to_one", &server), MUSTER_OK);
    struct muster_autotune_run run;
    assert_int_equal(
        muster_autotune_run_init(&run, predicted, &plan, 4, &muster_cost_model_default), MUSTER_OK);
    bool tried = false;
    for (uint32_t i = 0; i < run.count; i++) {
        tried = tried || run.algorithms[i] == server;
    }
    assert_true(tried);
    muster_topology_finish(&topology);
}

/* The tuning table ----------------------------------------------------------------------- */

static const struct muster_plan *plan_for(uint64_t count)
{
    static const uint32_t size = 4;
    static const struct muster_topology topology = {.hosts = 1, .ranks = size};
    static struct muster_plan plan;
    plan =
        (struct muster_plan){.collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
    return &plan;
}

static void size_classes_are_half_octaves(void **state)
{
    (void)state;
    struct muster_tuning tuning = {.count = 0};
    for (uint64_t count = 1; count < 1 << 12; count++) {
        if (muster_tuning_find(&tuning, plan_for(count), 4) == NULL) {
            muster_tuning_add(&tuning, plan_for(count), 4);
        }
        assert_non_null(muster_tuning_find(&tuning, plan_for(count), 4));
    }
    assert_int_equal(tuning.count, 1 + 2 * 11);
    assert_ptr_equal(muster_tuning_find(&tuning, plan_for(1024), 4),
                     muster_tuning_find(&tuning, plan_for(1535), 4));
    assert_ptr_not_equal(muster_tuning_find(&tuning, plan_for(1535), 4),
                         muster_tuning_find(&tuning, plan_for(1536), 4));
    assert_null(muster_tuning_find(&tuning, plan_for(1024), 8));
    assert_non_null(muster_tuning_find(&tuning, plan_for(UINT64_C(1) << 11), 4));
    muster_tuning_clear(&tuning);
}

static void the_table_has_a_bound(void **state)
{
    (void)state;
    struct muster_tuning tuning = {.count = 0};
    for (size_t bytes = 1; !muster_tuning_is_full(&tuning); bytes++) {
        muster_tuning_add(&tuning, plan_for(1), bytes);
    }
    assert_int_equal(tuning.count, MUSTER_TUNED_MAX);
    assert_null(muster_tuning_find(&tuning, plan_for(7), 4));
    muster_tuning_clear(&tuning);
    assert_false(muster_tuning_is_full(&tuning));
}

static void decisions_are_imported_by_the_next_generation(void **state)
{
    (void)state;
    struct muster_tuning tuning = {.count = 0};
    struct muster_tuning next = {.count = 0};
    struct muster_tuned_list list;
    size_t ring = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "ring_chunked", &ring), MUSTER_OK);
    muster_tuning_add(&tuning, plan_for(100), 4);
    muster_tuning_add(&tuning, plan_for(1000), 4);
    muster_tuning_decide(&tuning.classes[1], ring);
    muster_tuning_export(&tuning, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(muster_tuned_check(&list), MUSTER_OK);
    muster_tuning_import(&next, &list);
    assert_null(muster_tuning_find(&next, plan_for(100), 4));
    const struct muster_call_class *call_class = muster_tuning_find(&next, plan_for(1000), 4);
    assert_non_null(call_class);
    assert_true(call_class->decided && call_class->tuned.algorithm == ring);
    muster_tuning_clear(&tuning);
    muster_tuning_clear(&next);
}

static void a_list_that_no_table_can_have_exported_is_refused(void **state)
{
    (void)state;
    const struct muster_tuned good = {.collective = MUSTER_ALLREDUCE, .element_size_bytes = 4};
    struct muster_tuned_list list = {.count = 1, .items = {good}};
    assert_int_equal(muster_tuned_check(&list), MUSTER_OK);
    list.items[0].collective = MUSTER_BROADCAST;
    assert_int_equal(muster_tuned_check(&list), MUSTER_INVALID);
    list.items[0] = good;
    list.items[0].collective = 200;
    assert_int_equal(muster_tuned_check(&list), MUSTER_INVALID);
    list.items[0] = good;
    list.items[0].algorithm = UINT32_MAX;
    assert_int_equal(muster_tuned_check(&list), MUSTER_INVALID);
    list.items[0] = good;
    list.items[0].size_class = 128;
    assert_int_equal(muster_tuned_check(&list), MUSTER_INVALID);
    list.items[0] = good;
    list.items[1] = good;
    list.count = 2;
    assert_int_equal(muster_tuned_check(&list), MUSTER_INVALID);
    list.count = UINT32_MAX;
    assert_int_equal(muster_tuned_check(&list), MUSTER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_is_found_or_the_predicted_one_is_as_good),
        cmocka_unit_test(every_candidate_has_a_turn_and_the_run_ends),
        cmocka_unit_test(the_excess_over_the_fastest_is_bounded),
        cmocka_unit_test(long_calls_that_are_clearly_slower_are_measured_once),
        cmocka_unit_test(long_calls_that_are_as_fast_are_measured_often),
        cmocka_unit_test(a_run_of_long_calls_ends_soon),
        cmocka_unit_test(a_short_disturbance_does_not_decide),
        cmocka_unit_test(the_predicted_algorithm_of_short_calls_survives_a_slow_first_round),
        cmocka_unit_test(a_single_slow_call_is_ignored),
        cmocka_unit_test(late_members_do_not_decide),
        cmocka_unit_test(any_exchanged_values_lead_to_a_decision),
        cmocka_unit_test(the_predicted_algorithm_is_the_first_candidate),
        cmocka_unit_test(an_algorithm_of_equal_predicted_time_is_a_candidate),
        cmocka_unit_test(size_classes_are_half_octaves),
        cmocka_unit_test(the_table_has_a_bound),
        cmocka_unit_test(decisions_are_imported_by_the_next_generation),
        cmocka_unit_test(a_list_that_no_table_can_have_exported_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
