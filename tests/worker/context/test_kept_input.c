/* The two promises, of members that run: inputs that are kept while a member is absent or dies, and
 * members that finish together. */
#include "collectives/call/request_ranges.h"
#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "tests/support/thinning.h"
#include "worker/base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, ABSENT = 3, VICTIM = 2, COUNT = 20000, LARGE = 300000 };
enum { ABSENT_MS = 50 }; /* no result can come: the longer, the more a wrong member has done */

/* A call of all members, and how it ended. */
struct promised_call {
    size_t algorithm;
    uint64_t count;
    bool keep_input, finish_together;
    uint32_t absent;         /* does not call; RANKS: none */
    const uint32_t *callers; /* as of group_start_shuffled(), or NULL */
    muster_status statuses[RANKS];
    atomic_uint changed; /* elements of inputs that are not what they were */
    /* Of a death: */
    atomic_uint reductions; /* of the victim, until it dies */
    atomic_bool dies;
    atomic_uint torn; /* elements that are neither what they were nor the result */
};

static uint64_t value(uint32_t rank, uint64_t element)
{
    return (rank + UINT64_C(1)) * UINT64_C(0x0102030405060708) + element;
}

static uint64_t result(uint64_t element)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        sum += value(rank, element);
    }
    return sum;
}

/* In place; of blocks where the collective has them. */
static struct muster_request request_of(const struct promised_call *call,
                                        const struct group_member *member, uint64_t *data,
                                        const size_t *counts)
{
    const struct muster_algorithm *row = &muster_algorithms[call->algorithm];
    struct muster_request request = {.collective = row->collective,
                                     .in = data,
                                     .out = data,
                                     .count = row->collective == MUSTER_BARRIER ? 0 : call->count,
                                     .type = MUSTER_UINT64,
                                     .op = MUSTER_SUM,
                                     .root = muster_collective_has_root(row->collective) ? 1 : 0,
                                     .algorithm = row->name,
                                     .keep_input = call->keep_input,
                                     .finish_together = call->finish_together,
                                     .deadline_ns = muster_clock_after_ms(ABSENT_MS)};
    if (muster_collective_needs_bounds(row->collective)) {
        request.in_counts = row->collective == MUSTER_ALLTOALLV ? counts : NULL;
        request.out_counts = counts;
    }
    struct muster_shape shape = muster_request_shape(&request, member->rank, RANKS);
    int64_t offset = request.in_counts != NULL || request.out_counts != NULL
                         ? 0
                         : muster_shape_in_place_offset(&shape);
    request.in = data + (offset > 0 ? offset : 0);
    request.out = data + (offset < 0 ? -offset : 0);
    return request;
}

static void call_once(struct group_member *member, void *argument)
{
    struct promised_call *call = argument;
    size_t counts[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        counts[i] = call->count;
    }
    size_t elements = call->count * RANKS + 1;
    uint64_t *data = calloc(elements, sizeof *data);
    for (size_t i = 0; data != NULL && i < elements; i++) {
        data[i] = value(member->rank, i);
    }
    if (data == NULL || member->rank == call->absent) {
        free(data);
        return;
    }
    const struct muster_request request = request_of(call, member, data, counts);
    call->statuses[member->rank] =
        muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    for (size_t i = 0; i < elements; i++) {
        atomic_fetch_add(&call->changed, data[i] != value(member->rank, i));
    }
    free(data);
}

static bool fits(const struct group *group, size_t algorithm)
{
    const struct muster_plan plan = test_plan(algorithm, &group->topology, COUNT, 1);
    return test_fits(algorithm, &plan);
}

/* The members of one call; those that succeeded. A call that failed ends a context, so each has a
 * group of its own. */
static uint32_t run_without_one(enum group_transport transport, struct promised_call *call)
{
    static const uint32_t two[] = {2, 2};
    static const uint32_t one[] = {RANKS};
    struct group group;
    uint32_t succeeded = 0;
    bool memory = transport == GROUP_MEMORY;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        call->statuses[rank] = MUSTER_FATAL;
    }
    if (call->callers != NULL) {
        group_start_shuffled(&group, transport, 2, two, call->callers, NULL);
    } else {
        group_start(&group, transport, memory ? 1 : 2, memory ? one : two, NULL);
    }
    if (fits(&group, call->algorithm)) {
        group_each(&group, call_once, call);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        succeeded += call->statuses[rank] == MUSTER_OK;
    }
    group_finish(&group);
    return succeeded;
}

