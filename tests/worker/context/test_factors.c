/* Reductions with prescale and postscale, with a user's operation, and with several buffers on each
 * member. */
#include "collectives/call/request.h"
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, COUNT = 3001, BUFFERS = 3, ELEMENT_MAX = 8 };

/* One call of all members, and the value that every element of the result must have. */
struct sum {
    enum muster_collective collective;
    muster_type type;
    muster_op op;
    uint32_t factors_set;
    double prescale, postscale;
    uint32_t buffers;
    bool in_place;
    double value; /* buffer b of rank r holds (r + 1) times this, plus b */
    double wanted;
};

struct memory {
    char in[BUFFERS][RANKS * COUNT * ELEMENT_MAX], out[BUFFERS][RANKS * COUNT * ELEMENT_MAX];
};
static struct memory memories[RANKS];

static void fill(struct group_member *member, const struct sum *sum, bool in_place)
{
    struct memory *memory = &memories[member->rank];
    for (uint32_t b = 0; b < BUFFERS; b++) {
        char *data = in_place ? memory->out[b] : memory->in[b];
        for (size_t i = 0; i < RANKS * COUNT; i++) {
            muster_type_store(data, i, sum->type, (member->rank + 1) * sum->value + b);
        }
    }
}

static void check(struct group_member *member, const struct sum *sum, const void *out)
{
    for (size_t i = 0; i < COUNT; i++) {
        double got = muster_type_load(out, i, sum->type);
        if (got != sum->wanted) {
            group_fail(member, "%s %s of %s, pre %g, post %g: element %zu is %g, not %g",
                       muster_collective_name(sum->collective), muster_op_name(sum->op),
                       muster_type_name(sum->type), sum->prescale, sum->postscale, i, got,
                       sum->wanted);
            return;
        }
    }
}

static void add(void *out, const void *left, const void *right, size_t count, muster_type type,
                void *user_data)
{
    (void)user_data;
    for (size_t i = 0; i < count; i++) {
        double sum = muster_type_load(left, i, type) + muster_type_load(right, i, type);
        muster_type_store(out, i, type, sum);
    }
}

/* Makes one call on this member, and checks every output that it gets. */
static void run_sum(struct group_member *member, void *argument)
{
    const struct sum *sum = argument;
    struct memory *memory = &memories[member->rank];
    const void *inputs[BUFFERS];
    void *outputs[BUFFERS];
    for (uint32_t b = 0; b < BUFFERS; b++) {
        inputs[b] = sum->in_place ? memory->out[b] : memory->in[b];
        outputs[b] = memory->out[b];
        if (sum->collective == MUSTER_REDUCE_SCATTER && sum->in_place) {
            outputs[b] =
                memory->out[b] + (size_t)member->rank * COUNT * muster_type_size_bytes(sum->type);
        }
    }
    struct muster_request request = {.collective = sum->collective,
                                     .in = inputs[0],
                                     .out = outputs[0],
                                     .count = COUNT,
                                     .type = sum->type,
                                     .op = sum->op,
                                     .user_function = add,
                                     .prescale = sum->prescale,
                                     .postscale = sum->postscale,
                                     .factors_set = sum->factors_set,
                                     .buffer_count = sum->buffers,
                                     .inputs = inputs,
                                     .outputs = outputs,
                                     .deadline_ns = group_deadline()};
    fill(member, sum, sum->in_place);
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    if (sum->collective == MUSTER_REDUCE && member->rank != request.root) {
        return;
    }
    check(member, sum, request.out);
    for (uint32_t b = 1; b < sum->buffers; b++) {
        check(member, sum, outputs[b]);
    }
}

static void run_sums(const struct sum *sums, size_t count)
{
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP};
    for (size_t t = 0; t < 2; t++) {
        struct group group;
        group_start_flat(&group, transports[t], RANKS);
        for (size_t i = 0; i < 2 * count; i++) {
            struct sum sum = sums[i / 2];
            sum.in_place = i % 2 == 1;
            group_each(&group, run_sum, &sum);
        }
        group_finish(&group);
    }
}

