/* Contexts: wrong requests, deadlines, revoked generations, callers in several threads, and which
 * algorithm runs. */
#include "tests/support/calls.h"
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = GROUP_CALL_DOUBLES / 2, SHORT_MS = 100 };

/* Refusals ------------------------------------------------------------------------------------ */

static void assert_refused(struct group *group, struct muster_request request, const char *word)
{
    assert_int_equal(muster_context_run(group->members[0].contexts[MUSTER_GLOBAL], &request, NULL),
                     MUSTER_INVALID);
    if (strstr(muster_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", muster_last_error(), word);
    }
}

static void a_wrong_request_is_refused_and_is_not_numbered(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 2);
    float data[40] = {0};
    const struct muster_request good = {.collective = MUSTER_ALLREDUCE,
                                        .in = data,
                                        .out = data + 20,
                                        .count = 10,
                                        .deadline_ns = group_deadline()};
    struct muster_request bad = good;
    bad.collective = (enum muster_collective)77;
    assert_refused(&group, bad, "collective 77");
    bad = good;
    bad.type = (muster_type)77;
    assert_refused(&group, bad, "type 77");
    bad = good;
    bad.op = (muster_op)-1;
    assert_refused(&group, bad, "operation");
    bad.op = MUSTER_BITWISE_OR;
    assert_refused(&group, bad, "allreduce: float32 has no operation bitwise_or");
    bad = good;
    bad.out = NULL;
    assert_refused(&group, bad, "output buffer is NULL");
    bad = good;
    bad.in = NULL;
    assert_refused(&group, bad, "input buffer is NULL");
    bad = good;
    bad.out = data + 9;
    assert_refused(&group, bad, "overlap");
    bad.collective = MUSTER_REDUCE_SCATTER; /* reads 2 x 10 elements */
    bad.out = data + 19;
    assert_refused(&group, bad, "overlap");
    bad.collective = MUSTER_ALLGATHER; /* in place only at its own block */
    bad.in = data + 10;
    bad.out = data;
    assert_refused(&group, bad, "overlap");
    bad = good;
    bad.count = UINT64_MAX / 4;
    assert_refused(&group, bad, "over the limit");
    bad = good;
    bad.collective = MUSTER_BROADCAST;
    assert_refused(&group, bad, "one buffer");
    bad.in = NULL;
    bad.root = 2;
    assert_refused(&group, bad, "root 2");
    bad = good;
    bad.algorithm = "no_such_thing";
    assert_refused(&group, bad, "no_such_thing");
    group_each(&group, group_allreduce_well, NULL);
    assert_int_equal(muster_context_progress(group.members[0].contexts[MUSTER_GLOBAL]), 1);
    group_finish(&group);
}

static void empty_calls_need_no_buffers(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 3);
    for (int i = MUSTER_ALLREDUCE; i < MUSTER_COLLECTIVE_END; i++) {
        struct group_calls *calls = group_calls_create((enum muster_collective)i);
        memset(calls->counts, 0, sizeof calls->counts);
        for (uint32_t rank = 0; rank < 3; rank++) {
            calls->requests[rank].in = calls->requests[rank].out = NULL;
            calls->requests[rank].count = 0;
        }
        group_each(&group, group_call, calls);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(calls->statuses[rank], MUSTER_OK);
        }
        free(calls);
    }
    group_finish(&group);
}

/* Deadlines and revocations ------------------------------------------------------------------- */

