/* Averages and other reductions over lists of buffers that differ in length between the members,
 * and may be empty: every algorithm, blocking and in flight, in place and not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/algorithms/algorithm.h"
#include "tests/support/group.h"
#include "tests/support/schedules.h"

enum { RANKS_MAX = 5, BUFFERS_MAX = 4, COUNT_MAX = 300, ELEMENT_MAX = 8, CALLS = 3 };

static uint64_t seed;

static const muster_type types[] = {MUSTER_INT32,  MUSTER_FLOAT16, MUSTER_INT8,   MUSTER_BFLOAT16,
                                    MUSTER_UINT64, MUSTER_FLOAT32, MUSTER_FLOAT64};
static const muster_op ops[] = {MUSTER_AVERAGE, MUSTER_AVERAGE, MUSTER_SUM,
                                MUSTER_AVERAGE, MUSTER_MIN,     MUSTER_MAX};

/* One call, as all members draw it. */
struct draw {
    enum muster_collective collective;
    muster_type type;
    muster_op op;
    size_t count;
    bool in_place, in_flight, reproducible;
    uint32_t buffers[RANKS_MAX];
    uint64_t total;
};

static struct draw draw_call(uint64_t *random, enum muster_collective collective, uint32_t ranks)
{
    struct draw draw = {.collective = collective,
                        .type = types[test_random(random) % 7],
                        .op = ops[test_random(random) % 6],
                        .count = test_random(random) % COUNT_MAX / ranks,
                        .in_place = test_random(random) % 2 == 0,
                        .in_flight = test_random(random) % 2 == 0};
    bool none = test_random(random) % 16 == 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        draw.buffers[rank] = none ? 0 : (uint32_t)(test_random(random) % (BUFFERS_MAX + 1));
        draw.total += draw.buffers[rank];
    }
    return draw;
}

/* So small that all sums are exact in all types. */
static double value(uint32_t rank, uint32_t buffer, size_t i)
{
    return (double)((rank * 3 + buffer * 5 + i) % 7);
}

static double expected(const struct draw *draw, uint32_t ranks, size_t i)
{
    double result = 0;
    bool any = false;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        for (uint32_t b = 0; b < draw->buffers[rank]; b++) {
            double next = value(rank, b, i);
            bool replaces = !any || (draw->op == MUSTER_MIN && next < result) ||
                            (draw->op == MUSTER_MAX && next > result);
            bool adds = draw->op == MUSTER_SUM || draw->op == MUSTER_AVERAGE;
            result = adds ? result + next : replaces ? next : result;
            any = true;
        }
    }
    char rounded[ELEMENT_MAX];
    if (draw->op == MUSTER_AVERAGE) {
        result = draw->type == MUSTER_FLOAT64 ? result / (double)draw->total
                                              : (double)((float)result / (float)draw->total);
    }
    muster_type_store(rounded, 0, draw->type,
                      muster_type_is_float(draw->type) ? result : (double)(int64_t)result);
    return muster_type_load(rounded, 0, draw->type);
}

struct memory {
    char in[BUFFERS_MAX][COUNT_MAX * ELEMENT_MAX], out[BUFFERS_MAX][COUNT_MAX * ELEMENT_MAX];
};

static muster_status run(struct group_member *member, const struct draw *draw, const char *name,
                         struct memory *memory)
{
    uint32_t ranks = member->group->size;
    uint32_t buffers = draw->buffers[member->rank];
    bool scatters = draw->collective == MUSTER_REDUCE_SCATTER;
    size_t size = muster_type_size_bytes(draw->type);
    const void *inputs[BUFFERS_MAX];
    void *outputs[BUFFERS_MAX];
    for (uint32_t b = 0; b < buffers; b++) {
        size_t own = scatters ? member->rank * draw->count * size : 0;
        inputs[b] = memory->in[b];
        outputs[b] = draw->in_place ? memory->in[b] + own : memory->out[b];
        for (size_t i = 0; i < draw->count * (scatters ? ranks : 1); i++) {
            muster_type_store(memory->in[b], i, draw->type, value(member->rank, b, i));
        }
    }
    struct muster_request request = {.collective = draw->collective,
                                     .count = draw->count,
                                     .type = draw->type,
                                     .op = draw->op,
                                     .algorithm = name,
                                     .no_buffers = buffers == 0,
                                     .deadline_ns = group_deadline()};
    if (buffers > 0) {
        request.in = inputs[0];
        request.out = outputs[0];
        request.inputs = inputs;
        request.outputs = outputs;
        request.buffer_count = buffers;
    }
    struct muster_started_call *started;
    if (!draw->in_flight) {
        return muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    }
    TRY(muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &started));
    return muster_started_call_end(started, NULL);
}