static void expect_unchanged(enum group_transport transport, size_t algorithm,
                             const uint32_t *callers)
{
    struct promised_call call = {.algorithm = algorithm,
                                 .count = COUNT,
                                 .keep_input = true,
                                 .absent = ABSENT,
                                 .callers = callers};
    (void)run_without_one(transport, &call);
    if (atomic_load(&call.changed) > 0) {
        fail_msg("%s %s: %u elements have changed before all members had called",
                 muster_collective_name(muster_algorithms[algorithm].collective),
                 muster_algorithms[algorithm].name, atomic_load(&call.changed));
    }
}

static void no_input_in_place_changes_before_all_members_have_called(void **state)
{
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i += TEST_ONE_OF) {
        if (muster_collective_overwrites_input(muster_algorithms[i].collective)) {
            expect_unchanged(i % 2 == 0 ? GROUP_INPROC : GROUP_TCP, i, NULL);
            if (muster_algorithm_uses_memory(i)) {
                expect_unchanged(GROUP_MEMORY, i, NULL);
            }
        }
    }
}

/* Where blocks are copied because the schedule has them in another order. */
static void nor_does_it_in_any_order_of_ranks(void **state)
{
    static const uint32_t dealt[RANKS] = {0, 2, 3, 1};
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i += TEST_ONE_OF) {
        if (muster_collective_overwrites_input(muster_algorithms[i].collective)) {
            expect_unchanged(GROUP_INPROC, i, dealt);
        }
    }
}

static void without_the_promise_inputs_in_place_change(void **state)
{
    (void)state;
    struct promised_call call = {.count = COUNT, .absent = ABSENT};
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "ring", &call.algorithm), MUSTER_OK);
    (void)run_without_one(GROUP_INPROC, &call);
    assert_true(atomic_load(&call.changed) > 0);
}

static uint32_t finishers(enum group_transport transport, size_t algorithm, uint64_t count,
                          bool together)
{
    struct promised_call call = {
        .algorithm = algorithm, .count = count, .finish_together = together, .absent = ABSENT};
    return run_without_one(transport, &call);
}

static void no_member_finishes_before_all_have_called(void **state)
{
    (void)state;
    uint32_t early = 0;
    for (size_t i = 0; i < muster_algorithm_count; i += TEST_ONE_OF) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        for (int empty = 0; empty < 2; empty++) {
            uint64_t count = empty == 1 ? 0 : 100;
            enum group_transport transport =
                muster_algorithm_uses_memory(i) ? GROUP_MEMORY : GROUP_INPROC;
            if (finishers(transport, i, count, true) > 0) {
                fail_msg("%s %s, count %u: a member finishes alone",
                         muster_collective_name(row->collective), row->name, (unsigned)count);
            }
            bool sends = row->collective == MUSTER_BROADCAST || row->collective == MUSTER_REDUCE;
            early += sends ? finishers(transport, i, count, false) : 0;
        }
    }
    assert_true(early > 0);
}

/* Deaths --------------------------------------------------------------------------------------- */

/* Stands in for the service: revokes the generation on all members. */
static void revoke_everywhere(struct group *group)
{
    for (uint32_t i = 0; i < group->size; i++) {
        muster_fabric_revoke(group->members[i].fabric, group->generation, "rank 2 died");
    }
}

struct adding {
    struct promised_call *call;
    uint32_t rank;
};

/* The victim dies in the middle of its reductions. The buffers are in memory that members of a host
 * read directly. */
static void add(void *out, const void *left, const void *right, size_t count, muster_type type,
                void *user_data)
{
    const struct adding *adding = user_data;
    (void)type;
    for (size_t i = 0; i < count; i++) {
        ((uint64_t *)out)[i] = ((const uint64_t *)left)[i] + ((const uint64_t *)right)[i];
    }
    if (adding->rank == VICTIM && atomic_fetch_sub(&adding->call->reductions, 1) == 1) {
        atomic_store(&adding->call->dies, true);
    }
}

struct killer {
    struct group_member *victim;
    struct promised_call *call;
    atomic_bool over;
};

static void *kill_victim(void *argument)
{
    struct killer *killer = argument;
    while (!atomic_load(&killer->call->dies) && !atomic_load(&killer->over)) {
        (void)sched_yield();
    }
    muster_fabric_kill(killer->victim->fabric);
    return NULL;
}

