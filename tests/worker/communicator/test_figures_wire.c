/* Link figures as bytes: what is decoded is what was encoded, and what no member encodes is
 * refused.
 */
#include "tests/support/schedules.h"
#include "worker/communicator/figures_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Places in the records; figures_wire.h has the tables. */
enum { AT_ONE_MACHINE = 20, AT_TUNED_COUNT = 148, AT_TUNED = 152, AT_FLAGS = 1304 };

enum { RUNS = 300 };

static uint64_t seed;

/* Any bits but those of a NaN, of which a comparison could not tell whether they are equal. */
static double random_double(void)
{
    double value;
    do {
        const uint64_t bits = test_random(&seed);
        memcpy(&value, &bits, sizeof value);
    } while (isnan(value));
    return value;
}

static struct muster_cost_model random_model(void)
{
    struct muster_cost_model model = {
        .core = {.reduce_GBps = random_double(),
                 .copy_GBps = random_double(),
                 .cores = (uint32_t)test_random(&seed),
                 .one_machine = test_random_below(&seed, 2)},
        .burst_bytes = test_random(&seed),
        .eager_bytes = test_random(&seed),
    };
    for (size_t i = 0; i < MUSTER_LEVEL_COUNT; i++) {
        model.links[i] = (struct muster_link_figures){.latency_us = random_double(),
                                                      .posting_us = random_double(),
                                                      .bandwidth_GBps = random_double(),
                                                      .shared_GBps = random_double()};
    }
    return model;
}

static struct muster_figures_choice random_choice(void)
{
    struct muster_figures_choice choice = {
        .figures = {.model = random_model(),
                    .levels = (uint32_t)test_random(&seed),
                    .hosts_digest = (uint32_t)test_random(&seed),
                    .shape_digest = (uint32_t)test_random(&seed),
                    .tuned.count = test_random_below(&seed, MUSTER_TUNED_MAX + 1)},
        .measure = test_random_below(&seed, 2) != 0,
        .autotune = test_random_below(&seed, 2) != 0,
        .outdated = test_random_below(&seed, 2) != 0,
    };
    for (uint32_t i = 0; i < choice.figures.tuned.count; i++) {
        choice.figures.tuned.items[i] = (struct muster_tuned){
            .collective = (uint8_t)test_random_below(&seed, MUSTER_COLLECTIVE_END),
            .ordered = (uint8_t)test_random_below(&seed, 2),
            .size_class = (uint16_t)test_random(&seed),
            .element_size_bytes = (uint32_t)test_random(&seed),
            .algorithm = (uint32_t)test_random(&seed)};
    }
    return choice;
}

static void expect_links(const struct muster_cost_model *got, const struct muster_cost_model *sent)
{
    for (size_t i = 0; i < MUSTER_LEVEL_COUNT; i++) {
        assert_true(got->links[i].latency_us == sent->links[i].latency_us);
        assert_true(got->links[i].posting_us == sent->links[i].posting_us);
        assert_true(got->links[i].bandwidth_GBps == sent->links[i].bandwidth_GBps);
        assert_true(got->links[i].shared_GBps == sent->links[i].shared_GBps);
    }
}

static void expect_model(const struct muster_cost_model *got, const struct muster_cost_model *sent)
{
    assert_true(got->core.reduce_GBps == sent->core.reduce_GBps);
    assert_true(got->core.copy_GBps == sent->core.copy_GBps);
    assert_int_equal(got->core.cores, sent->core.cores);
    assert_int_equal(got->core.one_machine, sent->core.one_machine);
    assert_int_equal(got->burst_bytes, sent->burst_bytes);
    assert_int_equal(got->eager_bytes, sent->eager_bytes);
    expect_links(got, sent);
}

static void expect_tuned(const struct muster_tuned_list *got, const struct muster_tuned_list *sent)
{
    assert_int_equal(got->count, sent->count);
    for (uint32_t i = 0; i < sent->count; i++) {
        assert_int_equal(got->items[i].collective, sent->items[i].collective);
        assert_int_equal(got->items[i].ordered, sent->items[i].ordered);
        assert_int_equal(got->items[i].size_class, sent->items[i].size_class);
        assert_int_equal(got->items[i].element_size_bytes, sent->items[i].element_size_bytes);
        assert_int_equal(got->items[i].algorithm, sent->items[i].algorithm);
    }
}

