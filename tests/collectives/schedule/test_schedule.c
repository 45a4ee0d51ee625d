/* Which receives may be posted one round early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/schedule/schedule.h"

enum { STEPS_MAX = 100 };

static struct muster_step steps[STEPS_MAX];

static struct muster_step send_step(uint32_t round, uint8_t source, uint64_t offset)
{
    return (struct muster_step){.kind = MUSTER_STEP_SEND,
                                .source = source,
                                .round = round,
                                .peer = 1,
                                .span = {.offset = offset, .count = 4}};
}

static struct muster_step receive_step(uint32_t round, uint8_t target, uint64_t at)
{
    return (struct muster_step){.kind = MUSTER_STEP_RECV,
                                .target = target,
                                .round = round,
                                .peer = 1,
                                .span = {.offset = at, .count = 4},
                                .at = at};
}

static struct muster_step reduce_step(uint8_t kind, uint32_t round, uint8_t source, uint64_t offset,
                                      uint8_t target)
{
    return (struct muster_step){.kind = kind,
                                .source = source,
                                .target = target,
                                .round = round,
                                .peer = 1,
                                .span = {.offset = offset, .count = 4},
                                .at = 8};
}

static bool is_early(size_t count, size_t step, uint64_t input_count)
{
    const struct muster_schedule schedule = {.ranks = 2,
                                             .input_count = input_count,
                                             .output_count = 16,
                                             .lanes = 1,
                                             .step_count = count,
                                             .steps = steps};
    return muster_schedule_receives_early(&schedule, step);
}

/* True if the second step may be posted with the first. */
static bool follows_early(struct muster_step first, struct muster_step second)
{
    steps[0] = first;
    steps[1] = second;
    return is_early(2, 1, 16);
}

static void a_receive_of_elements_that_the_round_before_does_not_use_is_early(void **state)
{
    (void)state;
    assert_true(follows_early(send_step(0, MUSTER_OUTPUT, 0), receive_step(1, MUSTER_OUTPUT, 4)));
    assert_true(follows_early(send_step(0, MUSTER_OUTPUT, 4), receive_step(1, MUSTER_SCRATCH, 4)));
    assert_true(
        follows_early(receive_step(0, MUSTER_OUTPUT, 4), receive_step(1, MUSTER_OUTPUT, 8)));
    assert_false(is_early(2, 0, 16));
}

static void elements_used_by_the_round_before_must_not_be_overwritten_early(void **state)
{
    (void)state;
    assert_false(follows_early(send_step(0, MUSTER_OUTPUT, 1), receive_step(1, MUSTER_OUTPUT, 4)));
    assert_false(
        follows_early(receive_step(0, MUSTER_OUTPUT, 7), receive_step(1, MUSTER_OUTPUT, 4)));
    const struct muster_step copy =
        reduce_step(MUSTER_STEP_COPY, 0, MUSTER_SCRATCH, 0, MUSTER_OUTPUT);
    assert_false(follows_early(copy, receive_step(1, MUSTER_SCRATCH, 3)));
    assert_false(follows_early(copy, receive_step(1, MUSTER_OUTPUT, 11)));
    assert_true(follows_early(copy, receive_step(1, MUSTER_OUTPUT, 12)));
}

static void the_data_to_reduce_with_must_be_complete(void **state)
{
    (void)state;
    const struct muster_step reduce =
        reduce_step(MUSTER_STEP_RECV_REDUCE, 1, MUSTER_SCRATCH, 0, MUSTER_OUTPUT);
    assert_false(follows_early(receive_step(0, MUSTER_SCRATCH, 2), reduce));
    assert_true(follows_early(receive_step(0, MUSTER_SCRATCH, 4), reduce));
    assert_true(follows_early(send_step(0, MUSTER_SCRATCH, 0), reduce));
}

static void input_and_output_may_be_the_same_memory(void **state)
{
    (void)state;
    assert_false(follows_early(send_step(0, MUSTER_INPUT, 4), receive_step(1, MUSTER_OUTPUT, 4)));
    assert_true(follows_early(send_step(0, MUSTER_INPUT, 0), receive_step(1, MUSTER_OUTPUT, 4)));
    /* A buffer of another size is at an unknown place in it. */
    assert_false(is_early(2, 1, 8));
}

static void only_the_first_receive_from_a_peer_is_early(void **state)
{
    (void)state;
    steps[0] = send_step(0, MUSTER_INPUT, 0);
    steps[1] = receive_step(1, MUSTER_OUTPUT, 4);
    steps[2] = receive_step(1, MUSTER_OUTPUT, 8);
    assert_true(is_early(3, 1, 16));
    assert_false(is_early(3, 2, 16));
    steps[2].peer = 0;
    assert_true(is_early(3, 2, 16));
}

static void other_lanes_and_earlier_rounds_do_not_matter(void **state)
{
    (void)state;
    steps[0] = send_step(0, MUSTER_OUTPUT, 4);
    steps[1] = send_step(1, MUSTER_OUTPUT, 0);
    steps[2] = receive_step(2, MUSTER_OUTPUT, 4);
    assert_true(is_early(3, 2, 16));
    steps[2].lane = 1;
    steps[2].round = 0;
    assert_false(is_early(3, 2, 16));
}

static void the_search_through_long_rounds_is_bounded(void **state)
{
    (void)state;
    for (size_t i = 0; i <= MUSTER_EARLY_STEPS_MAX; i++) {
        steps[i] = send_step(0, MUSTER_OUTPUT, 0);
    }
    steps[MUSTER_EARLY_STEPS_MAX] = receive_step(1, MUSTER_OUTPUT, 4);
    assert_true(is_early(MUSTER_EARLY_STEPS_MAX + 1, MUSTER_EARLY_STEPS_MAX, 16));
    steps[MUSTER_EARLY_STEPS_MAX] = send_step(0, MUSTER_OUTPUT, 0);
    steps[MUSTER_EARLY_STEPS_MAX + 1] = receive_step(1, MUSTER_OUTPUT, 4);
    assert_false(is_early(MUSTER_EARLY_STEPS_MAX + 2, MUSTER_EARLY_STEPS_MAX + 1, 16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_of_elements_that_the_round_before_does_not_use_is_early),
        cmocka_unit_test(elements_used_by_the_round_before_must_not_be_overwritten_early),
        cmocka_unit_test(the_data_to_reduce_with_must_be_complete),
        cmocka_unit_test(input_and_output_may_be_the_same_memory),
        cmocka_unit_test(only_the_first_receive_from_a_peer_is_early),
        cmocka_unit_test(other_lanes_and_earlier_rounds_do_not_matter),
        cmocka_unit_test(the_search_through_long_rounds_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
