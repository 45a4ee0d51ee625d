/* Trials: who gets a turn, who is left out, what comes out, and that it ends. */
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

enum { MEMBERS_MAX = 5, RUNS = 400, NONE = UINT32_MAX };

/* How long calls take: the algorithms are numbered from 0, and 0 is the predicted one. */
struct world {
    uint64_t random;
    uint32_t members, count;
    double us[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    double noise; /* a call takes up to so much more, as a part of its time; one in ten much more */
    double late_us; /* all others come to calls so much after member 0, or up to twice that */
    double predicted_us;
    uint32_t change;                                  /* with this call everything gets faster */
    double before_us[MUSTER_AUTOTUNE_ALGORITHMS_MAX]; /* until then */
    uint32_t made;                                    /* calls, of all */
    uint32_t calls[MUSTER_AUTOTUNE_ALGORITHMS_MAX];   /* and of each */
    uint32_t rounds;
};

static double fraction(struct world *world)
{
    return test_random_below(&world->random, 1000) / 1000.0;
}

/* One call of all: each is through when the last one has come and the work is done. */
static void call_all(struct world *world, struct muster_autotune_run *trials)
{
    size_t algorithm = muster_autotune_run_next(&trials[0]);
    double came[MEMBERS_MAX];
    double last = 0;
    for (uint32_t i = 0; i < world->members; i++) {
        assert_int_equal(muster_autotune_run_next(&trials[i]), algorithm);
        came[i] = i == 0 ? 0 : world->late_us * (1 + fraction(world));
        last = fmax(last, came[i]);
    }
    double outlier = world->noise > 0 && test_random_below(&world->random, 10) == 0 ? 20 : 0;
    double usual =
        world->made++ < world->change ? world->before_us[algorithm] : world->us[algorithm];
    double work = usual * (1 + outlier + world->noise * fraction(world));
    for (uint32_t i = 0; i < world->members; i++) {
        muster_autotune_run_note(&trials[i], last - came[i] + work);
    }
    world->calls[algorithm]++;
}

/* All hear the same; returns the verdict, or NONE for one more round. */
static uint32_t confer(struct world *world, struct muster_autotune_run *trials)
{
    float heard[MUSTER_AUTOTUNE_WORDS_MAX];
    float said[MUSTER_AUTOTUNE_WORDS_MAX];
    uint32_t words = 0;
    for (uint32_t i = 0; i < world->members; i++) {
        words = muster_autotune_run_say(&trials[i], said);
        for (uint32_t j = 0; j < words; j++) {
            heard[j] = i == 0 || said[j] > heard[j] ? said[j] : heard[j];
        }
    }
    assert_in_range(words, 2, MUSTER_AUTOTUNE_WORDS_MAX);
    size_t verdict = NONE;
    bool over = muster_autotune_run_judge(&trials[0], heard, &verdict);
    for (uint32_t i = 1; i < world->members; i++) {
        size_t mine = NONE;
        assert_int_equal(muster_autotune_run_judge(&trials[i], heard, &mine), over);
        assert_int_equal(mine, verdict);
    }
    world->rounds++;
    return over ? (uint32_t)verdict : NONE;
}

static uint32_t try_all(struct world *world)
{
    struct muster_autotune_run trials[MEMBERS_MAX];
    size_t algorithms[MUSTER_AUTOTUNE_ALGORITHMS_MAX];
    for (uint32_t i = 0; i < world->count; i++) {
        algorithms[i] = i;
    }
    for (uint32_t i = 0; i < world->members; i++) {
        muster_autotune_run_begin(&trials[i], algorithms, world->count, world->predicted_us);
    }
    for (;;) {
        while (!muster_autotune_run_is_due(&trials[0])) {
            call_all(world, trials);
        }
        uint32_t verdict = confer(world, trials);
        if (verdict != NONE) {
            return verdict;
        }
    }
}

static uint32_t calls_of(const struct world *world)
{
    uint32_t calls = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        calls += world->calls[i];
    }
    return calls;
}