static void a_choice_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        const struct muster_figures_choice sent = random_choice();
        struct muster_figures_choice got;
        unsigned char bytes[MUSTER_FIGURES_CHOICE_SIZE];
        memset(&got, 0xee, sizeof got);
        memset(bytes, 0xee, sizeof bytes);
        muster_figures_choice_encode(&sent, bytes);
        assert_int_equal(muster_figures_choice_decode(bytes, sizeof bytes, &got), MUSTER_OK);
        expect_model(&got.figures.model, &sent.figures.model);
        expect_tuned(&got.figures.tuned, &sent.figures.tuned);
        assert_int_equal(got.figures.levels, sent.figures.levels);
        assert_int_equal(got.figures.hosts_digest, sent.figures.hosts_digest);
        assert_int_equal(got.figures.shape_digest, sent.figures.shape_digest);
        assert_int_equal(got.measure, sent.measure);
        assert_int_equal(got.autotune, sent.autotune);
        assert_int_equal(got.outdated, sent.outdated);
    }
}

static void cores_are_decoded_as_they_were_encoded(void **state)
{
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        const struct muster_core_description sent = {.machine = random_double(),
                                                     .core_set = random_double(),
                                                     .cores = random_double(),
                                                     .online = random_double()};
        unsigned char bytes[MUSTER_CORE_DESCRIPTION_SIZE];
        muster_core_description_encode(&sent, bytes);
        const struct muster_core_description got = muster_core_description_decode(bytes);
        assert_true(got.machine == sent.machine);
        assert_true(got.core_set == sent.core_set);
        assert_true(got.cores == sent.cores);
        assert_true(got.online == sent.online);
    }
}

/* The numbers of the table, byte by byte. 1.0 is 3ff0000000000000, 2.0 is 4000000000000000, and
 * each doubling adds 1 to the exponent. */
static void a_cost_model_has_the_bytes_of_the_table(void **state)
{
    (void)state;
    const struct muster_cost_model model = {
        .core = {.reduce_GBps = 1, .copy_GBps = 2, .cores = 0x01020304, .one_machine = 1},
        .links = {{4, 8, 16, 32}, {64, 128, 256, 512}, {1024, 2048, 4096, 8192}},
        .burst_bytes = UINT64_C(0x1122334455667788),
        .eager_bytes = 0x4000,
    };
    /* clang-format off */
    static const unsigned char expected[MUSTER_COST_MODEL_SIZE] = {
        0, 0, 0, 0, 0, 0, 0xf0, 0x3f,   0, 0, 0, 0, 0, 0, 0x00, 0x40,
        4, 3, 2, 1,   1, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0x10, 0x40,   0, 0, 0, 0, 0, 0, 0x20, 0x40,
        0, 0, 0, 0, 0, 0, 0x30, 0x40,   0, 0, 0, 0, 0, 0, 0x40, 0x40,
        0, 0, 0, 0, 0, 0, 0x50, 0x40,   0, 0, 0, 0, 0, 0, 0x60, 0x40,
        0, 0, 0, 0, 0, 0, 0x70, 0x40,   0, 0, 0, 0, 0, 0, 0x80, 0x40,
        0, 0, 0, 0, 0, 0, 0x90, 0x40,   0, 0, 0, 0, 0, 0, 0xa0, 0x40,
        0, 0, 0, 0, 0, 0, 0xb0, 0x40,   0, 0, 0, 0, 0, 0, 0xc0, 0x40,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        0x00, 0x40, 0, 0, 0, 0, 0, 0,
    };
    /* clang-format on */
    unsigned char bytes[MUSTER_COST_MODEL_SIZE];
    struct muster_cost_model got;
    muster_cost_model_encode(&model, bytes);
    assert_memory_equal(bytes, expected, sizeof bytes);
    assert_int_equal(muster_cost_model_decode(expected, sizeof expected, &got), MUSTER_OK);
    expect_model(&got, &model);
}

static void the_end_of_a_choice_has_the_bytes_of_the_table(void **state)
{
    (void)state;
    const struct muster_figures_choice choice = {
        .figures = {.levels = 5,
                    .hosts_digest = 0xa1b2c3d4,
                    .shape_digest = 0xe5f60718,
                    .tuned = {.count = 1,
                              .items = {{.collective = 3,
                                         .ordered = 1,
                                         .size_class = 0x0102,
                                         .element_size_bytes = 8,
                                         .algorithm = 0x0a0b0c0d}}}},
        .measure = true,
        .outdated = true,
    };
    static const unsigned char expected[] = {5,    0,    0, 0, 0xd4, 0xc3, 0xb2, 0xa1, 0x18, 0x07,
                                             0xf6, 0xe5, 1, 0, 0,    0,    3,    1,    0x02, 0x01,
                                             8,    0,    0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 0};
    static const unsigned char flags[] = {5, 0, 0, 0};
    unsigned char bytes[MUSTER_FIGURES_CHOICE_SIZE];
    muster_figures_choice_encode(&choice, bytes);
    assert_memory_equal(bytes + MUSTER_COST_MODEL_SIZE, expected, sizeof expected);
    assert_memory_equal(bytes + AT_FLAGS, flags, sizeof flags);
}