static void a_silent_member_is_named_at_the_deadline(void **state)
{
    (void)state;
    struct group group;
    struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->silent[2] = true;
    for (uint32_t i = 0; i < 3; i++) {
        calls->requests[i].deadline_ns = muster_clock_after_ms(SHORT_MS);
    }
    group_start_flat(&group, GROUP_INPROC, 3);
    group_each(&group, group_call, calls);
    bool suspected = false;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(calls->statuses[i], MUSTER_REJOIN);
        assert_non_null(strstr(calls->texts[i],
                               "allreduce #1 (context global, generation 3): "
                               "the deadline passed while it waited for rank"));
        assert_in_range(calls->suspects[i], 0, 2);
        suspected = suspected || calls->suspects[i] == 2;
    }
    assert_true(suspected);

    /* The members may have numbered different calls: no call runs any more, and each says why. */
    char first[MUSTER_ERROR_MAX];
    memcpy(first, calls->texts[0], sizeof first);
    calls->silent[1] = true;
    group_each(&group, group_call, calls);
    assert_int_equal(calls->statuses[0], MUSTER_REJOIN);
    assert_string_equal(calls->texts[0], first);
    assert_int_equal(calls->suspects[0], UINT32_MAX);
    group_finish(&group);
    free(calls);
}

/* The same in every collective: rank 0 waits for the silent rank, or for a rank that waits for it.
 * In a pairwise exchange of three it waits for rank 1 only. */
static void every_collective_with_a_silent_member_ends_at_the_deadline(void **state)
{
    (void)state;
    for (int i = MUSTER_ALLREDUCE; i < MUSTER_COLLECTIVE_END; i++) {
        struct group group;
        enum muster_collective collective = (enum muster_collective)i;
        struct group_calls *calls = group_calls_create(collective);
        bool from_root = collective == MUSTER_BROADCAST || collective == MUSTER_SCATTER;
        calls->silent[collective == MUSTER_PAIRWISE_EXCHANGE ? 1 : 2] = true;
        for (uint32_t rank = 0; rank < 3; rank++) {
            calls->requests[rank].root = from_root ? 2 : 0;
            calls->requests[rank].deadline_ns = muster_clock_after_ms(SHORT_MS);
        }
        group_start_flat(&group, GROUP_INPROC, 3);
        group_each(&group, group_call, calls);
        assert_int_equal(calls->statuses[0], MUSTER_REJOIN);
        if (strstr(calls->texts[0], "the deadline passed while it waited for rank") == NULL ||
            strstr(calls->texts[0], muster_collective_name(collective)) != calls->texts[0]) {
            fail_msg("%s", calls->texts[0]);
        }
        assert_in_range(calls->suspects[0], 1, 2);
        group_finish(&group);
        free(calls);
    }
}

static void call_or_revoke(struct group_member *member, void *argument)
{
    if (member->rank > 0) {
        group_call(member, argument);
        return;
    }
    for (uint32_t i = 1; i < member->group->size; i++) {
        muster_fabric_revoke(member->group->members[i].fabric, member->group->generation,
                             "two members joined");
    }
}

static void assert_revoked(const struct group_calls *calls, uint32_t first)
{
    for (uint32_t i = first; i < 4; i++) {
        assert_int_equal(calls->statuses[i], MUSTER_REJOIN);
        assert_non_null(strstr(calls->texts[i], "two members joined"));
        assert_int_equal(calls->suspects[i], UINT32_MAX);
    }
}

static void a_revoked_generation_ends_the_operation(void **state)
{
    (void)state;
    for (int transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
        group_start_flat(&group, (enum group_transport)transport, 4);
        group_each(&group, call_or_revoke, calls);
        assert_revoked(calls, 1);
        group_finish(&group);
        free(calls);
    }
}

/* A small broadcast in shared memory is the strictest case: its root waits for no rank. */
static void no_operation_begins_in_a_revoked_generation(void **state)
{
    (void)state;
    for (int transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        struct group_calls *calls = group_calls_create(MUSTER_BROADCAST);
        group_start_flat(&group, (enum group_transport)transport, 4);
        for (uint32_t i = 0; i < 4; i++) {
            muster_fabric_revoke(group.members[i].fabric, group.generation, "two members joined");
        }
        group_each(&group, group_call, calls);
        assert_revoked(calls, 0);
        group_finish(&group);
        free(calls);
    }
}

/* Several calls at a time --------------------------------------------------------------------- */

struct scope_work {
    struct group_member *member;
    muster_scope scope;
    char failure[MUSTER_ERROR_MAX];
};

