/* Names, topologies, spans, the builder and the printer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/call/call.h"
#include "collectives/schedule/builder.h"
#include "tests/support/schedules.h"

static void names_and_values_belong_together(void **state)
{
    (void)state;
    for (int i = MUSTER_ALLREDUCE; i < MUSTER_COLLECTIVE_END; i++) {
        enum muster_collective collective = MUSTER_ALLREDUCE;
        const char *name = muster_collective_name((enum muster_collective)i);
        assert_int_equal(muster_collective_parse(name, &collective), MUSTER_OK);
        assert_int_equal(collective, i);
    }
    for (int i = 0; i < MUSTER_TYPE_COUNT; i++) {
        muster_type type = MUSTER_FLOAT32;
        assert_int_equal(muster_type_parse(muster_type_name((muster_type)i), &type), MUSTER_OK);
        assert_int_equal(type, i);
        assert_int_not_equal(muster_type_size_bytes((muster_type)i), 0);
    }
    for (int i = 0; i < MUSTER_OP_COUNT; i++) {
        muster_op op = MUSTER_SUM;
        assert_int_equal(muster_op_parse(muster_op_name((muster_op)i), &op), MUSTER_OK);
        assert_int_equal(op, i);
    }
    assert_string_equal(muster_collective_name((enum muster_collective)0), "unknown");
    assert_string_equal(muster_collective_name(MUSTER_COLLECTIVE_END), "unknown");
    assert_string_equal(muster_type_name((muster_type)MUSTER_TYPE_COUNT), "unknown");
    assert_string_equal(muster_op_name((muster_op)MUSTER_OP_COUNT), "unknown");
    assert_int_equal(muster_type_size_bytes((muster_type)MUSTER_TYPE_COUNT), 0);
    assert_string_equal(muster_buffer_name(MUSTER_SCRATCH), "scratch");
    assert_string_equal(muster_buffer_name(3), "unknown");
}

static void an_unknown_name_is_refused_and_the_known_ones_listed(void **state)
{
    (void)state;
    muster_op op = MUSTER_PROD;
    assert_int_equal(muster_op_parse("mean", &op), MUSTER_INVALID);
    assert_int_equal(op, MUSTER_PROD);
    assert_string_equal(muster_last_error(),
                        "no operation is called \"mean\"; known are sum, "
                        "average, prod, min, max, bitwise_and, bitwise_or, bitwise_xor, "
                        "logical_and, logical_or, user");
}

static void an_operation_that_a_type_lacks_is_refused_and_its_operations_listed(void **state)
{
    (void)state;
    assert_int_equal(muster_op_check(MUSTER_UINT16, MUSTER_BITWISE_XOR), MUSTER_OK);
    assert_int_equal(muster_op_check(MUSTER_BFLOAT16, MUSTER_AVERAGE), MUSTER_OK);
    assert_int_equal(muster_op_check(MUSTER_FLOAT16, MUSTER_BITWISE_AND), MUSTER_INVALID);
    assert_string_equal(muster_last_error(),
                        "float16 has no operation bitwise_and; it has "
                        "sum, average, prod, min, max, user");
    assert_int_equal(muster_op_check(MUSTER_BOOL, MUSTER_SUM), MUSTER_INVALID);
    assert_string_equal(muster_last_error(),
                        "bool has no operation sum; it has min, max, bitwise_and, "
                        "bitwise_or, bitwise_xor, logical_and, logical_or, user");
    assert_int_equal(muster_op_check(MUSTER_BOOL, (muster_op)77), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "there is no operation 77");
    assert_int_equal(muster_op_check((muster_type)99, MUSTER_SUM), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "there is no type 99");
}

static void every_type_loads_the_elements_that_were_stored(void **state)
{
    (void)state;
    for (int type = 0; type < MUSTER_TYPE_COUNT; type++) {
        uint64_t data[3];
        memset(data, 0x5a, sizeof data);
        muster_type_store(data, 1, (muster_type)type, 1);
        muster_type_store(data, 2, (muster_type)type, 0);
        assert_true(muster_type_load(data, 1, (muster_type)type) == 1);
        assert_true(muster_type_load(data, 2, (muster_type)type) == 0);
        const unsigned char *bytes = (const unsigned char *)data;
        size_t size = muster_type_size_bytes((muster_type)type);
        assert_int_equal(bytes[size - 1], 0x5a);
    }
}

static void a_mismatch_names_the_first_difference(void **state)
{
    (void)state;
    const struct muster_call here = {
        .collective = MUSTER_ALLREDUCE, .type = MUSTER_FLOAT32, .op = MUSTER_SUM, .count = 100};
    char text[128] = "";
    assert_true(muster_call_matches(&here, &here, text, sizeof text));
    struct muster_call there[] = {here, here, here, here, here};
    there[0].count = 128;
    there[1].type = MUSTER_INT64;
    there[2].op = 200; /* as it may come from the wire */
    there[3].root = 3;
    there[4].algorithm = 255; /* as it may come from the wire */
    static const char *const texts[] = {"count 100 here, 128 there",
                                        "type float32 here, int64 there",
                                        "operation sum here, unknown there", "root 0 here, 3 there",
                                        "algorithm ring here, unknown there"};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
        assert_false(muster_call_matches(&here, &there[i], text, sizeof text));
        assert_string_equal(text, texts[i]);
    }
    there[0] = here;
    there[0].collective = MUSTER_BARRIER;
    assert_false(muster_call_matches(&here, &there[0], text, 12));
    assert_string_equal(text, "collective ");
}