/* Figures may be impossible, which muster_figures_check() finds; a NaN must arrive as one. */
static void impossible_figures_are_decoded(void **state)
{
    (void)state;
    struct muster_cost_model model = random_model();
    struct muster_cost_model got;
    unsigned char bytes[MUSTER_COST_MODEL_SIZE];
    model.links[1].latency_us = NAN;
    muster_cost_model_encode(&model, bytes);
    assert_int_equal(muster_cost_model_decode(bytes, sizeof bytes, &got), MUSTER_OK);
    assert_true(isnan(got.links[1].latency_us));
}

/* The decoder refuses the bytes, says why, and leaves its output alone. */
static void expect_refused(const unsigned char *bytes, size_t size_bytes, const char *text)
{
    struct muster_figures_choice got;
    struct muster_figures_choice before;
    memset(&got, 0xee, sizeof got);
    memset(&before, 0xee, sizeof before);
    assert_int_equal(muster_figures_choice_decode(bytes, size_bytes, &got), MUSTER_FATAL);
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", muster_last_error(), text);
    }
    assert_memory_equal(&got, &before, sizeof got);
}

static void a_record_of_another_size_is_refused(void **state)
{
    (void)state;
    const struct muster_figures_choice choice = random_choice();
    unsigned char bytes[MUSTER_FIGURES_CHOICE_SIZE];
    struct muster_cost_model model;
    muster_figures_choice_encode(&choice, bytes);
    expect_refused(bytes, sizeof bytes - 1, "of 1307 bytes, expected 1308");
    expect_refused(bytes, sizeof bytes + 1, "of 1309 bytes, expected 1308");
    expect_refused(bytes, 0, "of 0 bytes, expected 1308");
    assert_int_equal(muster_cost_model_decode(bytes, MUSTER_COST_MODEL_SIZE - 1, &model),
                     MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "of 135 bytes, expected 136"));
}

static void values_that_no_member_encodes_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char value;
        const char *text;
    } bad[] = {
        {AT_ONE_MACHINE, 2, "\"one machine\" is 2"},
        {AT_ONE_MACHINE + 3, 1, "\"one machine\" is 16777216"},
        {AT_TUNED_COUNT, MUSTER_TUNED_MAX + 1, "97 tuned algorithms, at most 96"},
        {AT_TUNED_COUNT + 3, 0x80, "tuned algorithms, at most 96"},
        {AT_TUNED, MUSTER_COLLECTIVE_END, "of collective 14"},
        {AT_TUNED + 1, 2, "ordered 2"},
        {AT_FLAGS, 8, "unknown flags 8"},
        {AT_FLAGS + 3, 1, "unknown flags 1000000"},
    };
    struct muster_figures_choice choice = random_choice();
    choice.figures.model.core.one_machine = 0;
    choice.figures.tuned.count = 1;
    choice.figures.tuned.items[0] = (struct muster_tuned){.collective = 0};
    choice.measure = choice.autotune = choice.outdated = false;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned char bytes[MUSTER_FIGURES_CHOICE_SIZE];
        muster_figures_choice_encode(&choice, bytes);
        bytes[bad[i].at] = bad[i].value;
        expect_refused(bytes, sizeof bytes, bad[i].text);
    }
}

static void whatever_is_decoded_is_within_its_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < 10 * RUNS; i++) {
        const struct muster_figures_choice choice = random_choice();
        struct muster_figures_choice got = {.measure = false};
        unsigned char bytes[MUSTER_FIGURES_CHOICE_SIZE];
        muster_figures_choice_encode(&choice, bytes);
        bytes[test_random_below(&seed, sizeof bytes)] = (unsigned char)test_random(&seed);
        if (muster_figures_choice_decode(bytes, sizeof bytes, &got) == MUSTER_OK) {
            assert_true(got.figures.tuned.count <= MUSTER_TUNED_MAX);
            assert_true(got.figures.model.core.one_machine <= 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_is_decoded_as_it_was_encoded),
        cmocka_unit_test(cores_are_decoded_as_they_were_encoded),
        cmocka_unit_test(a_cost_model_has_the_bytes_of_the_table),
        cmocka_unit_test(the_end_of_a_choice_has_the_bytes_of_the_table),
        cmocka_unit_test(impossible_figures_are_decoded),
        cmocka_unit_test(a_record_of_another_size_is_refused),
        cmocka_unit_test(values_that_no_member_encodes_are_refused),
        cmocka_unit_test(whatever_is_decoded_is_within_its_bounds),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