static void reduce_until_the_death(struct group_member *member, void *argument)
{
    struct promised_call *call = argument;
    struct adding adding = {.call = call, .rank = member->rank};
    struct killer killer = {.victim = member, .call = call};
    void *memory = NULL;
    muster_status allocated = muster_alloc(LARGE * sizeof(uint64_t), &memory);
    uint64_t *data = memory;
    pthread_t thread;
    bool victim = member->rank == VICTIM;
    for (size_t i = 0; allocated == MUSTER_OK && i < LARGE; i++) {
        data[i] = value(member->rank, i);
    }
    if (allocated != MUSTER_OK ||
        (victim && pthread_create(&thread, NULL, kill_victim, &killer) != 0)) {
        group_fail(member, "no memory or thread");
        return;
    }
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = data,
                                           .out = data,
                                           .count = LARGE,
                                           .type = MUSTER_UINT64,
                                           .op = MUSTER_USER,
                                           .user_function = add,
                                           .user_data = &adding,
                                           .algorithm = muster_algorithms[call->algorithm].name,
                                           .keep_input = true,
                                           .deadline_ns = group_deadline()};
    call->statuses[member->rank] =
        muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    if (call->statuses[member->rank] != MUSTER_OK) {
        revoke_everywhere(member->group);
    }
    if (victim) {
        atomic_store(&killer.over, true);
        (void)pthread_join(thread, NULL);
    }
    for (size_t i = 0; i < LARGE; i++) {
        bool whole = data[i] == value(member->rank, i) || data[i] == result(i);
        atomic_fetch_add(&call->torn, !whole);
        data[i] = UINT64_MAX; /* the buffer is the caller's again: nobody may read this */
    }
    muster_free(data);
}

static void a_death_leaves_each_element_as_it_was_or_as_the_result(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    static const uint32_t sizes[] = {2, 2};
    for (size_t i = 0; i < muster_algorithm_count; i += TEST_ONE_OF) {
        enum group_transport transport = i % 2 == 0 ? GROUP_TCP : GROUP_SHM;
        struct promised_call call = {.algorithm = i};
        struct group group;
        group_start(&group, transport, 2, sizes, NULL);
        if (muster_algorithms[i].collective == MUSTER_ALLREDUCE && fits(&group, i)) {
            atomic_store(&call.reductions, 1 + test_random_below(&random, 12));
            group_each(&group, reduce_until_the_death, &call);
            if (atomic_load(&call.torn) > 0) {
                fail_msg("%s: %u elements are neither input nor result", muster_algorithms[i].name,
                         atomic_load(&call.torn));
            }
        }
        group_finish(&group);
    }
}

/* Requests ------------------------------------------------------------------------------------- */

static void disagree(struct group_member *member, void *argument)
{
    struct muster_request *requests = argument;
    uint64_t data[RANKS] = {0};
    struct muster_request request = requests[member->rank % 2];
    request.in = request.collective == MUSTER_BROADCAST ? NULL : data;
    request.out = data;
    request.count = RANKS;
    request.type = MUSTER_UINT64;
    request.deadline_ns = group_deadline();
    const char *wanted =
        request.keep_input || requests[0].keep_input ? "keep_input " : "finish_together ";
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    if (status != MUSTER_INVALID || strstr(muster_last_error(), wanted) == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status),
                   status == MUSTER_OK ? "" : muster_last_error());
    }
}

static void members_that_ask_for_different_promises_are_told(void **state)
{
    (void)state;
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_MEMORY};
    for (size_t i = 0; i < 2; i++) {
        struct group group;
        group_start_flat(&group, transports[i], 2);
        struct muster_request kept[2] = {
            {.collective = MUSTER_ALLREDUCE, .algorithm = "ring", .keep_input = true},
            {.collective = MUSTER_ALLREDUCE, .algorithm = "ring"}};
        group_each(&group, disagree, kept);
        struct muster_request together[2] = {
            {.collective = MUSTER_BROADCAST, .algorithm = "binomial", .finish_together = true},
            {.collective = MUSTER_BROADCAST, .algorithm = "binomial"}};
        group_each(&group, disagree, together);
        group_finish(&group);
    }
}

enum gathered { SCALED, SEVERAL_BUFFERS, SCALED_RANGES, GATHERED };

/* Scaled, and of several buffers or ranges: what a rank does alone must not touch the input either.
 */