/* The rest of such calls does not matter: it follows from the two. */
static void calls_that_create_a_set_differ_in_their_members(void **state)
{
    (void)state;
    const struct muster_call here = {.collective = MUSTER_ALLREDUCE,
                                     .flags = MUSTER_CALL_SET,
                                     .root = 3,
                                     .count = MUSTER_CALL_LISTED | 0xab};
    struct muster_call there[] = {here, here, here, here};
    char text[128] = "";
    there[0].root = 1;
    there[1].count = MUSTER_CALL_LISTED | 0xcd;
    there[2].flags = 0;
    static const char *const texts[] = {
        "a set of 3 members (checksum 000000ab) here, a set of 1 member (checksum 000000ab) there",
        "a set of 3 members (checksum 000000ab) here, a set of 3 members (checksum 000000cd) there",
        "a set of 3 members (checksum 000000ab) here, allreduce there"};
    for (size_t i = 0; i < 3; i++) {
        assert_false(muster_call_matches(&here, &there[i], text, sizeof text));
        assert_string_equal(text, texts[i]);
    }
    assert_true(muster_call_matches(&here, &there[3], text, sizeof text));
}

static void ranks_are_found_on_ragged_hosts(void **state)
{
    (void)state;
    const uint32_t sizes[] = {3, 1, 4};
    struct muster_topology topology = test_topology(3, sizes);
    const uint32_t racks[] = {2, 1};
    assert_int_equal(muster_topology_set_racks(&topology, 2, racks), MUSTER_OK);
    const struct muster_position expected[] = {
        {0, 0, 3, 0, 3, 0}, {0, 1, 3, 0, 2, 0}, {0, 2, 3, 0, 2, 0}, {1, 0, 1, 1, 3, 0},
        {2, 0, 4, 2, 3, 1}, {2, 1, 4, 1, 2, 1}, {2, 2, 4, 1, 2, 1}, {2, 3, 4, 0, 1, 1}};
    for (uint32_t rank = 0; rank < 8; rank++) {
        struct muster_position position = muster_topology_locate(&topology, rank);
        assert_memory_equal(&position, &expected[rank], sizeof position);
        assert_int_equal(muster_topology_rank(&topology, position.host, position.local_rank), rank);
    }
    muster_topology_finish(&topology);
    muster_topology_finish(&topology);
    muster_topology_finish(NULL);
}

static void ranks_are_spread_evenly(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(7, 3);
    assert_int_equal(topology.host_sizes[0], 3);
    assert_int_equal(topology.host_sizes[1], 2);
    assert_int_equal(topology.host_sizes[2], 2);
    muster_topology_finish(&topology);
}

static void expect_topology(const struct muster_topology *topology, const char *expected)
{
    char text[128] = "";
    size_t used = 0;
    uint32_t host = 0;
    for (uint32_t rack = 0; rack < topology->racks; rack++) {
        assert_int_equal(topology->rack_first[rack], host);
        for (uint32_t i = 0; i < topology->rack_sizes[rack]; i++, host++) {
            assert_int_equal(muster_topology_rack(topology, host), rack);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%u",
                                     host == 0 ? ""
                                     : i == 0  ? " | "
                                               : " ",
                                     topology->host_sizes[host]);
        }
    }
    assert_int_equal(host, topology->hosts);
    assert_string_equal(text, expected);
}