static struct world random_world(uint64_t *random)
{
    struct world world = {.random = test_random(random) | 1};
    world.members = 1 + test_random_below(random, MEMBERS_MAX);
    world.count = 2 + test_random_below(random, MUSTER_AUTOTUNE_ALGORITHMS_MAX - 1);
    double scale = pow(10, test_random_below(random, 7)); /* to a second */
    for (uint32_t i = 0; i < world.count; i++) {
        world.us[i] = scale * (1 + fraction(&world));
    }
    world.predicted_us = world.us[0];
    return world;
}

static double best_of(const struct world *world)
{
    double best = world->us[0];
    for (uint32_t i = 1; i < world->count; i++) {
        best = fmin(best, world->us[i]);
    }
    return best;
}

/* As good as the best: the predicted algorithm within 5%, and within 1% where calls take 100 ms. */
static bool is_good(const struct world *world, uint32_t verdict)
{
    double best = best_of(world);
    double least = verdict != 0 ? 1.0001 : best < 100e3 ? 1.0501 : 1.0101;
    return world->us[verdict] <= least * best;
}

static void the_fastest_is_found_or_the_predicted_one_is_as_good(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct world world = random_world(&random);
        uint32_t verdict = try_all(&world);
        if (!is_good(&world, verdict)) {
            fail_msg("run %d: %u takes %g, the best %g", run, verdict, world.us[verdict],
                     best_of(&world));
        }
    }
}

/* In any noise: what is given up is bounded, everybody had a turn, and it ends. */
static void every_one_has_a_turn_and_it_ends(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct world world = random_world(&random);
        world.noise = test_random_below(&random, 3);
        world.late_us = test_random_below(&random, 2) * 10 * world.us[0];
        assert_in_range(try_all(&world), 0, world.count - 1);
        assert_in_range(world.rounds, 1, MUSTER_AUTOTUNE_ROUNDS_MAX);
        assert_in_range(calls_of(&world), world.count,
                        MUSTER_AUTOTUNE_ROUNDS_MAX * (uintmax_t)MUSTER_AUTOTUNE_CALLS_MAX);
        for (uint32_t i = 0; i < world.count; i++) {
            assert_true(world.calls[i] >= 1);
        }
    }
}

/* With those that were slower, after so many calls of each that nothing could be known before. */
static double lost_after(const struct world *world, uint32_t calls)
{
    double lost_us = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        uint32_t counted = world->calls[i] > calls ? world->calls[i] - calls : 0;
        lost_us += counted * (world->us[i] - best_of(world));
    }
    return lost_us;
}

static void what_is_lost_with_slow_ones_is_bounded(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct world world = random_world(&random);
        (void)try_all(&world);
        double lost_us = lost_after(&world, 4);
        if (lost_us > 100e3 + best_of(&world)) {
            fail_msg("run %d: %g us were lost", run, lost_us);
        }
    }
}

static void long_calls_that_are_clearly_slower_are_tried_once(void **state)
{
    (void)state;
    struct world world = {.random = 1,
                          .members = 2,
                          .count = 4,
                          .us = {900e3, 800e3, 1300e3, 850e3},
                          .predicted_us = 900e3};
    assert_int_equal(try_all(&world), 1);
    assert_int_equal(world.calls[2], 1);
    for (uint32_t i = 0; i < world.count; i++) {
        assert_true(i == 2 || world.calls[i] >= 3);
    }
}

/* Nothing is lost with those that are as fast, so that they are tried as often as short calls. */
static void long_calls_that_are_as_fast_are_tried_often(void **state)
{
    (void)state;
    struct world world = {.random = 1, .members = 3, .count = 8, .predicted_us = 20e3};
    for (uint32_t i = 0; i < world.count; i++) {
        world.us[i] = 20e3 + i;
    }
    assert_int_equal(try_all(&world), 0);
    assert_int_equal(world.calls[0], 1 + 2 + 4 + 8 + 16);
    assert_int_equal(calls_of(&world), 8 + 8 * 2 + 8 * 4 + 4 * 8 + 2 * 16);
}

