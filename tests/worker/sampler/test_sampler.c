/* The parts of a data set: exhaustively for small ones, with every change of size after every step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "worker/muster.h"

enum { SAMPLES_MAX = 9, SIZES = 4, BATCH_MAX = 11, MANY = 700 };

/* All members of a step use their parts. */
static void use_step(const muster_sampler *sampler, uint64_t batch, uint32_t size, uint8_t *used)
{
    uint64_t next = sampler->position;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        uint64_t first;
        uint64_t count;
        assert_int_equal(muster_sampler_part(sampler, batch, rank, size, &first, &count),
                         MUSTER_OK);
        assert_int_equal(first, next);
        next += count;
        least = count < least ? count : least;
        most = count > most ? count : most;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t index = muster_sampler_index(sampler, first + i);
            assert_true(index < sampler->samples);
            used[index]++;
        }
    }
    assert_true(most - least <= 1);
}

/* From here on with every sequence of sizes. At the end of the epoch each sample was used once. */
static void try_all_sizes(muster_sampler sampler, uint64_t batch, const uint8_t *used_so_far)
{
    for (uint32_t size = 1; size <= SIZES; size++) {
        uint8_t used[SAMPLES_MAX];
        memcpy(used, used_so_far, sizeof used);
        muster_sampler next = sampler;
        use_step(&sampler, batch, size, used);
        muster_sampler_advance(&next, batch);
        if (next.epoch == sampler.epoch) {
            assert_true(next.position > sampler.position);
            try_all_sizes(next, batch, used);
            continue;
        }
        assert_int_equal(next.epoch, sampler.epoch + 1);
        assert_int_equal(next.position, 0);
        for (uint64_t i = 0; i < sampler.samples; i++) {
            assert_int_equal(used[i], 1);
        }
    }
}

static void whatever_sizes_follow_each_other_an_epoch_uses_each_sample_once(void **state)
{
    (void)state;
    const uint8_t none[SAMPLES_MAX] = {0};
    for (uint64_t samples = 1; samples <= SAMPLES_MAX; samples++) {
        for (uint64_t batch = samples > 6 ? 2 : 1; batch <= BATCH_MAX; batch++) {
            for (int shuffled = 0; shuffled < 2; shuffled++) {
                muster_sampler sampler;
                assert_int_equal(muster_sampler_init(&sampler, samples, shuffled, 7), MUSTER_OK);
                try_all_sizes(sampler, batch, none);
            }
        }
    }
}

static void each_epoch_has_an_order_of_its_own(void **state)
{
    (void)state;
    for (uint64_t samples = 1; samples <= MANY; samples++) {
        muster_sampler first;
        assert_int_equal(muster_sampler_init(&first, samples, 1, samples), MUSTER_OK);
        muster_sampler second = first;
        muster_sampler other_seed = first;
        second.epoch = 1;
        other_seed.seed++;
        uint8_t used[MANY] = {0};
        uint64_t same_epoch = 0;
        uint64_t same_seed = 0;
        uint64_t fixed = 0;
        for (uint64_t i = 0; i < samples; i++) {
            uint64_t index = muster_sampler_index(&first, i);
            assert_true(index < samples);
            assert_int_equal(used[index]++, 0);
            same_epoch += index == muster_sampler_index(&second, i);
            same_seed += index == muster_sampler_index(&other_seed, i);
            fixed += index == i;
        }
        if (samples >= 100) { /* of two random orders one number agrees on average */
            assert_true(same_epoch < 12 && same_seed < 12 && fixed < 12);
        }
    }
}

/* Over many seeds each sample is at each position equally often: chi-square with 99 degrees of
 * freedom is above 175 in 3 of a million cases. The seeds are fixed. */
static void samples_are_spread_evenly(void **state)
{
    (void)state;
    enum { SAMPLES = 100, SEEDS = 20000 };
    const uint64_t positions[] = {0, 1, 50, 99};
    for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++) {
        uint32_t seen[SAMPLES] = {0};
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            muster_sampler sampler;
            assert_int_equal(muster_sampler_init(&sampler, SAMPLES, 1, seed), MUSTER_OK);
            seen[muster_sampler_index(&sampler, positions[p])]++;
        }
        double sum = 0;
        for (int i = 0; i < SAMPLES; i++) {
            double off = (double)seen[i] - (double)SEEDS / SAMPLES;
            sum += off * off / ((double)SEEDS / SAMPLES);
        }
        print_message("position %d: chi-square %.1f\n", (int)positions[p], sum);
        assert_true(sum < 175);
    }
}

static void the_largest_data_sets_have_orders_too(void **state)
{
    (void)state;
    const uint64_t sizes[] = {UINT64_C(1) << 32, (UINT64_C(1) << 40) + 1, UINT64_C(1) << 62};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        muster_sampler sampler;
        uint64_t first;
        uint64_t count;
        assert_int_equal(muster_sampler_init(&sampler, sizes[i], 1, 3), MUSTER_OK);
        assert_true(muster_sampler_index(&sampler, sizes[i] - 1) < sizes[i]);
        assert_int_equal(
            muster_sampler_part(&sampler, UINT64_MAX, UINT32_MAX - 1, UINT32_MAX, &first, &count),
            MUSTER_OK);
        assert_int_equal(first + count, sizes[i]);
    }
}

static void a_wrong_call_is_refused_by_name(void **state)
{
    (void)state;
    muster_sampler sampler = {0};
    uint64_t first = 5;
    uint64_t count = 6;
    assert_int_equal(muster_sampler_init(&sampler, 0, 1, 0), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "sampler: 0 samples: a data set has 1 to 2^62");
    assert_int_equal(muster_sampler_part(&sampler, 1, 0, 1, &first, &count), MUSTER_INVALID);
    assert_int_equal(muster_sampler_init(&sampler, 10, 0, 0), MUSTER_OK);
    assert_int_equal(muster_sampler_part(&sampler, 0, 0, 1, &first, &count), MUSTER_INVALID);
    assert_int_equal(muster_sampler_part(&sampler, 4, 3, 3, &first, &count), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "sampler: a batch of 4, rank 3 of size 3");
    sampler.position = 10;
    assert_int_equal(muster_sampler_part(&sampler, 4, 0, 1, &first, &count), MUSTER_INVALID);
    assert_int_equal(first, 5);
    assert_int_equal(count, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_sizes_follow_each_other_an_epoch_uses_each_sample_once),
        cmocka_unit_test(each_epoch_has_an_order_of_its_own),
        cmocka_unit_test(samples_are_spread_evenly),
        cmocka_unit_test(the_largest_data_sets_have_orders_too),
        cmocka_unit_test(a_wrong_call_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