/* The inputs of the three ranks are 4, 8 and 12. */
static void every_type_of_number_is_scaled_before_and_after(void **state)
{
    (void)state;
    for (int type = 0; type < MUSTER_BOOL; type++) {
        const struct sum sums[] = {
            {.op = MUSTER_SUM, .prescale = 0.5, .postscale = 3, .wanted = (2 + 4 + 6) * 3},
            {.op = MUSTER_AVERAGE, .prescale = 2, .postscale = 0.25, .wanted = 4},
            {.op = MUSTER_PROD, .prescale = 0.25, .wanted = 1 * 2 * 3},
            {.op = MUSTER_MIN, .postscale = 2.5, .wanted = 10},
            {.op = MUSTER_MAX, .prescale = 0.5, .postscale = 1.5, .wanted = 9},
            {.op = MUSTER_USER, .prescale = 0.5, .postscale = 0.25, .wanted = 3},
        };
        struct sum each[6];
        for (size_t i = 0; i < 6; i++) {
            static const enum muster_collective collectives[] = {
                MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_REDUCE};
            each[i] = sums[i];
            each[i].collective = collectives[(i + (size_t)type) % 3];
            each[i].type = (muster_type)type;
            each[i].value = 4;
        }
        run_sums(each, 6);
    }
}

static void a_factor_of_0_is_a_factor_where_it_is_set(void **state)
{
    (void)state;
    const struct sum sums[] = {
        {.op = MUSTER_SUM, .factors_set = MUSTER_PRESCALE_SET},
        {.op = MUSTER_AVERAGE, .postscale = 3, .factors_set = MUSTER_PRESCALE_SET},
        {.op = MUSTER_MAX, .prescale = 2, .factors_set = MUSTER_POSTSCALE_SET},
        {.op = MUSTER_SUM, .postscale = 0.5, .factors_set = MUSTER_POSTSCALE_SET, .wanted = 12},
        {.op = MUSTER_SUM, .wanted = 24}, /* 0 that is not set */
    };
    static const muster_type types[] = {MUSTER_FLOAT32, MUSTER_INT16, MUSTER_BFLOAT16};
    for (size_t type = 0; type < 3; type++) {
        struct sum each[5];
        for (size_t i = 0; i < 5; i++) {
            each[i] = sums[i];
            each[i].collective = i % 2 == 0 ? MUSTER_ALLREDUCE : MUSTER_REDUCE_SCATTER;
            each[i].type = types[type];
            each[i].value = 4;
        }
        run_sums(each, 5);
    }
}

static void integers_are_truncated_at_the_end_of_each_step(void **state)
{
    (void)state;
    const struct sum sums[] = {
        /* 5, 10 and 15 are scaled to 2, 5 and 7 */
        {.op = MUSTER_SUM, .type = MUSTER_INT16, .prescale = 0.5, .value = 5, .wanted = 14},
        /* the average of -5, -10 and -15 is -10; a third of it is -3.3 */
        {.op = MUSTER_AVERAGE,
         .type = MUSTER_INT8,
         .postscale = 1.0 / 3,
         .value = -5,
         .wanted = -3},
        /* 2 * 120 is clamped to the largest int8 */
        {.op = MUSTER_MAX, .type = MUSTER_INT8, .postscale = 2, .value = 40, .wanted = 127},
    };
    struct sum each[3];
    for (size_t i = 0; i < 3; i++) {
        each[i] = sums[i];
        each[i].collective = MUSTER_ALLREDUCE;
    }
    run_sums(each, 3);
}

/* The buffers of rank 0 hold 4, 5 and 6, those of rank 1 hold 8, 9 and 10, those of rank 2 hold 12,
 * 13 and 14. */