/* Each has one try, then two: that is the least. */
static void nobody_waits_long_for_the_verdict(void **state)
{
    (void)state;
    struct world world = {.random = 1, .members = 3, .count = 8, .predicted_us = 900e3};
    for (uint32_t i = 0; i < world.count; i++) {
        world.us[i] = 900e3 + i;
    }
    assert_int_equal(try_all(&world), 0);
    assert_int_equal(calls_of(&world), 8 + 8 * 2);
}

/* Members may share a core when the first calls are made, where other algorithms are fast. That
 * may last until half of the second round. */
static void what_soon_ends_meets_all_alike(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct world world = {.random = test_random(&random) | 1, .members = 2, .predicted_us = 9};
        world.count = 2 + test_random_below(&random, 3);
        world.change = test_random_below(&random, 8 * world.count + 1);
        for (uint32_t i = 0; i < world.count; i++) {
            world.us[i] = 8 + 2 * fraction(&world);
            world.before_us[i] = 10 + 5 * fraction(&world);
        }
        uint32_t verdict = try_all(&world);
        if (!is_good(&world, verdict)) {
            fail_msg("run %d: %u takes %g, the best %g", run, verdict, world.us[verdict],
                     best_of(&world));
        }
    }
}

/* One call that something came between, as the first of each is, says nothing. */
static void what_is_slow_once_is_not_slow(void **state)
{
    (void)state;
    struct muster_autotune_run trial;
    const size_t algorithms[] = {0, 1};
    float heard[MUSTER_AUTOTUNE_WORDS_MAX];
    size_t verdict = NONE;
    muster_autotune_run_begin(&trial, algorithms, 2, 1000);
    for (uint32_t i = 0; !muster_autotune_run_is_due(&trial); i++) {
        muster_autotune_run_note(&trial, muster_autotune_run_next(&trial) == 0 ? 300
                                         : i % 2 == 0                          ? 9000
                                                                               : 100);
    }
    (void)muster_autotune_run_say(&trial, heard);
    assert_true(muster_autotune_run_judge(&trial, heard, &verdict));
    assert_int_equal(verdict, 1);
}

/* Where members come late by more than the calls take, the order of the algorithms still shows. */
static void who_comes_late_does_not_decide(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct world world = {.random = test_random(&random) | 1,
                              .members = 2 + test_random_below(&random, MEMBERS_MAX - 1),
                              .count = 3,
                              .us = {100, 40, 200},
                              .late_us = 5000,
                              .predicted_us = 100};
        assert_int_equal(try_all(&world), 1);
    }
}

/* What other members say may be anything: there is a verdict of the algorithms that there are. */
static void anything_may_be_heard(void **state)
{
    (void)state;
    static const float values[] = {0, -1, 1, NAN, INFINITY, -INFINITY, 1e30F};
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct muster_autotune_run trial;
        const size_t algorithms[] = {3, 1, 4, 5};
        size_t verdict = NONE;
        muster_autotune_run_begin(&trial, algorithms, 4, 10);
        for (bool over = false; !over;) {
            float heard[MUSTER_AUTOTUNE_WORDS_MAX];
            while (!muster_autotune_run_is_due(&trial)) {
                muster_autotune_run_note(&trial, 1);
            }
            for (int i = 0; i < MUSTER_AUTOTUNE_WORDS_MAX; i++) {
                heard[i] = values[test_random_below(&random, 7)];
            }
            over = muster_autotune_run_judge(&trial, heard, &verdict);
        }
        assert_in_range(verdict, 1, 5);
    }
}

/* What is tried ------------------------------------------------------------------------------- */