static void *reduce_in_scope(void *argument)
{
    struct scope_work *work = argument;
    struct muster_context *context = work->member->contexts[work->scope];
    uint32_t rank = muster_context_rank(context);
    uint32_t size = muster_context_size(context);
    float in[COUNT];
    float out[COUNT];
    char text[MUSTER_ERROR_MAX] = "";
    for (uint64_t i = 0; i < 50 && text[0] == '\0'; i++) {
        struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                         .in = in,
                                         .out = out,
                                         .count = 1 + 19 * i,
                                         .deadline_ns = group_deadline()};
        pattern_fill(&request, in, rank, size);
        if (muster_context_run(context, &request, NULL) != MUSTER_OK) {
            (void)snprintf(text, sizeof text, "%s", muster_last_error());
        } else {
            (void)pattern_check(&request, rank, size, text, sizeof text);
        }
    }
    memcpy(work->failure, text, sizeof text);
    return NULL;
}

static void work_in_two_scopes(struct group_member *member, void *argument)
{
    (void)argument;
    struct scope_work local = {.member = member, .scope = MUSTER_LOCAL};
    struct scope_work cross = {.member = member, .scope = MUSTER_CROSS};
    pthread_t thread;
    if (pthread_create(&thread, NULL, reduce_in_scope, &local) != 0) {
        abort();
    }
    (void)reduce_in_scope(&cross);
    pthread_join(thread, NULL);
    if (local.failure[0] != '\0' || cross.failure[0] != '\0') {
        group_fail(member, "local: %s; cross: %s", local.failure, cross.failure);
    }
}

static void scopes_run_at_the_same_time(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {3, 2, 1};
    for (int transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start(&group, (enum group_transport)transport, 3, sizes, NULL);
        group_each(&group, work_in_two_scopes, NULL);
        group_finish(&group);
    }
}

enum { TURNS = 200 };

/* Threads of one member that call the same context take turns. All make the same request, because
 * the order of their turns is not defined. */
static void *reduce_ones(void *argument)
{
    struct scope_work *work = argument;
    struct muster_context *context = work->member->contexts[MUSTER_GLOBAL];
    for (int i = 0; i < TURNS; i++) {
        int32_t one = 1;
        int32_t sum = 0;
        struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                         .in = &one,
                                         .out = &sum,
                                         .count = 1,
                                         .type = MUSTER_INT32,
                                         .deadline_ns = group_deadline()};
        if (muster_context_run(context, &request, NULL) != MUSTER_OK ||
            sum != (int32_t)muster_context_size(context)) {
            (void)snprintf(work->failure, sizeof work->failure, "%d: %s", sum, muster_last_error());
        }
    }
    return NULL;
}

/* Predicts the time of another call meanwhile, which must not touch the state of the call that
 * runs. */
static void *predict_another_call(void *argument)
{
    struct scope_work *work = argument;
    struct muster_context *context = work->member->contexts[MUSTER_GLOBAL];
    for (int i = 0; i < TURNS; i++) {
        float value = 0;
        double us = 0;
        struct muster_request request = {.collective = MUSTER_BROADCAST,
                                         .in = &value,
                                         .out = &value,
                                         .count = 1,
                                         .type = MUSTER_FLOAT32,
                                         .deadline_ns = group_deadline()};
        if (muster_context_predict(context, &request, &us) != MUSTER_OK || us <= 0) {
            (void)snprintf(work->failure, sizeof work->failure, "%g us: %s", us,
                           muster_last_error());
        }
    }
    return NULL;
}

static void call_from_three_threads(struct group_member *member, void *argument)
{
    (void)argument;
    struct scope_work works[3] = {{.member = member}, {.member = member}, {.member = member}};
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, reduce_ones, &works[0]) != 0 ||
        pthread_create(&threads[1], NULL, predict_another_call, &works[1]) != 0) {
        abort();
    }
    (void)reduce_ones(&works[2]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    for (int i = 0; i < 3; i++) {
        if (works[i].failure[0] != '\0') {
            group_fail(member, "thread %d: %s", i, works[i].failure);
        }
    }
}

