/* Calls on several ranges give the same as calls on one buffer, however each member cuts its
 * memory, over every transport, blocking and in flight; and what is wrong is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/call/request_ranges.h"
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CALLS = 10, WAYS_STEP = 5 };
#else
enum { CALLS = 40, WAYS_STEP = 1 };
#endif
enum { ELEMENTS_MAX = 150000, CUTS_MAX = 200, GAP_MAX = 16, RANKS = 4 };

static uint64_t seed;

/* Memory that is cut into ranges, with gaps between most of them. */
struct cut {
    char *memory;
    muster_range ranges[CUTS_MAX];
    size_t count;
};

/* Many cuts are at few elements, so that there are tiny, empty and large ranges; and half of the
 * neighbours have changed places in memory. */
static void make_cut(struct cut *cut, uint64_t elements, size_t element_bytes, uint64_t *random)
{
    uint64_t left = elements;
    cut->memory = malloc((elements + (size_t)CUTS_MAX * GAP_MAX) * element_bytes);
    cut->count = 1 + test_random(random) % CUTS_MAX;
    for (size_t i = 0; i < cut->count; i++) {
        uint64_t most = test_random(random) % 3 == 0 ? left : left < 40 ? left : 40;
        cut->ranges[i].count = i + 1 == cut->count ? left : test_random(random) % (most + 1);
        left -= cut->ranges[i].count;
    }
    char *next = cut->memory;
    bool swap = test_random(random) % 2 == 0;
    for (size_t i = 0; i < cut->count; i++) {
        size_t place = swap && (i ^ 1) < cut->count ? i ^ 1 : i;
        cut->ranges[place].address = next;
        next += (cut->ranges[place].count + test_random(random) % GAP_MAX) * element_bytes;
    }
}

static void copy_into(const struct cut *cut, const char *from, size_t element_bytes)
{
    for (size_t i = 0; i < cut->count; i++) {
        memcpy(cut->ranges[i].address, from, cut->ranges[i].count * element_bytes);
        from += cut->ranges[i].count * element_bytes;
    }
}

static void copy_from(const struct cut *cut, char *to, size_t element_bytes)
{
    for (size_t i = 0; i < cut->count; i++) {
        memcpy(to, cut->ranges[i].address, cut->ranges[i].count * element_bytes);
        to += cut->ranges[i].count * element_bytes;
    }
}

/* What all members draw alike. */
struct drawn {
    struct muster_request request;
    bool starts;
};

static struct drawn draw(uint64_t *common, uint32_t ranks)
{
    struct drawn drawn = {.request = {.collective = test_random(common) % 4 == 0 ? MUSTER_BROADCAST
                                                                                 : MUSTER_ALLREDUCE,
                                      .deadline_ns = group_deadline()}};
    uint64_t most = test_random(common) % 3 == 0 ? ELEMENTS_MAX : 3000;
    drawn.request.count = test_random(common) % most;
    pattern_pair(test_random(common) % pattern_pairs(), &drawn.request.type, &drawn.request.op);
    drawn.request.user_function = pattern_user;
    drawn.request.root = (uint32_t)(test_random(common) % ranks);
    drawn.starts = test_random(common) % 3 == 0;
    drawn.request.keep_input = test_random(common) % 3 == 0;
    return drawn;
}

static muster_status run_or_start(struct muster_context *context,
                                  const struct muster_request *request, bool starts)
{
    struct muster_started_call *call = NULL;
    if (!starts) {
        return muster_context_run(context, request, NULL);
    }
    TRY(muster_context_start(context, request, &call));
    return muster_started_call_end(call, NULL);
}

