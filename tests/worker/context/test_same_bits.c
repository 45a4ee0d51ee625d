/*
 * The bits of results. With `reproducible` they are those of the documented order of contributors,
 * for any placement of the contributors on ranks and hosts, any algorithm, transport and size of
 * segments. Without it they are the same on all members. Jobs and calls are random, the floats are
 * of all kinds, and threads have different rounding modes.
 */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/contribution.h"
#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "tests/support/thinning.h"
#include "worker/base/clock.h"

enum {
    HANGS_MS = 60000, /* only a hanging test takes so long */
    CONTRIBUTORS_MAX = 9,
    BUFFERS_MAX = 3,
    NAME_SIZE = 96,
    JOBS = 24 / TEST_ONE_OF,
    CALLS = 5
};

/* One call, the same on all members. */
struct call {
    enum muster_collective collective;
    struct contributions all;
    uint32_t root;
    bool uneven, in_place, reproducible;
    size_t counts[GROUP_SIZE_MAX]; /* of the blocks of a reduce_scatter */
    unsigned char *wanted; /* all elements; NULL: results need only be the same on all members */
    unsigned char *got;    /* rank 0's result, rank 1's, ...; NULL: `wanted` is compared */
    char algorithm[NAME_SIZE]; /* "": by cost */
};

/* MIN and MAX have the same result in any order, so they need none. */
static struct muster_plan make_plan(const struct group *group, const struct call *call)
{
    static const uint32_t any[GROUP_SIZE_MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    bool ordered = call->reproducible && call->all.op != MUSTER_MIN && call->all.op != MUSTER_MAX;
    return (struct muster_plan){.collective = call->collective,
                                .topology = &group->topology,
                                .root = call->root,
                                .count = call->collective == MUSTER_REDUCE_SCATTER
                                             ? call->all.count / group->size
                                             : call->all.count,
                                .reduction_order = ordered ? any : NULL};
}

/* The contributor that this member is: its place among the logical numbers. */
static uint32_t contributor_of(const struct group_member *member)
{
    const struct group *group = member->group;
    uint32_t before = 0;
    for (uint32_t i = 0; i < group->size; i++) {
        before += group->orders[i] < group->orders[member->rank];
    }
    return before;
}

/* Which elements of the whole result this member gets. */
static struct muster_span results_of(const struct call *call, uint32_t rank)
{
    struct muster_span span = {0, call->all.count};
    if (call->collective == MUSTER_REDUCE && rank != call->root) {
        span.count = 0;
    }
    if (call->collective == MUSTER_REDUCE_SCATTER) {
        for (uint32_t i = 0; i < rank; i++) {
            span.offset += call->counts[i];
        }
        span.count = call->counts[rank];
    }
    return span;
}

struct buffers {
    unsigned char *in[BUFFERS_MAX], *out[BUFFERS_MAX];
};

/* In place, the output of a reduce_scatter is its block of the input. */
static void make_buffers(const struct call *call, const struct group_member *member,
                         struct buffers *buffers)
{
    const size_t size = muster_type_size_bytes(call->all.type);
    for (uint32_t i = 0; i < call->all.buffers; i++) {
        buffers->in[i] = calloc(call->all.count + 1, size);
        buffers->out[i] = calloc(call->all.count + 1, size);
        if (buffers->in[i] == NULL || buffers->out[i] == NULL) {
            abort();
        }
        contribution_fill(&call->all, contributor_of(member), i, buffers->in[i]);
    }
}

static void free_buffers(struct buffers *buffers)
{
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        free(buffers->in[i]);
        free(buffers->out[i]);
    }
}