static void callers_of_one_context_take_turns(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 3);
    group_each(&group, call_from_three_threads, NULL);
    assert_int_equal(muster_context_progress(group.members[1].contexts[MUSTER_GLOBAL]), 2 * TURNS);
    group_finish(&group);
}

/* The first call of rank 0 keeps its turn inside its user function until a second call of rank 0
 * has passed its deadline. */
struct held_call {
    struct group_member *member;
    sem_t started, go_on;
    atomic_flag has_blocked;
    muster_status status; /* of the first call */
};

static void add_and_block_once(void *out, const void *left, const void *right, size_t count,
                               muster_type type, void *user)
{
    struct held_call *held_call = user;
    if (held_call != NULL && !atomic_flag_test_and_set(&held_call->has_blocked)) {
        sem_post(&held_call->started);
        sem_wait(&held_call->go_on);
    }
    pattern_user(out, left, right, count, type, NULL);
}

static muster_status add_ones(struct group_member *member, struct held_call *held_call,
                              int64_t deadline_ns)
{
    int32_t one = 1;
    int32_t sum = 0;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &one,
                                           .out = &sum,
                                           .count = 1,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_USER,
                                           .user_function = add_and_block_once,
                                           .user_data = held_call,
                                           .deadline_ns = deadline_ns};
    return muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
}

static void *run_held_call(void *argument)
{
    struct held_call *held_call = argument;
    held_call->status = add_ones(held_call->member, held_call, group_deadline());
    return NULL;
}

static void expect_timeout(struct group_member *member)
{
    muster_status status = add_ones(member, NULL, muster_clock_after_ms(SHORT_MS));
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), "another call") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void time_out_in_the_queue(struct group_member *member, void *argument)
{
    struct held_call *held_call = argument;
    pthread_t thread;
    if (member->rank != 0) {
        if (add_ones(member, NULL, group_deadline()) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
        return;
    }
    held_call->member = member;
    if (pthread_create(&thread, NULL, run_held_call, held_call) != 0) {
        abort();
    }
    sem_wait(&held_call->started);
    expect_timeout(member); /* hangs if the deadline did not end the wait for a turn */
    sem_post(&held_call->go_on);
    pthread_join(thread, NULL);
    if (held_call->status != MUSTER_OK) {
        group_fail(member, "the first call: %s", muster_status_name(held_call->status));
    }
    expect_timeout(member); /* the context has ended: the other ranks have numbered that call */
}

static void a_call_that_waits_for_its_turn_ends_at_its_deadline(void **state)
{
    (void)state;
    struct held_call held_call = {.has_blocked = ATOMIC_FLAG_INIT};
    struct group group;
    assert_int_equal(sem_init(&held_call.started, 0, 0), 0);
    assert_int_equal(sem_init(&held_call.go_on, 0, 0), 0);
    group_start_flat(&group, GROUP_INPROC, 2);
    group_each(&group, time_out_in_the_queue, &held_call);
    group_finish(&group);
    sem_destroy(&held_call.started);
    sem_destroy(&held_call.go_on);
}

/* Results and choices ------------------------------------------------------------------------- */

/* The values make the sums depend on the order of the additions. */
static void all_ranks_have_the_same_bits(void **state)
{
    (void)state;
    enum { RANKS = 7 };
    static const uint32_t sizes[] = {4, 3};
    srand(4711);
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        if (muster_algorithms[i].collective != MUSTER_ALLREDUCE) {
            continue;
        }
        struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            calls->requests[rank].count = COUNT;
            calls->requests[rank].type = MUSTER_FLOAT64;
            calls->requests[rank].algorithm = muster_algorithms[i].name;
            for (int j = 0; j < COUNT; j++) {
                calls->in[rank][j] = rand() / 3.0 - rand() * 1e-7; /* NOLINT: repeatable */
            }
        }
        struct group group;
        group_start(&group, GROUP_INPROC, 2, sizes, NULL);
        group_each(&group, group_call, calls);
        group_finish(&group);
        for (uint32_t rank = 1; rank < RANKS; rank++) {
            assert_int_equal(calls->statuses[rank], MUSTER_OK);
            assert_memory_equal(calls->out[rank], calls->out[0], COUNT * sizeof(double));
        }
        free(calls);
    }
}

