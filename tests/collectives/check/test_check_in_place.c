/*
 * The checker walks a second time, in place, only where that can give other values than out of
 * place. Here small random programs must get the same result as by always walking both ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/check/check_parts.h"
#include "collectives/check/contents.h"
#include "collectives/schedule/builder.h"
#include "tests/support/schedules.h"

enum { RANKS = 2, COUNT = 3, PROGRAMS = 100000, STEPS = 4 };

/* The same schedule on both ranks: they exchange INPUT, then do local steps. */
struct program {
    struct muster_shape shapes[RANKS];
    struct muster_schedule schedules[RANKS];
};

typedef void (*program_body)(struct muster_builder *builder, uint64_t random);

static struct program make(program_body body, uint64_t random)
{
    struct program program;
    struct muster_topology topology = test_topology_even(RANKS, 1);
    const struct muster_span all = {.count = COUNT};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct muster_plan plan = {
            .collective = MUSTER_ALLREDUCE, .topology = &topology, .rank = rank, .count = COUNT};
        struct muster_builder builder;
        muster_builder_init(&plan, &builder);
        uint64_t at = muster_builder_reserve(&builder, COUNT);
        muster_builder_send(&builder, 1 - rank, MUSTER_INPUT, all);
        muster_builder_recv(&builder, 1 - rank, MUSTER_SCRATCH,
                            (struct muster_span){.offset = at, .count = COUNT});
        body(&builder, random);
        program.shapes[rank] = muster_plan_shape(&plan);
        assert_int_equal(muster_builder_finish(&builder, &program.schedules[rank]), MUSTER_OK);
    }
    muster_topology_finish(&topology);
    return program;
}

static void finish(struct program *program)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        muster_schedule_finish(&program->schedules[rank]);
    }
}

static bool is_proven(const struct program *program)
{
    struct muster_check_result result;
    assert_int_equal(muster_check(program->shapes, program->schedules, RANKS, false, &result),
                     MUSTER_OK);
    return result.proven;
}

/* Checks races and values of one walk: in place, or out of place. */
static bool passes_walk(const struct program *program, bool in_place)
{
    struct muster_walk walk;
    assert_int_equal(muster_walk_init(program->schedules, RANKS, &walk), MUSTER_OK);
    muster_status status = MUSTER_OK;
    for (uint32_t rank = 0; rank < RANKS && status == MUSTER_OK; rank++) {
        status = muster_check_races(&program->shapes[rank], &program->schedules[rank], in_place);
    }
    if (status == MUSTER_OK) {
        status = muster_check_values(program->shapes, &walk, in_place, NULL, NULL);
    }
    muster_walk_finish(&walk);
    return status == MUSTER_OK;
}

static const struct muster_span everything = {.count = COUNT};

/* OUTPUT is set to the peer's data, then the rank's own data is added. In place, the first step has
 * overwritten the rank's own data. */
static void overwrite_and_reduce(struct muster_builder *builder, uint64_t random)
{
    (void)random;
    muster_builder_next_round(builder);
    muster_builder_copy(builder, MUSTER_SCRATCH, everything, MUSTER_OUTPUT, 0);
    muster_builder_next_round(builder);
    uint64_t late = muster_builder_reserve(builder, COUNT);
    muster_builder_copy(builder, MUSTER_INPUT, everything, MUSTER_SCRATCH, late);
    muster_builder_next_round(builder);
    struct muster_span span = {.offset = late, .count = COUNT};
    muster_builder_reduce(builder, MUSTER_SCRATCH, span, MUSTER_OUTPUT, 0);
}

/* The result is complete before INPUT is read once more, so that read does not change it. */
static void read_late(struct muster_builder *builder, uint64_t random)
{
    (void)random;
    muster_builder_next_round(builder);
    muster_builder_copy(builder, MUSTER_INPUT, everything, MUSTER_OUTPUT, 0);
    muster_builder_next_round(builder);
    muster_builder_reduce(builder, MUSTER_SCRATCH, everything, MUSTER_OUTPUT, 0);
    muster_builder_next_round(builder);
    muster_builder_copy(builder, MUSTER_INPUT, everything, MUSTER_SCRATCH, 0);
}

static void input_that_is_read_after_it_was_overwritten_is_found(void **state)
{
    (void)state;
    struct program program = make(overwrite_and_reduce, 0);
    struct muster_check_result result;
    assert_int_equal(muster_check(program.shapes, program.schedules, RANKS, false, &result),
                     MUSTER_OK);
    assert_false(result.proven);
    assert_string_equal(result.why, "rank 1 lane 0 round 3 (in place): rank 0 is counted twice");
    finish(&program);
}

static void a_late_read_of_input_that_is_not_used_does_no_harm(void **state)
{
    (void)state;
    struct program program = make(read_late, 0);
    assert_true(is_proven(&program));
    finish(&program);
}

static struct muster_span random_span(uint64_t *random, uint64_t *ret_at)
{
    uint64_t count = 1 + test_random_below(random, COUNT);
    *ret_at = test_random_below(random, (uint32_t)(COUNT - count + 1));
    return (struct muster_span){.offset = test_random_below(random, (uint32_t)(COUNT - count + 1)),
                                .count = count};
}

static void some_steps(struct muster_builder *builder, uint64_t random)
{
    for (uint32_t i = 0, steps = 1 + test_random_below(&random, STEPS); i < steps; i++) {
        uint64_t at = 0;
        struct muster_span span = random_span(&random, &at);
        at = test_random_below(&random, 2) == 0 ? at : span.offset;
        span = test_random_below(&random, 2) == 0 ? span : everything;
        at = span.count == COUNT ? 0 : at;
        enum muster_buffer source = (enum muster_buffer)test_random_below(&random, 3);
        enum muster_buffer target = (enum muster_buffer)(1 + test_random_below(&random, 2));
        muster_builder_next_round(builder);
        if (test_random_below(&random, 2) == 0) {
            muster_builder_copy(builder, source, span, target, at);
        } else {
            muster_builder_reduce(builder, source, span, target, at);
        }
    }
}

static void random_programs_get_the_result_of_walking_both_ways(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    size_t proven = 0;
    size_t only_out_of_place = 0;
    for (int i = 0; i < PROGRAMS; i++) {
        struct program program = make(some_steps, test_random(&random));
        bool out_of_place = passes_walk(&program, false);
        bool both = out_of_place && passes_walk(&program, true);
        assert_true(is_proven(&program) == both);
        proven += both ? 1 : 0;
        only_out_of_place += out_of_place && !both ? 1 : 0;
        finish(&program);
    }
    print_message("%zu proven, %zu right out of place only\n", proven, only_out_of_place);
    assert_true(proven > 0 && only_out_of_place > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_that_is_read_after_it_was_overwritten_is_found),
        cmocka_unit_test(a_late_read_of_input_that_is_not_used_does_no_harm),
        cmocka_unit_test(random_programs_get_the_result_of_walking_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