static void gather_and_wait(struct group_member *member, void *argument)
{
    const enum gathered gathered = *(const enum gathered *)argument;
    enum { SMALL = 1000 };
    float data[2][SMALL];
    for (size_t i = 0; i < 2 * (size_t)SMALL; i++) {
        data[i / SMALL][i % SMALL] = (float)(member->rank + i);
    }
    void *buffers[2] = {data[0], data[1]};
    const muster_range ranges[2] = {{data[1], SMALL}, {data[0], SMALL}};
    const struct muster_given_ranges given = {ranges, ranges, 2, 2};
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = data[0],
                                     .out = data[0],
                                     .count = SMALL,
                                     .type = MUSTER_FLOAT32,
                                     .op = MUSTER_SUM,
                                     .prescale = gathered == SEVERAL_BUFFERS ? 0 : 3,
                                     .buffer_count = gathered == SEVERAL_BUFFERS ? 2 : 0,
                                     .ranges = gathered == SCALED_RANGES ? &given : NULL,
                                     .inputs = (const void *const *)buffers,
                                     .outputs = buffers,
                                     .keep_input = true,
                                     .deadline_ns = muster_clock_after_ms(ABSENT_MS)};
    if (member->rank == ABSENT) {
        return;
    }
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) == MUSTER_OK) {
        group_fail(member, "succeeded without rank %d", ABSENT);
    }
    for (size_t i = 0; i < 2 * (size_t)SMALL; i++) {
        if (data[i / SMALL][i % SMALL] != (float)(member->rank + i)) {
            group_fail(member, "element %zu has changed", i);
        }
    }
}

static void scaled_inputs_and_several_buffers_are_kept(void **state)
{
    (void)state;
    for (enum gathered gathered = SCALED; gathered < GATHERED; gathered++) {
        struct group group;
        group_start_flat(&group, gathered == SEVERAL_BUFFERS ? GROUP_MEMORY : GROUP_INPROC, RANKS);
        group_each(&group, gather_and_wait, &gathered);
        group_finish(&group);
    }
}

/* The last member starts when the others' calls have been in flight for a while. */
static void start_late(struct group_member *member, void *argument)
{
    pthread_barrier_t *looked = argument;
    enum { SMALL = 1000 };
    uint64_t data[SMALL];
    uint64_t shared = member->rank;
    const struct muster_request requests[] = {{.collective = MUSTER_ALLREDUCE,
                                               .in = data,
                                               .out = data,
                                               .count = SMALL,
                                               .type = MUSTER_UINT64,
                                               .op = MUSTER_SUM,
                                               .algorithm = "ring",
                                               .keep_input = true,
                                               .deadline_ns = group_deadline()},
                                              {.collective = MUSTER_BROADCAST,
                                               .out = &shared,
                                               .count = 1,
                                               .type = MUSTER_UINT64,
                                               .algorithm = "binomial",
                                               .finish_together = true,
                                               .deadline_ns = group_deadline()}};
    struct muster_started_call *calls[2] = {NULL, NULL};
    for (size_t i = 0; i < SMALL; i++) {
        data[i] = value(member->rank, i);
    }
    if (member->rank == ABSENT) {
        (void)pthread_barrier_wait(looked);
    }
    for (size_t i = 0; i < 2; i++) {
        if (muster_context_start(member->contexts[MUSTER_GLOBAL], &requests[i], &calls[i]) !=
            MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
    }
    if (member->rank != ABSENT) {
        bool early = muster_started_call_wait(calls[1], muster_clock_after_ms(ABSENT_MS));
        for (size_t i = 0; i < SMALL; i++) {
            early |= data[i] != value(member->rank, i);
        }
        if (early) {
            group_fail(member, "an input has changed, or a call is done, before all have started");
        }
        (void)pthread_barrier_wait(looked);
    }
    for (size_t i = 0; i < 2; i++) {
        if (muster_started_call_end(calls[i], NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
    }
    if (data[SMALL - 1] != result(SMALL - 1) || shared != 0) {
        group_fail(member, "wrong results");
    }
}

static void calls_in_flight_keep_both_promises(void **state)
{
    (void)state;
    pthread_barrier_t looked;
    struct group group;
    assert_int_equal(pthread_barrier_init(&looked, NULL, RANKS), 0);
    group_start_flat(&group, GROUP_TCP, RANKS);
    group_each(&group, start_late, &looked);
    group_finish(&group);
    (void)pthread_barrier_destroy(&looked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_input_in_place_changes_before_all_members_have_called),
        cmocka_unit_test(nor_does_it_in_any_order_of_ranks),
        cmocka_unit_test(without_the_promise_inputs_in_place_change),
        cmocka_unit_test(no_member_finishes_before_all_have_called),
        cmocka_unit_test(a_death_leaves_each_element_as_it_was_or_as_the_result),
        cmocka_unit_test(members_that_ask_for_different_promises_are_told),
        cmocka_unit_test(scaled_inputs_and_several_buffers_are_kept),
        cmocka_unit_test(calls_in_flight_keep_both_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