/* One call, in ranges on most members, and on some in one buffer. */
static void call_once(struct group_member *member, const struct drawn *drawn, uint64_t *own)
{
    struct muster_request request = drawn->request;
    size_t bytes = muster_type_size_bytes(request.type);
    uint32_t ranks = member->group->size;
    bool broadcast = request.collective == MUSTER_BROADCAST;
    bool in_place = broadcast || test_random(own) % 2 == 0;
    struct cut in = {.memory = NULL};
    struct cut out = {.memory = NULL};
    char *flat = malloc((request.count + 1) * bytes);
    char *result = malloc((request.count + 1) * bytes);
    request.in = flat;
    request.out = broadcast ? flat : result;
    pattern_fill(&request, flat, member->rank, ranks);
    make_cut(&in, request.count, bytes, own);
    make_cut(&out, request.count, bytes, own);
    copy_into(&in, flat, bytes);
    const struct muster_given_ranges given = {.ins = in.ranges,
                                              .in_count = in.count,
                                              .outs = in_place ? in.ranges : out.ranges,
                                              .out_count = in_place ? in.count : out.count};
    struct muster_request call = request;
    if (test_random(own) % 8 != 0) {
        call.ranges = &given;
        call.in = NULL;
        call.out = NULL;
        call.count = 0;
    }
    if (run_or_start(member->contexts[MUSTER_GLOBAL], &call, drawn->starts) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else {
        char text[256];
        if (call.ranges != NULL) {
            copy_from(in_place ? &in : &out, request.out, bytes);
        }
        if (pattern_check(&request, member->rank, ranks, text, sizeof text) != 0) {
            group_fail(member, "%llu elements of %s: %s", (unsigned long long)request.count,
                       muster_type_name(request.type), text);
        }
        copy_from(&in, flat, bytes);
        request.in = flat;
        if (call.ranges != NULL && !in_place &&
            pattern_check_input(&request, member->rank, ranks, text, sizeof text) != 0) {
            group_fail(member, "the input has changed: %s", text);
        }
    }
    free(in.memory);
    free(out.memory);
    free(flat);
    free(result);
}

static void run_calls(struct group_member *member, void *argument)
{
    uint64_t common = seed;
    uint64_t own = seed + 1 + member->rank;
    (void)argument;
    for (int i = 0; i < CALLS && member->failure[0] == '\0'; i++) {
        const struct drawn drawn = draw(&common, member->group->size);
        call_once(member, &drawn, &own);
    }
}

static void run_over(enum group_transport transport, uint32_t segment_bytes)
{
    static const uint32_t hosts[] = {2, 1, 1};
    static const uint32_t orders[RANKS] = {0, 1, 2, 3};
    struct group group;
    group_start_ordered(&group, transport, 3, hosts, orders, segment_bytes);
    group_each(&group, run_calls, NULL);
    group_finish(&group);
    group_start_flat(&group, transport, 2);
    group_each(&group, run_calls, NULL);
    group_finish(&group);
    group_start_flat(&group, transport, 3);
    group_each(&group, run_calls, NULL);
    group_finish(&group);
}

static void test_ranges_in_one_process(void **state)
{
    (void)state;
    run_over(GROUP_INPROC, 0);
    run_over(GROUP_INPROC, 1024);
}

static void test_ranges_over_tcp(void **state)
{
    (void)state;
    run_over(GROUP_TCP, 0);
    run_over(GROUP_TCP, 1024);
}

static void test_ranges_over_links_of_shared_memory(void **state)
{
    (void)state;
    run_over(GROUP_SHM, 0);
    run_over(GROUP_SHM, 1024);
}

static void test_ranges_in_shared_memory(void **state)
{
    (void)state;
    run_over(GROUP_MEMORY, 0);
}

/* Large ones ---------------------------------------------------------------------------------- */

enum { LARGE_COUNT = 3000001, LARGE_RANGES = 30 };

/* How the members hold their memory. */
struct large {
    bool shared;   /* of muster_alloc() */
    bool in_place; /* else ins and outs differ */
    bool average;  /* with factors */
    bool keep;
};

/* Of so many elements; a border lies in the middle of most pieces in which they are moved. */
static void cut_large(float *memory, size_t gap, muster_range *ranges)
{
    size_t left = LARGE_COUNT;
    for (size_t i = 0; i < LARGE_RANGES; i++) {
        ranges[i].count = i + 1 == LARGE_RANGES ? left : i % 3 == 0 ? 7 : 140000 + i;
        ranges[i].address = memory;
        memory += ranges[i].count + gap;
        left -= ranges[i].count;
    }
}

static void *allocate(const struct large *large, size_t size)
{
    void *memory = NULL;
    if (!large->shared) {
        return malloc(size);
    }
    return muster_alloc(size, &memory) == MUSTER_OK ? memory : NULL;
}

static void release(const struct large *large, void *memory)
{
    if (large->shared) {
        muster_free(memory);
    } else {
        free(memory);
    }
}

static float *element(const muster_range *ranges, size_t index)
{
    while (index >= ranges->count) {
        index -= ranges->count;
        ranges++;
    }
    return (float *)ranges->address + index;
}

static float input(size_t index, uint32_t rank)
{
    return (float)((index * 7 + rank) % 1000);
}

static void check_large(struct group_member *member, const struct large *large,
                        const muster_range *ins, const muster_range *outs)
{
    uint32_t ranks = member->group->size;
    for (size_t i = 0; i < LARGE_COUNT; i += 97) {
        float sum = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            sum += input(i, rank);
        }
        float expected = large->average ? sum * 8 / (float)ranks / 2 : sum;
        if (*element(outs, i) != expected) {
            group_fail(member, "element %zu is %g, not %g", i, (double)*element(outs, i),
                       (double)expected);
            return;
        }
        if (!large->in_place && *element(ins, i) != input(i, member->rank)) {
            group_fail(member, "input element %zu has changed", i);
            return;
        }
    }
}