/* Makes the call on this member; `outputs` gets the addresses of its results. */
static muster_status run(const struct call *call, struct group_member *member,
                         const struct buffers *buffers, unsigned char *outputs[BUFFERS_MAX])
{
    const size_t size = muster_type_size_bytes(call->all.type);
    const void *inputs[BUFFERS_MAX];
    for (uint32_t i = 0; i < call->all.buffers; i++) {
        inputs[i] = buffers->in[i];
        outputs[i] = call->in_place ? buffers->in[i] + results_of(call, member->rank).offset * size
                                    : buffers->out[i];
    }
    struct muster_request request = {
        .collective = call->collective,
        .in = inputs[0],
        .out = outputs[0],
        .count = call->collective == MUSTER_REDUCE_SCATTER ? call->counts[0] : call->all.count,
        .in_counts = call->uneven ? call->counts : NULL,
        .type = call->all.type,
        .op = call->all.op,
        .root = call->root,
        .prescale = call->all.prescale,
        .postscale = call->all.postscale,
        .algorithm = call->algorithm[0] != '\0' ? call->algorithm : NULL,
        .reproducible = call->reproducible,
        .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    if (call->collective == MUSTER_ALLREDUCE && call->all.buffers > 1) {
        request.buffer_count = call->all.buffers;
        request.inputs = inputs;
        request.outputs = (void *const *)outputs;
    }
    return muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
}

static void name_call(const struct call *call, const struct group_member *member, char *ret_text,
                      size_t size)
{
    (void)snprintf(ret_text, size,
                   "%s %s of %s by %s, %u contributors x %u, %llu elements%s%s, segments of %u",
                   muster_collective_name(call->collective), muster_op_name(call->all.op),
                   muster_type_name(call->all.type),
                   call->algorithm[0] != '\0' ? call->algorithm : "cost", call->all.contributors,
                   call->all.buffers, (unsigned long long)call->all.count,
                   call->uneven ? " unevenly" : "", call->in_place ? " in place" : "",
                   member->group->segment_bytes);
}

static void compare_with_wanted(const struct call *call, struct group_member *member,
                                unsigned char *const outputs[BUFFERS_MAX])
{
    const size_t size = muster_type_size_bytes(call->all.type);
    const struct muster_span span = results_of(call, member->rank);
    char text[256];
    name_call(call, member, text, sizeof text);
    for (uint32_t i = 0; i < call->all.buffers; i++) {
        for (uint64_t j = 0; j < span.count * size && call->wanted != NULL; j++) {
            if (outputs[i][j] != call->wanted[span.offset * size + j]) {
                group_fail(member, "%s: buffer %u differs in element %llu", text, i,
                           (unsigned long long)(j / size));
                return;
            }
        }
    }
}

static void call_one(struct group_member *member, void *argument)
{
    const struct call *call = argument;
    struct buffers buffers = {.in = {NULL}};
    unsigned char *outputs[BUFFERS_MAX] = {NULL};
    const size_t size_bytes = call->all.count * muster_type_size_bytes(call->all.type);
    make_buffers(call, member, &buffers);
    if (member->rank % 2 == 1) {
        (void)fesetround(FE_TOWARDZERO); /* of this thread; a program may do so */
    }
    muster_status status = run(call, member, &buffers, outputs);
    if (status != MUSTER_OK) {
        char text[256];
        name_call(call, member, text, sizeof text);
        group_fail(member, "%s: %s", text, muster_last_error());
    } else {
        compare_with_wanted(call, member, outputs);
        if (call->got != NULL) {
            memcpy(call->got + member->rank * size_bytes, outputs[0], size_bytes);
        }
    }
    free_buffers(&buffers);
}

/* Calls with every algorithm that fits, and with the one that is chosen by cost. */
static void call_with_all_algorithms(struct group *group, struct call *call)
{
    const struct muster_plan plan = make_plan(group, call);
    call->algorithm[0] = '\0';
    group_each(group, call_one, call);
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        if (muster_algorithms[i].collective == call->collective && test_fits(i, &plan)) {
            (void)snprintf(call->algorithm, sizeof call->algorithm, "%s",
                           muster_algorithms[i].name);
            group_each(group, call_one, call);
        }
    }
}

/* Random jobs and calls ----------------------------------------------------------------------- */