static void all_buffers_of_all_members_are_reduced(void **state)
{
    (void)state;
    static const muster_type types[] = {MUSTER_FLOAT32, MUSTER_INT64,    MUSTER_FLOAT16,
                                        MUSTER_UINT8,   MUSTER_BFLOAT16, MUSTER_FLOAT64};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const struct sum sums[] = {
            {.op = MUSTER_SUM, .buffers = BUFFERS, .wanted = 81},
            {.op = MUSTER_AVERAGE, .buffers = BUFFERS, .wanted = 9},
            {.op = MUSTER_MIN, .buffers = BUFFERS, .postscale = 3, .wanted = 12},
            {.op = MUSTER_USER, .buffers = 2, .prescale = 2, .wanted = 102},
            {.op = MUSTER_MAX, .buffers = 1, .wanted = 12},
        };
        struct sum each[5];
        for (size_t j = 0; j < 5; j++) {
            each[j] = sums[j];
            each[j].collective = (i + j) % 2 == 0 ? MUSTER_ALLREDUCE : MUSTER_REDUCE_SCATTER;
            each[j].type = types[i];
            each[j].value = 4;
        }
        run_sums(each, 5);
    }
}

static void broadcast(struct group_member *member, void *argument)
{
    (void)argument;
    struct memory *memory = &memories[member->rank];
    void *outputs[BUFFERS] = {memory->out[0], memory->out[1], memory->out[2]};
    struct sum sum = {.type = MUSTER_INT32, .value = 10, .wanted = 20};
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .out = outputs[0],
                                     .count = COUNT,
                                     .type = MUSTER_INT32,
                                     .root = 1,
                                     .buffer_count = 1 + member->rank,
                                     .outputs = outputs,
                                     .deadline_ns = group_deadline()};
    fill(member, &sum, true);
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    for (uint32_t b = 0; b < 1 + member->rank; b++) {
        check(member, &sum, outputs[b]);
    }
}

static void a_broadcast_reaches_all_buffers_of_all_members(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, broadcast, NULL);
    group_finish(&group);
}

/* Rank r has r + 1 buffers, all of whose elements are r + 1. */
static void reduce_other_numbers(struct group_member *member, void *argument)
{
    enum muster_collective collective = *(const enum muster_collective *)argument;
    struct memory *memory = &memories[member->rank];
    const void *inputs[BUFFERS];
    void *outputs[BUFFERS];
    uint32_t buffers = 1 + member->rank;
    for (uint32_t b = 0; b < buffers; b++) {
        inputs[b] = memory->in[b];
        outputs[b] = memory->out[b];
        for (size_t i = 0; i < (size_t)COUNT * RANKS; i++) {
            muster_type_store(memory->in[b], i, MUSTER_INT32, 1 + member->rank);
        }
    }
    const struct muster_request request = {.collective = collective,
                                           .in = inputs[0],
                                           .out = outputs[0],
                                           .count = COUNT,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_SUM,
                                           .buffer_count = buffers,
                                           .inputs = inputs,
                                           .outputs = outputs,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    for (uint32_t b = 0; b < buffers; b++) {
        for (size_t i = 0; i < COUNT; i++) {
            double got = muster_type_load(outputs[b], i, MUSTER_INT32);
            if (got != 1 + 4 + 9) {
                group_fail(member, "element %zu of buffer %u is %g", i, b, got);
                return;
            }
        }
    }
}

static void members_may_have_other_numbers_of_buffers(void **state)
{
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_MEMORY};
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        struct group group;
        enum muster_collective collectives[] = {MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER};
        group_start_flat(&group, transports[t], RANKS);
        group_each(&group, reduce_other_numbers, &collectives[0]);
        group_each(&group, reduce_other_numbers, &collectives[1]);
        group_finish(&group);
    }
}

/* Refusals ------------------------------------------------------------------------------------ */