static void hosts_are_in_racks(void **state)
{
    (void)state;
    const uint32_t sizes[] = {3, 1, 4, 2, 2};
    const uint32_t racks[] = {2, 1, 2};
    struct muster_topology all = test_topology(5, sizes);
    struct muster_topology some;
    expect_topology(&all, "3 1 4 2 2");
    assert_int_equal(muster_topology_set_racks(&all, 3, racks), MUSTER_OK);
    expect_topology(&all, "3 1 | 4 | 2 2");
    assert_int_equal(muster_topology_init_copy(&all, &some), MUSTER_OK);
    expect_topology(&some, "3 1 | 4 | 2 2");
    muster_topology_finish(&some);
    const uint32_t ranks[] = {1, 2, 3, 8, 9, 11};
    assert_int_equal(muster_topology_init_some(&all, ranks, 6, &some), MUSTER_OK);
    expect_topology(&some, "2 1 | 2 1");
    muster_topology_finish(&some);
    assert_int_equal(muster_topology_init_some(&all, ranks, 1, &some), MUSTER_OK);
    expect_topology(&some, "1");
    muster_topology_finish(&some);
    muster_topology_finish(&all);
}

static void impossible_racks_are_refused(void **state)
{
    (void)state;
    struct muster_topology all = test_topology_even(6, 3);
    struct muster_topology some;
    const uint32_t few[] = {1, 1};
    const uint32_t many[] = {2, 2};
    const uint32_t hole[] = {3, 0};
    assert_int_equal(muster_topology_set_racks(&all, 2, few), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "topology: racks for 2 hosts, but there are 3");
    assert_int_equal(muster_topology_set_racks(&all, 2, many), MUSTER_INVALID);
    assert_int_equal(muster_topology_set_racks(&all, 2, hole), MUSTER_INVALID);
    assert_int_equal(muster_topology_set_racks(&all, 0, hole), MUSTER_INVALID);
    expect_topology(&all, "2 2 2");
    const uint32_t falling[] = {1, 0};
    const uint32_t beyond[] = {6};
    assert_int_equal(muster_topology_init_some(&all, falling, 2, &some), MUSTER_INVALID);
    assert_int_equal(muster_topology_init_some(&all, beyond, 1, &some), MUSTER_INVALID);
    assert_int_equal(muster_topology_init_some(&all, beyond, 0, &some), MUSTER_INVALID);
    muster_topology_finish(&all);
}

static void impossible_topologies_are_refused(void **state)
{
    (void)state;
    struct muster_topology topology = {.ranks = 99};
    const uint32_t hole[] = {1, 0, 1};
    const uint32_t many[] = {MUSTER_RANKS_MAX, UINT32_MAX};
    assert_int_equal(muster_topology_init(0, hole, &topology), MUSTER_INVALID);
    assert_int_equal(muster_topology_init(3, hole, &topology), MUSTER_INVALID);
    assert_int_equal(muster_topology_init(2, many, &topology), MUSTER_INVALID);
    assert_int_equal(muster_topology_init_even(2, 3, &topology), MUSTER_INVALID);
    assert_int_equal(muster_topology_init_even(2, 0, &topology), MUSTER_INVALID);
    assert_int_equal(topology.ranks, 99);
}

static void the_parts_of_a_span_cover_it(void **state)
{
    (void)state;
    for (uint64_t count = 0; count < 40; count++) {
        for (uint64_t parts = 1; parts < 12; parts++) {
            struct muster_span whole = {.offset = 5, .count = count};
            uint64_t at = 5;
            for (uint64_t i = 0; i < parts; i++) {
                struct muster_span part = muster_span_part(whole, parts, i);
                assert_int_equal(part.offset, at);
                assert_in_range(part.count, count / parts, (count + parts - 1) / parts);
                for (; at < part.offset + part.count; at++) {
                    assert_int_equal(muster_span_part_with(whole, parts, at), i);
                }
            }
            assert_int_equal(at, 5 + count);
        }
    }
}

static struct muster_builder builder_of(const struct muster_topology *topology, uint64_t count)
{
    struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = topology, .rank = 1, .count = count};
    struct muster_builder builder;
    muster_builder_init(&plan, &builder);
    return builder;
}