static void check(struct group_member *member, const struct draw *draw, const char *name,
                  const struct memory *memory)
{
    bool scatters = draw->collective == MUSTER_REDUCE_SCATTER;
    size_t first = scatters ? member->rank * draw->count : 0;
    for (uint32_t b = 0; b < draw->buffers[member->rank]; b++) {
        const char *out = draw->in_place ? memory->in[b] : memory->out[b];
        for (size_t i = 0; i < draw->count; i++) {
            double got = muster_type_load(out, i + (draw->in_place ? first : 0), draw->type);
            double wanted = expected(draw, member->group->size, first + i);
            if (got != wanted) {
                group_fail(member, "%s %s: %s of %s, %llu buffers: element %zu is %g, not %g",
                           muster_collective_name(draw->collective), name, muster_op_name(draw->op),
                           muster_type_name(draw->type), (unsigned long long)draw->total, i, got,
                           wanted);
                return;
            }
        }
    }
}

static bool fits(const struct group_member *member, size_t algorithm)
{
    char why[128];
    const struct muster_plan plan = {.collective = muster_algorithms[algorithm].collective,
                                     .topology = &member->group->topology,
                                     .count = 1};
    return (plan.collective == MUSTER_ALLREDUCE || plan.collective == MUSTER_REDUCE_SCATTER) &&
           muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

static void call_all(struct group_member *member, void *argument)
{
    struct memory *memory = malloc(sizeof *memory);
    uint64_t random = seed;
    (void)argument;
    for (size_t i = 0; i < muster_algorithm_count * CALLS && member->failure[0] == '\0'; i++) {
        size_t algorithm = i / CALLS;
        const struct draw draw =
            draw_call(&random, muster_algorithms[algorithm].collective, member->group->size);
        const char *name = muster_algorithms[algorithm].name;
        if (!fits(member, algorithm)) {
            continue;
        }
        if (run(member, &draw, name, memory) != MUSTER_OK) {
            group_fail(member, "%s of %s: %s", name, muster_op_name(draw.op), muster_last_error());
        } else {
            check(member, &draw, name, memory);
        }
    }
    free(memory);
}

static void members_have_any_numbers_of_buffers(void **state)
{
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_MEMORY};
    static const struct {
        uint32_t hosts;
        uint32_t sizes[2];
    } shapes[] = {{1, {1}}, {1, {2}}, {2, {2, 1}}, {1, {4}}, {2, {2, 3}}};
    (void)state;
    for (size_t i = 0; i < 15; i++) {
        struct group group;
        group_start(&group, transports[i % 3], shapes[i / 3].hosts, shapes[i / 3].sizes, NULL);
        group_each(&group, call_all, NULL);
        group_finish(&group);
        seed++;
    }
}

/* A function of the user's has no value that changes nothing. */
static void no_buffers_are_refused_for_a_users_operation(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 1);
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .count = 3,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_USER,
                                           .user_function = (muster_user_function)abort,
                                           .no_buffers = true,
                                           .deadline_ns = group_deadline()};
    assert_int_equal(muster_context_run(group.members[0].contexts[MUSTER_GLOBAL], &request, NULL),
                     MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "no buffers"));
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_any_numbers_of_buffers),
        cmocka_unit_test(no_buffers_are_refused_for_a_users_operation),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