static void what_is_tried_begins_with_the_predicted_one(void **state)
{
    (void)state;
    const uint32_t ranks[] = {2, 3, 8, 12, 40};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        struct muster_topology topology = test_topology_even(ranks[i], ranks[i] % 4 == 0 ? 4 : 1);
        for (uint64_t count = 1; count <= 1 << 24; count *= 16) {
            const struct muster_plan plan = {
                .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
            struct muster_autotune_run trial;
            size_t predicted = 0;
            assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &predicted),
                             MUSTER_OK);
            assert_int_equal(
                muster_autotune_run_init(&trial, predicted, &plan, 4, &muster_cost_model_default),
                MUSTER_OK);
            assert_in_range(trial.count, 1, MUSTER_AUTOTUNE_ALGORITHMS_MAX);
            assert_int_equal(trial.algorithms[0], predicted);
            for (uint32_t j = 0; j < trial.count; j++) {
                assert_true(test_fits(trial.algorithms[j], &plan));
                for (uint32_t k = 0; k < j; k++) {
                    assert_true(trial.algorithms[j] != trial.algorithms[k]);
                }
            }
        }
        muster_topology_finish(&topology);
    }
}

/* One rank that serves the other takes as long, by the model, as all that go there and back. */
static void what_is_predicted_to_be_as_fast_has_a_turn(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(2, 1);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1};
    size_t predicted = 0;
    size_t server = 0;
    assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &predicted), MUSTER_OK);
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "all_to_one", &server), MUSTER_OK);
    struct muster_autotune_run trial;
    assert_int_equal(
        muster_autotune_run_init(&trial, predicted, &plan, 4, &muster_cost_model_default),
        MUSTER_OK);
    bool tried = false;
    for (uint32_t i = 0; i < trial.count; i++) {
        tried = tried || trial.algorithms[i] == server;
    }
    assert_true(tried);
    muster_topology_finish(&topology);
}

/* What has been found out --------------------------------------------------------------------- */

static const struct muster_plan *plan_for(uint64_t count)
{
    static const uint32_t size = 4;
    static const struct muster_topology topology = {.hosts = 1, .ranks = size};
    static struct muster_plan plan;
    plan =
        (struct muster_plan){.collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
    return &plan;
}

static void kinds_are_half_octaves(void **state)
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

static void the_table_is_full_some_time(void **state)
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

static void what_is_settled_goes_to_the_next_generation(void **state)
{
    (void)state;
    struct muster_tuning tuning = {.count = 0};
    struct muster_tuning next = {.count = 0};
    struct muster_tuned_list list;
    size_t ring = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "ring_chunked", &ring), MUSTER_OK);
    muster_tuning_add(&tuning, plan_for(100), 4);
    muster_tuning_add(&tuning, plan_for(1000), 4);
    muster_tuning_settle(&tuning.kinds[1], ring);
    muster_tuning_export(&tuning, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(muster_tuned_check(&list), MUSTER_OK);
    muster_tuning_import(&next, &list);
    assert_null(muster_tuning_find(&next, plan_for(100), 4));
    const struct muster_size_class *kind = muster_tuning_find(&next, plan_for(1000), 4);
    assert_non_null(kind);
    assert_true(kind->settled && kind->tuned.algorithm == ring);
    muster_tuning_clear(&tuning);
    muster_tuning_clear(&next);
}

static void what_cannot_have_been_found_out_is_refused(void **state)
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
        cmocka_unit_test(every_one_has_a_turn_and_it_ends),
        cmocka_unit_test(what_is_lost_with_slow_ones_is_bounded),
        cmocka_unit_test(long_calls_that_are_clearly_slower_are_tried_once),
        cmocka_unit_test(long_calls_that_are_as_fast_are_tried_often),
        cmocka_unit_test(nobody_waits_long_for_the_verdict),
        cmocka_unit_test(what_soon_ends_meets_all_alike),
        cmocka_unit_test(what_is_slow_once_is_not_slow),
        cmocka_unit_test(who_comes_late_does_not_decide),
        cmocka_unit_test(anything_may_be_heard),
        cmocka_unit_test(what_is_tried_begins_with_the_predicted_one),
        cmocka_unit_test(what_is_predicted_to_be_as_fast_has_a_turn),
        cmocka_unit_test(kinds_are_half_octaves),
        cmocka_unit_test(the_table_is_full_some_time),
        cmocka_unit_test(what_is_settled_goes_to_the_next_generation),
        cmocka_unit_test(what_cannot_have_been_found_out_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