static void lanes_are_put_in_order_and_rounds_have_no_gaps(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(3, 1);
    struct muster_builder builder = builder_of(&topology, 8);
    struct muster_span span = {.count = 1};
    for (uint16_t round = 0; round < 3; round++) {
        for (uint16_t lane = 0; lane < 2; lane++) {
            muster_builder_set_lane(&builder, lane);
            muster_builder_next_round(&builder);
            muster_builder_next_round(&builder);
            muster_builder_send(&builder, 0, MUSTER_INPUT, span);
            muster_builder_recv(&builder, 2, MUSTER_OUTPUT, span);
        }
    }
    struct muster_schedule schedule;
    assert_int_equal(muster_builder_finish(&builder, &schedule), MUSTER_OK);
    assert_int_equal(schedule.lanes, 2);
    assert_int_equal(schedule.step_count, 12);
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(schedule.steps[i].lane, i / 6);
        assert_int_equal(schedule.steps[i].round, i % 6 / 2);
        assert_int_equal(schedule.steps[i].kind, i % 2 == 0 ? MUSTER_STEP_SEND : MUSTER_STEP_RECV);
    }
    muster_schedule_finish(&schedule);
    muster_topology_finish(&topology);
}

static void empty_messages_are_kept_and_empty_local_steps_are_not(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(3, 1);
    struct muster_builder builder = builder_of(&topology, 8);
    struct muster_span nothing = {.offset = 8};
    muster_builder_send(&builder, 0, MUSTER_INPUT, nothing);
    muster_builder_copy(&builder, MUSTER_INPUT, nothing, MUSTER_OUTPUT, 8);
    muster_builder_reduce(&builder, MUSTER_INPUT, nothing, MUSTER_OUTPUT, 8);
    muster_builder_copy(&builder, MUSTER_OUTPUT, (struct muster_span){.count = 8}, MUSTER_OUTPUT,
                        0);
    struct muster_schedule schedule;
    assert_int_equal(muster_builder_finish(&builder, &schedule), MUSTER_OK);
    assert_int_equal(schedule.step_count, 1);
    muster_schedule_finish(&schedule);
    muster_topology_finish(&topology);
}

/* Each is an error of a generator. */
static void the_builder_refuses_what_is_out_of_bounds(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(3, 1);
    struct muster_span all = {.count = 8};
    struct muster_span over = {.offset = 1, .count = 8};
    struct muster_span far = {.offset = UINT64_MAX, .count = 2};
    for (int wrong = 0; wrong < 9; wrong++) {
        struct muster_builder builder = builder_of(&topology, 8);
        switch (wrong) {
        case 0:
            muster_builder_send(&builder, 3, MUSTER_INPUT, all);
            break;
        case 1:
            muster_builder_send(&builder, 1, MUSTER_INPUT, all); /* itself */
            break;
        case 2:
            muster_builder_send(&builder, 0, MUSTER_INPUT, over);
            break;
        case 3:
            muster_builder_recv(&builder, 0, MUSTER_INPUT, all);
            break;
        case 4:
            muster_builder_recv(&builder, 0, MUSTER_OUTPUT, far);
            break;
        case 5:
            muster_builder_copy(&builder, MUSTER_INPUT, all, MUSTER_SCRATCH, 0);
            break;
        case 6:
            muster_builder_set_lane(&builder, MUSTER_LANES_MAX);
            break;
        case 7:
            muster_builder_set_lane(&builder, 1); /* lane 0 stays empty */
            muster_builder_send(&builder, 0, MUSTER_INPUT, all);
            break;
        default:
            (void)muster_builder_reserve(&builder, UINT64_MAX);
            (void)muster_builder_reserve(&builder, 1);
            break;
        }
        muster_builder_send(&builder, 0, MUSTER_INPUT, all);
        struct muster_schedule schedule = {.rank = 77};
        assert_int_equal(muster_builder_finish(&builder, &schedule), MUSTER_FATAL);
        assert_int_equal(schedule.rank, 77);
    }
    muster_topology_finish(&topology);
}