static const char *chosen(const struct group *group, const struct muster_request *request)
{
    static char name[MUSTER_ALGORITHM_NAME_SIZE];
    size_t algorithm;
    assert_int_equal(
        muster_context_algorithm(group->members[0].contexts[MUSTER_GLOBAL], request, &algorithm),
        MUSTER_OK);
    muster_algorithm_print(algorithm, name, sizeof name);
    return name;
}

static void a_named_algorithm_is_used_where_it_can_be(void **state)
{
    (void)state;
    struct group group;
    static const uint32_t sizes[] = {2, 1};
    group_start(&group, GROUP_INPROC, 2, sizes, "ring_chunked");
    const struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    struct muster_request request = calls->requests[0];
    assert_string_equal(chosen(&group, &request), "ring_chunked");
    request.algorithm = "ring"; /* the call's name overrides the context's */
    assert_string_equal(chosen(&group, &request), "ring");
    request.algorithm = "allreduce_ring"; /* Gloo's name */
    assert_string_equal(chosen(&group, &request), "ring_whole");
    request.algorithm = NULL;
    request.collective = MUSTER_BARRIER; /* no barrier has this name */
    assert_string_not_equal(chosen(&group, &request), "ring_chunked");
    group_finish(&group);
    free((void *)calls);

    uint32_t rank = 0;
    struct muster_topology topology;
    struct muster_context *context = NULL;
    assert_int_equal(muster_topology_init_even(1, 1, &topology), MUSTER_OK);
    const struct muster_context_options options = {.name = "global",
                                                   .topology = &topology,
                                                   .ranks = &rank,
                                                   .model = &muster_cost_model_default,
                                                   .algorithm = "rnig"};
    assert_int_equal(muster_context_create(&options, &context), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "\"rnig\""));
    muster_topology_finish(&topology);
}

static void reduce_many_shapes(struct group_member *member, void *argument)
{
    (void)argument;
    enum { SHAPES = 300 }; /* more than are cached; the second round makes the operations again */
    int32_t in[SHAPES];
    int32_t out[SHAPES];
    char text[128] = "";
    for (uint64_t i = 0; i < 2 * (uint64_t)SHAPES; i++) {
        struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                         .in = in,
                                         .out = out,
                                         .count = i % SHAPES,
                                         .type = MUSTER_INT32,
                                         .deadline_ns = group_deadline()};
        pattern_fill(&request, in, member->rank, member->group->size);
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
        if (pattern_check(&request, member->rank, member->group->size, text, sizeof text) > 0) {
            group_fail(member, "%s", text);
        }
    }
}

static void more_shapes_than_the_cache_holds_give_right_results(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, 2);
    group_each(&group, reduce_many_shapes, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_request_is_refused_and_is_not_numbered),
        cmocka_unit_test(empty_calls_need_no_buffers),
        cmocka_unit_test(a_silent_member_is_named_at_the_deadline),
        cmocka_unit_test(every_collective_with_a_silent_member_ends_at_the_deadline),
        cmocka_unit_test(a_revoked_generation_ends_the_operation),
        cmocka_unit_test(no_operation_begins_in_a_revoked_generation),
        cmocka_unit_test(scopes_run_at_the_same_time),
        cmocka_unit_test(callers_of_one_context_take_turns),
        cmocka_unit_test(a_call_that_waits_for_its_turn_ends_at_its_deadline),
        cmocka_unit_test(all_ranks_have_the_same_bits),
        cmocka_unit_test(a_named_algorithm_is_used_where_it_can_be),
        cmocka_unit_test(more_shapes_than_the_cache_holds_give_right_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