static void share_memory(struct group_member *member, void *argument)
{
    (void)argument;
    if (muster_context_share_memory(member->contexts[MUSTER_GLOBAL],
                                    muster_clock_after_ms(HANGS_MS), NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

/* Starts a group of this many contributors in a random order, on hosts of random sizes. */
static void start(struct group *group, uint32_t contributors, uint64_t *random)
{
    static const uint32_t segments[] = {0, 256, 1000, 4096, 40000};
    uint32_t sizes[CONTRIBUTORS_MAX];
    uint32_t orders[CONTRIBUTORS_MAX];
    uint32_t hosts = 0;
    for (uint32_t left = contributors; left > 0; left -= sizes[hosts++]) {
        sizes[hosts] = 1 + test_random_below(random, left);
    }
    for (uint32_t i = 0; i < contributors; i++) {
        uint32_t other = test_random_below(random, i + 1);
        orders[i] = orders[other];
        orders[other] = 7 * i;
    }
    enum group_transport transport = (enum group_transport)test_random_below(random, 3);
    group_start_ordered(group, transport, hosts, sizes, orders,
                        segments[test_random_below(random, 5)]);
    if (hosts == 1 && contributors > 1 && test_random_below(random, 2) == 0) {
        group_each(group, share_memory, NULL);
    }
}

static void draw_counts(struct call *call, uint32_t contributors, uint64_t *random)
{
    static const uint64_t most[] = {10, 300, 5000, 30000};
    uint64_t count = test_random_below(random, (uint32_t)most[test_random_below(random, 4)]);
    call->all.count = count;
    if (call->collective == MUSTER_REDUCE_SCATTER) {
        call->all.count = 0;
        for (uint32_t i = 0; i < contributors; i++) {
            call->counts[i] = call->uneven ? test_random_below(random, (uint32_t)count + 2)
                                           : count / contributors;
            call->all.count += call->counts[i];
        }
        call->counts[contributors] = 0;
    }
}

/* Draws a call that reduces floats, reproducible. */
static struct call draw_call(uint32_t contributors, uint64_t *random)
{
    static const enum muster_collective collectives[] = {MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER,
                                                         MUSTER_REDUCE};
    static const muster_type types[] = {MUSTER_FLOAT16, MUSTER_BFLOAT16, MUSTER_FLOAT32,
                                        MUSTER_FLOAT64};
    struct call call = {
        .collective = collectives[test_random_below(random, 3)],
        .all = {.seed = test_random(random),
                .type = types[test_random_below(random, 4)],
                .op = (muster_op)test_random_below(random, MUSTER_MAX + 1),
                .contributors = contributors,
                .buffers = 1,
                .prescale = test_random_below(random, 3) == 0 ? 1.0 / 3 : 1,
                .postscale = test_random_below(random, 3) == 0 ? -0.7 : 1},
        .root = test_random_below(random, contributors),
        .uneven = test_random_below(random, 2) == 0,
        .in_place = test_random_below(random, 2) == 0,
        .reproducible = true,
    };
    call.uneven = call.uneven && call.collective == MUSTER_REDUCE_SCATTER;
    if (call.collective == MUSTER_ALLREDUCE) {
        call.all.buffers = 1 + test_random_below(random, BUFFERS_MAX);
    }
    draw_counts(&call, contributors, random);
    return call;
}

static void reproducible_results_have_the_documented_bits(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int job = 0; job < JOBS; job++) {
        const uint32_t contributors = 1 + test_random_below(&random, CONTRIBUTORS_MAX);
        struct group group;
        start(&group, contributors, &random);
        for (int i = 0; i < CALLS; i++) {
            struct call call = draw_call(contributors, &random);
            call.wanted = calloc(call.all.count + 1, sizeof(double));
            assert_non_null(call.wanted);
            contributions_reduce(&call.all, call.wanted);
            call_with_all_algorithms(&group, &call);
            free(call.wanted);
        }
        group_finish(&group);
    }
}

/* A hierarchical algorithm with random parts. */
static void draw_hierarchical(char ret_name[NAME_SIZE], uint64_t *random)
{
    static const char *const locals[] = {"pairwise",   "binomial",           "ring",
                                         "ring_whole", "recursive_doubling", "all_to_one"};
    static const char *const crosses[] = {"halving_doubling",   "swing",       "ring_whole",
                                          "bidirectional_ring", "double_tree", "bcube",
                                          "recursive_doubling", "ring"};
    (void)snprintf(ret_name, NAME_SIZE, "hierarchical(local=%s,cross=%s,leaders=%u)",
                   locals[test_random_below(random, 6)], crosses[test_random_below(random, 8)],
                   1 + test_random_below(random, 3));
}

/* Fails the test if a member's result differs from rank 0's. */
static void compare_members(const struct group *group, const struct call *call)
{
    const size_t size_bytes = call->all.count * muster_type_size_bytes(call->all.type);
    for (uint32_t rank = 1; rank < group->size; rank++) {
        if (memcmp(call->got, call->got + rank * size_bytes, size_bytes) != 0) {
            char text[256];
            name_call(call, &group->members[rank], text, sizeof text);
            fail_msg("%s: rank %u has other bits than rank 0", text, rank);
        }
    }
}

static void allreduce_with_all_algorithms(struct group *group, struct call *call, uint64_t *random)
{
    const struct muster_plan plan = make_plan(group, call);
    for (size_t i = 0; i < muster_algorithm_count + 3; i++) {
        size_t index = i;
        if (i >= muster_algorithm_count) {
            draw_hierarchical(call->algorithm, random);
            assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, call->algorithm, &index),
                             MUSTER_OK);
        } else if (muster_algorithms[i].collective == MUSTER_ALLREDUCE) {
            (void)snprintf(call->algorithm, NAME_SIZE, "%s", muster_algorithms[i].name);
        } else {
            continue;
        }
        if (test_fits(index, &plan)) {
            group_each(group, call_one, call);
            compare_members(group, call);
        }
    }
}

static void all_members_have_the_same_bits_without_reproducible(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int job = 0; job < JOBS; job++) {
        const uint32_t contributors = 1 + test_random_below(&random, CONTRIBUTORS_MAX);
        struct group group;
        start(&group, contributors, &random);
        for (int i = 0; i < CALLS / 2; i++) {
            struct call call = draw_call(contributors, &random);
            call.collective = MUSTER_ALLREDUCE;
            call.uneven = false;
            call.reproducible = false;
            call.got = calloc(contributors, (call.all.count + 1) * sizeof(double));
            assert_non_null(call.got);
            allreduce_with_all_algorithms(&group, &call, &random);
            free(call.got);
        }
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reproducible_results_have_the_documented_bits),
        cmocka_unit_test(all_members_have_the_same_bits_without_reproducible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