static void a_schedule_is_printed_a_line_a_step(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(3, 1);
    struct muster_builder builder = builder_of(&topology, 8);
    struct muster_span half = {.offset = 4, .count = 4};
    (void)muster_builder_reserve(&builder, 4);
    muster_builder_send(&builder, 2, MUSTER_INPUT, half);
    muster_builder_recv_reduce(&builder, 0, MUSTER_INPUT, half, MUSTER_SCRATCH, 0);
    muster_builder_next_round(&builder);
    muster_builder_recv(&builder, 0, MUSTER_OUTPUT, half);
    muster_builder_reduce(&builder, MUSTER_SCRATCH, (struct muster_span){.count = 1}, MUSTER_OUTPUT,
                          2);
    struct muster_schedule schedule;
    assert_int_equal(muster_builder_finish(&builder, &schedule), MUSTER_OK);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    muster_schedule_print(&schedule, stream);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(
        text,
        "lane 0 round 0   send         to   2    input[4..8)\n"
        "lane 0 round 0   recv_reduce  from 0    scratch[0..4) with input[4..8)\n"
        "lane 0 round 1   recv         from 0    output[4..8)\n"
        "lane 0 round 1   reduce                 output[2..3) with scratch[0..1)\n");
    free(text);
    struct muster_schedule_totals totals = muster_schedule_total(&schedule);
    assert_int_equal(totals.rounds, 2);
    assert_int_equal(totals.messages_sent, 1);
    assert_int_equal(totals.elements_sent, 4);
    assert_int_equal(totals.messages_received, 2);
    assert_int_equal(totals.elements_received, 8);
    assert_int_equal(totals.elements_reduced, 5);
    muster_schedule_finish(&schedule);
    muster_schedule_finish(NULL);
    muster_topology_finish(&topology);
}

static bool same_step(const struct muster_step *one, const struct muster_step *other)
{
    return one->kind == other->kind && one->source == other->source &&
           one->target == other->target && one->lane == other->lane && one->round == other->round &&
           one->peer == other->peer && one->span.offset == other->span.offset &&
           one->span.count == other->span.count && one->at == other->at;
}

static void the_same_plan_gives_the_same_schedule(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(6, 2);
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        struct muster_plan plan = test_plan(algorithm, &topology, 25, 1);
        struct test_job first = test_job_create(algorithm, &plan, false);
        struct test_job second = test_job_create(algorithm, &plan, false);
        const struct muster_schedule *one = first.schedules;
        const struct muster_schedule *other = second.schedules;
        for (uint32_t rank = 0; rank < 6; rank++) {
            assert_int_equal(one[rank].step_count, other[rank].step_count);
            for (size_t i = 0; i < one[rank].step_count; i++) {
                assert_true(same_step(&one[rank].steps[i], &other[rank].steps[i]));
            }
        }
        test_job_finish(&first);
        test_job_finish(&second);
    }
    muster_topology_finish(&topology);
}

static void every_algorithm_has_its_texts_for_readers(void **state)
{
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        if (row->what == NULL || muster_algorithm_rounds_text(row) == NULL ||
            muster_algorithm_elements_text(row) == NULL || row->best_for == NULL) {
            fail_msg(
                "%s %s: a text is missing: what, best_for, or its generator's rounds_text or "
                "elements_text",
                muster_collective_name(row->collective), row->name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_values_belong_together),
        cmocka_unit_test(an_unknown_name_is_refused_and_the_known_ones_listed),
        cmocka_unit_test(an_operation_that_a_type_lacks_is_refused_and_its_operations_listed),
        cmocka_unit_test(every_type_loads_the_elements_that_were_stored),
        cmocka_unit_test(a_mismatch_names_the_first_difference),
        cmocka_unit_test(calls_that_create_a_set_differ_in_their_members),
        cmocka_unit_test(ranks_are_found_on_ragged_hosts),
        cmocka_unit_test(ranks_are_spread_evenly),
        cmocka_unit_test(hosts_are_in_racks),
        cmocka_unit_test(impossible_racks_are_refused),
        cmocka_unit_test(impossible_topologies_are_refused),
        cmocka_unit_test(the_parts_of_a_span_cover_it),
        cmocka_unit_test(lanes_are_put_in_order_and_rounds_have_no_gaps),
        cmocka_unit_test(empty_messages_are_kept_and_empty_local_steps_are_not),
        cmocka_unit_test(the_builder_refuses_what_is_out_of_bounds),
        cmocka_unit_test(a_schedule_is_printed_a_line_a_step),
        cmocka_unit_test(the_same_plan_gives_the_same_schedule),
        cmocka_unit_test(every_algorithm_has_its_texts_for_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