static void assert_refused(struct group *group, struct muster_request request, const char *word)
{
    muster_status status =
        muster_context_run(group->members[0].contexts[MUSTER_GLOBAL], &request, NULL);
    if (status != MUSTER_INVALID || strstr(muster_last_error(), word) == NULL) {
        fail_msg("\"%s\": %s: %s", word, muster_status_name(status), muster_last_error());
    }
}

static struct muster_request good_request(void)
{
    return (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                   .in = memories[0].in[0],
                                   .out = memories[0].out[0],
                                   .count = COUNT,
                                   .type = MUSTER_INT32,
                                   .deadline_ns = group_deadline()};
}

static void factors_that_cannot_be_applied_are_refused(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 1);
    struct muster_request request = good_request();
    request.prescale = 1.0 / 0.0;
    assert_refused(&group, request, "prescale inf: must be finite");
    request.prescale = -0.0 / 0.0;
    assert_refused(&group, request, "nan: must be finite");
    request = good_request();
    request.factors_set = 5;
    assert_refused(&group, request, "factors_set 5: there are two factors");
    request.factors_set = MUSTER_POSTSCALE_SET;
    request.op = MUSTER_BITWISE_XOR;
    assert_refused(&group, request, "postscale 0: not for bitwise_xor of int32");
    request = good_request();
    request.postscale = 2;
    request.op = MUSTER_BITWISE_XOR;
    assert_refused(&group, request, "postscale 2: not for bitwise_xor of int32");
    request.op = MUSTER_MAX;
    request.type = MUSTER_BOOL;
    assert_refused(&group, request, "postscale 2: not for max of bool");
    request.collective = MUSTER_ALLGATHER;
    assert_refused(&group, request, "nothing is reduced here");
    request = good_request();
    request.op = MUSTER_USER;
    assert_refused(&group, request, "operation user without a user_function");
    group_finish(&group);
}

static void buffers_that_overlap_are_refused(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 1);
    struct memory *memory = &memories[0];
    const void *inputs[2] = {memory->in[0], memory->in[1]};
    void *outputs[2] = {memory->out[0], memory->out[1]};
    struct muster_request request = good_request();
    request.buffer_count = 2;
    request.inputs = inputs;
    request.outputs = outputs;
    outputs[1] = memory->out[0] + 4;
    assert_refused(&group, request, "output buffer 0 overlaps output buffer 1");
    outputs[1] = NULL;
    assert_refused(&group, request, "output buffer 1 is NULL");
    outputs[1] = memory->in[0];
    assert_refused(&group, request, "output buffer 1 overlaps input buffer 0");
    outputs[1] = memory->in[1];
    assert_refused(&group, request, "output buffer 1 overlaps input buffer 1");
    request.in = inputs[0] = outputs[0];
    outputs[1] = memory->out[1];
    assert_refused(&group, request, "buffer 0 is in place, and buffer 1 is not");
    request.buffer_count = 65;
    assert_refused(&group, request, "64 are the most");
    request = good_request();
    request.collective = MUSTER_REDUCE_SCATTER;
    request.buffer_count = 2;
    request.inputs = inputs;
    request.outputs = outputs;
    request.in = inputs[0] = memory->in[0];
    outputs[1] = memory->in[1];
    assert_refused(&group, request, "output buffer 1 overlaps input buffer 1");
    inputs[1] = NULL;
    assert_refused(&group, request, "input buffer 1 is NULL");
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_number_is_scaled_before_and_after),
        cmocka_unit_test(a_factor_of_0_is_a_factor_where_it_is_set),
        cmocka_unit_test(integers_are_truncated_at_the_end_of_each_step),
        cmocka_unit_test(all_buffers_of_all_members_are_reduced),
        cmocka_unit_test(a_broadcast_reaches_all_buffers_of_all_members),
        cmocka_unit_test(members_may_have_other_numbers_of_buffers),
        cmocka_unit_test(factors_that_cannot_be_applied_are_refused),
        cmocka_unit_test(buffers_that_overlap_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