static void run_large(struct group_member *member, void *argument)
{
    const struct large *large = argument;
    size_t gap = 5 + 3 * member->rank;
    size_t room = (LARGE_COUNT + (size_t)LARGE_RANGES * (gap + 3)) * sizeof(float);
    float *in = allocate(large, room);
    float *out = allocate(large, room);
    muster_range ins[LARGE_RANGES];
    muster_range outs[LARGE_RANGES];
    cut_large(in, gap, ins);
    cut_large(out, gap + 3, outs);
    size_t at = 0;
    for (size_t i = 0; i < LARGE_RANGES; i++) {
        for (size_t j = 0; j < ins[i].count; j++) {
            ((float *)ins[i].address)[j] = input(at++, member->rank);
        }
    }
    const struct muster_given_ranges given = {.ins = ins,
                                              .in_count = LARGE_RANGES,
                                              .outs = large->in_place ? ins : outs,
                                              .out_count = LARGE_RANGES};
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .ranges = &given,
                                           .type = MUSTER_FLOAT32,
                                           .op = large->average ? MUSTER_AVERAGE : MUSTER_SUM,
                                           .prescale = large->average ? 8 : 1,
                                           .postscale = large->average ? 0.5 : 1,
                                           .keep_input = large->keep,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    } else {
        check_large(member, large, ins, given.outs);
    }
    release(large, in);
    release(large, out);
}

static void test_large_ranges_give_the_sum_in_every_kind_of_memory(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_MEMORY; transport++) {
        for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
            struct group group;
            group_start_flat(&group, transport, ranks);
            for (unsigned way = 0; way < 16; way += WAYS_STEP) {
                struct large large = {.shared = (way & 1) != 0,
                                      .in_place = (way & 2) != 0,
                                      .average = (way & 4) != 0,
                                      .keep = (way & 8) != 0};
                group_each(&group, run_large, &large);
            }
            group_finish(&group);
        }
    }
}

/* Faults -------------------------------------------------------------------------------------- */

/* A call on `count` ranges of two elements each; its error text, "" if it succeeds. */
static void call_two_each(struct group_member *member, size_t count, size_t step, char *ret_text,
                          size_t size)
{
    float memory[64] = {1};
    muster_range ranges[16];
    for (size_t i = 0; i < count; i++) {
        ranges[i] = (muster_range){&memory[i * step], 2};
    }
    const struct muster_given_ranges given = {ranges, ranges, count, count};
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .ranges = &given,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = group_deadline()};
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    (void)snprintf(ret_text, size, "%s", status == MUSTER_OK ? "" : muster_last_error());
    if (status != MUSTER_OK && status != MUSTER_INVALID) {
        group_fail(member, "the status is %s: %s", muster_status_name(status), muster_last_error());
    }
}

static void call_with_other_totals(struct group_member *member, void *argument)
{
    char text[MUSTER_ERROR_MAX];
    (void)argument;
    call_two_each(member, member->rank == 1 ? 4 : 3, 3, text, sizeof text);
    if (strstr(text, "count 6 here, 8 there") == NULL &&
        strstr(text, "count 8 here, 6 there") == NULL) {
        group_fail(member, "the totals are not in \"%s\"", text);
    }
}

static void test_totals_that_differ_are_named(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, 2);
        group_each(&group, call_with_other_totals, NULL);
        group_finish(&group);
    }
}

/* A wrong call needs no other member, and the next one finds nothing of it. */
static void call_wrong_and_then_well(struct group_member *member, void *argument)
{
    char text[MUSTER_ERROR_MAX];
    (void)argument;
    call_two_each(member, 4, 1, text, sizeof text);
    if (strstr(text, "allreduce: ranges 0 and 1 of outs overlap") == NULL) {
        group_fail(member, "\"%s\"", text);
    }
    call_two_each(member, 4, 3, text, sizeof text);
    if (text[0] != '\0') {
        group_fail(member, "after a wrong call: %s", text);
    }
}

static void test_a_wrong_list_fails_alone(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start_flat(&group, transport, 2);
        group_each(&group, call_wrong_and_then_well, NULL);
        group_finish(&group);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_in_one_process),
        cmocka_unit_test(test_ranges_over_tcp),
        cmocka_unit_test(test_ranges_over_links_of_shared_memory),
        cmocka_unit_test(test_ranges_in_shared_memory),
        cmocka_unit_test(test_large_ranges_give_the_sum_in_every_kind_of_memory),
        cmocka_unit_test(test_totals_that_differ_are_named),
        cmocka_unit_test(test_a_wrong_list_fails_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
