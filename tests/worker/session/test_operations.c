/* Operations in flight as users have them: handles that are waited for, tested, detached and used
 * wrongly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/schedules.h"
#include "tests/support/service.h"
#include "worker/session/operations.h"

enum { COUNT = 1000, OPERATIONS = 20 };

struct buffers {
    int32_t in[COUNT], out[COUNT];
};

static void fill(struct buffers *buffers, int32_t value)
{
    for (int32_t i = 0; i < COUNT; i++) {
        buffers->in[i] = value + i;
    }
}

static muster_status start_sum(muster_session *session, struct buffers *buffers,
                               muster_operation *ret_operation)
{
    return muster_allreduce_start(session, MUSTER_GLOBAL, buffers->in, buffers->out, COUNT,
                                  MUSTER_INT32, MUSTER_SUM, NULL, ret_operation);
}

static bool is_sum(const struct buffers *buffers, int32_t value, int32_t members)
{
    for (int32_t i = 0; i < COUNT; i++) {
        if (buffers->out[i] != members * (value + i)) {
            return false;
        }
    }
    return true;
}

/* Each way to find out that an operation is done consumes its handle. */
static void wait_in_all_ways(struct crew_member *member)
{
    static struct buffers all[4][OPERATIONS];
    struct buffers *own = all[member->index];
    muster_operation operations[OPERATIONS];
    int32_t members = (int32_t)muster_size(member->session, MUSTER_GLOBAL);
    for (int32_t i = 0; i < OPERATIONS; i++) {
        fill(&own[i], i);
        MEMBER_OK(member, start_sum(member->session, &own[i], &operations[i]));
    }
    size_t left = OPERATIONS;
    MEMBER_OK(member, muster_wait(operations[--left]));
    MEMBER_CHECK(member, is_sum(&own[left], (int32_t)left, members));
    MEMBER_CHECK(member, muster_wait(operations[left]) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "is not in flight") != NULL);

    MEMBER_OK(member, muster_wait_for(operations[--left], 20000));
    MEMBER_CHECK(member, is_sum(&own[left], (int32_t)left, members));

    int done = 0;
    left--;
    while (done == 0) {
        MEMBER_OK(member, muster_test(operations[left], &done));
    }
    MEMBER_CHECK(member, is_sum(&own[left], (int32_t)left, members));
    MEMBER_CHECK(member, muster_test(operations[left], &done) == MUSTER_INVALID);

    bool seen[OPERATIONS] = {false};
    int32_t place_of[OPERATIONS];
    for (int32_t i = 0; i < OPERATIONS; i++) {
        place_of[i] = i;
    }
    for (; left > 0; left--) {
        size_t index = SIZE_MAX;
        MEMBER_OK(member, muster_wait_any(operations, left, &index));
        MEMBER_CHECK(member, index < left && !seen[place_of[index]]);
        seen[place_of[index]] = true;
        MEMBER_CHECK(member, is_sum(&own[place_of[index]], place_of[index], members));
        operations[index] = operations[left - 1];
        place_of[index] = place_of[left - 1];
    }
}

static void test_a_handle_is_consumed_by_the_call_that_reports_the_end(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "ways",
                        .count = 4,
                        .hosts = 2,
                        .function = wait_in_all_ways};
    assert_int_equal(crew_run(&crew), 0);
}

/* Handles of one member that has another one still to come. */
static void use_wrongly(struct crew_member *member)
{
    struct buffers buffers;
    struct buffers other;
    muster_operation operation = 0;
    muster_operation twice[2];
    size_t index = 7;
    int done = 1;
    fill(&buffers, 0);
    fill(&other, 0);
    MEMBER_CHECK(member, muster_wait(0) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_wait(UINT64_MAX) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_detach(12345) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_wait_any(NULL, 0, &index) == MUSTER_INVALID);
    MEMBER_CHECK(member, start_sum(member->session, &buffers, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "ret_operation is NULL") != NULL);
    MEMBER_CHECK(member, muster_allreduce_start(member->session, MUSTER_GLOBAL, buffers.in, NULL,
                                                COUNT, MUSTER_INT32, MUSTER_SUM, NULL,
                                                &operation) == MUSTER_INVALID);
    MEMBER_CHECK(member, operation == 0);
    if (member->index == 1) {
        crew_barrier(member);
    }
    MEMBER_OK(member, start_sum(member->session, &buffers, &operation));
    if (member->index == 0) { /* member 1 has not started: it cannot be done */
        MEMBER_OK(member, muster_test(operation, &done));
        MEMBER_CHECK(member, done == 0);
        MEMBER_CHECK(member, muster_wait_for(operation, 10) == MUSTER_RETRY);
        MEMBER_CHECK(member, strstr(muster_last_error(), "still in flight") != NULL);
        twice[0] = twice[1] = operation;
        MEMBER_CHECK(member, muster_wait_any(twice, 2, &index) == MUSTER_INVALID);
        MEMBER_CHECK(member, strstr(muster_last_error(), "is listed twice") != NULL);
        MEMBER_CHECK(member, index == 7);
        crew_barrier(member);
    }
    MEMBER_OK(member, muster_wait(operation));
    MEMBER_CHECK(member, is_sum(&buffers, 0, 2));
    MEMBER_OK(member, start_sum(member->session, &other, &operation));
    MEMBER_OK(member, muster_detach(operation));
    MEMBER_CHECK(member, muster_wait(operation) == MUSTER_INVALID);
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
    MEMBER_OK(member, start_sum(member->session, &buffers, &operation));
    MEMBER_OK(member, muster_wait(operation)); /* so the detached one before it is done, too */
}

static void test_wrong_uses_of_handles_are_named(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "wrong_handles",
                        .count = 2,
                        .hosts = 1,
                        .function = use_wrongly};
    assert_int_equal(crew_run(&crew), 0);
}

/* Both members are threads of this process, so each can name the other's operation. */
static void wait_for_two_sessions(struct crew_member *member)
{
    static muster_operation operations[2];
    struct buffers buffers;
    size_t index = 7;
    fill(&buffers, 0);
    MEMBER_OK(member, start_sum(member->session, &buffers, &operations[member->index]));
    crew_barrier(member);
    if (member->index == 0) {
        MEMBER_CHECK(member, muster_wait_any(operations, 2, &index) == MUSTER_INVALID);
        MEMBER_CHECK(member, strstr(muster_last_error(), "are of two sessions") != NULL);
        MEMBER_CHECK(member, index == 7);
    }
    crew_barrier(member);
    MEMBER_OK(member, muster_wait(operations[member->index]));
}

static void test_operations_of_two_sessions_cannot_be_waited_for_together(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "two_sessions",
                        .count = 2,
                        .hosts = 1,
                        .function = wait_for_two_sessions};
    assert_int_equal(crew_run(&crew), 0);
}

/* Two persistent operations that are made in different orders and started in the same one. */
static void use_persistent(struct crew_member *member)
{
    enum { STEPS = 30 };
    struct buffers buffers[2];
    muster_operation operations[2];
    int done = 0;
    for (size_t i = 0; i < 2; i++) {
        size_t which = (member->index + i) % 2;
        MEMBER_OK(member, muster_allreduce_init(member->session, MUSTER_GLOBAL, buffers[which].in,
                                                buffers[which].out, COUNT, MUSTER_INT32, MUSTER_SUM,
                                                NULL, &operations[which]));
    }
    MEMBER_CHECK(member, muster_wait(operations[0]) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "persistent and not started") != NULL);
    for (int32_t step = 0; step < STEPS; step++) {
        for (int32_t i = 0; i < 2; i++) {
            fill(&buffers[i], step + 7 * i);
            MEMBER_OK(member, muster_start(operations[i]));
        }
        MEMBER_CHECK(member, step > 0 || muster_start(operations[0]) == MUSTER_INVALID);
        MEMBER_OK(member, muster_wait(operations[1]));
        for (done = 0; done == 0;) {
            MEMBER_OK(member, muster_test(operations[0], &done));
        }
        for (int32_t i = 0; i < 2; i++) {
            MEMBER_CHECK(member, is_sum(&buffers[i], step + 7 * i, 3));
        }
    }
    MEMBER_OK(member, muster_start(operations[0]));
    MEMBER_OK(member, muster_detach(operations[0])); /* in flight, and the next one is not */
    MEMBER_OK(member, muster_detach(operations[1]));
    MEMBER_CHECK(member, muster_start(operations[1]) == MUSTER_INVALID);
    MEMBER_OK(member, start_sum(member->session, &buffers[1], &operations[1]));
    MEMBER_CHECK(member, muster_start(operations[1]) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "is not persistent") != NULL);
    MEMBER_OK(member, muster_wait(operations[1])); /* so the detached one is done, too */
}

static void test_a_persistent_operation_is_started_again_and_again(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "persistent",
                        .count = 3,
                        .hosts = 2,
                        .function = use_persistent};
    assert_int_equal(crew_run(&crew), 0);
}

/* Member 1 leaves the generation by closing its session; member 0 has an operation in flight. */
static muster_operation outlived;

static void outlive_the_generation(struct crew_member *member)
{
    struct buffers buffers;
    muster_operation operation = 0;
    fill(&buffers, 0);
    if (member->index == 1) {
        return;
    }
    muster_operation persistent = 0;
    MEMBER_OK(member, muster_allreduce_init(member->session, MUSTER_GLOBAL, buffers.in, buffers.out,
                                            COUNT, MUSTER_INT32, MUSTER_SUM, NULL, &persistent));
    MEMBER_OK(member, start_sum(member->session, &buffers, &operation));
    MEMBER_CHECK(member, muster_wait(operation) == MUSTER_REJOIN);
    MEMBER_CHECK(member, strstr(muster_last_error(), "allreduce #1 in flight") != NULL);
    MEMBER_CHECK(member, start_sum(member->session, &buffers, &operation) == MUSTER_REJOIN);
    MEMBER_CHECK(member, muster_start(persistent) == MUSTER_REJOIN);
    outlived = operation;
    MEMBER_CHECK(member, muster_rejoin(member->session) == MUSTER_ENDED);
    MEMBER_CHECK(member, muster_start(persistent) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "ended with its generation") != NULL);
    MEMBER_CHECK(member, muster_wait(persistent) == MUSTER_REJOIN);
    MEMBER_CHECK(member, muster_wait(persistent) == MUSTER_INVALID);
}

static void prepare_to_outlive(struct crew_member *member)
{
    member->options.min_size = 1;
}

static void test_an_operation_ends_with_its_generation(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "outlive",
                        .count = 2,
                        .hosts = 1,
                        .prepare = prepare_to_outlive,
                        .function = outlive_the_generation};
    assert_int_equal(crew_run(&crew), 0);
    assert_int_equal(muster_wait(outlived), MUSTER_INVALID);
}

/* Closes its session with an operation in flight that can never end by itself. */
static void close_too_early(struct crew_member *member)
{
    static struct buffers buffers;
    static muster_operation operation;
    if (member->index == 0) {
        MEMBER_OK(member, start_sum(member->session, &buffers, &operation));
        muster_close(member->session);
        member->session = NULL;
        MEMBER_CHECK(member, muster_wait(operation) == MUSTER_INVALID);
    }
    crew_barrier(member);
}

static void test_a_session_closes_with_an_operation_in_flight(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "close_early",
                        .count = 2,
                        .hosts = 1,
                        .function = close_too_early};
    assert_int_equal(crew_run(&crew), 0);
}

/* A child of a member with an operation in flight. */
static void fork_in_flight(struct crew_member *member)
{
    struct buffers buffers;
    muster_operation operation = 0;
    muster_operation second = 0;
    int ended = -1;
    fill(&buffers, 0);
    MEMBER_OK(member, start_sum(member->session, &buffers, &operation));
    pid_t child = fork();
    MEMBER_CHECK(member, child >= 0);
    if (child == 0) {
        int done = 0;
        _exit(muster_wait(operation) != MUSTER_INVALID ||
              muster_test(operation, &done) != MUSTER_INVALID ||
              start_sum(member->session, &buffers, &second) != MUSTER_INVALID);
    }
    MEMBER_CHECK(member, waitpid(child, &ended, 0) == child);
    MEMBER_CHECK(member, ended == 0);
    MEMBER_OK(member, muster_wait(operation));
    MEMBER_CHECK(member, is_sum(&buffers, 0, 2));
}

static void test_a_child_of_fork_has_no_operations(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "fork",
                        .count = 2,
                        .hosts = 1,
                        .function = fork_in_flight};
    assert_int_equal(crew_run(&crew), 0);
}

/* Two threads of a member, one in each scope. */
struct worker {
    muster_session *session;
    muster_scope scope;
    bool failed;
};

static void *run_in_scope(void *user)
{
    struct worker *worker = user;
    float in[64] = {1};
    float out[64];
    for (int i = 0; i < 50 && !worker->failed; i++) {
        muster_operation first = 0;
        muster_operation second = 0;
        float other[64];
        worker->failed =
            muster_allreduce_start(worker->session, worker->scope, in, out, 64, MUSTER_FLOAT32,
                                   MUSTER_SUM, NULL, &first) != MUSTER_OK ||
            muster_allreduce_start(worker->session, worker->scope, in, other, 64, MUSTER_FLOAT32,
                                   MUSTER_MAX, NULL, &second) != MUSTER_OK ||
            muster_wait(second) != MUSTER_OK || muster_wait(first) != MUSTER_OK ||
            out[0] != (float)muster_size(worker->session, worker->scope) || other[0] != 1;
    }
    return NULL;
}

static void use_two_threads(struct crew_member *member)
{
    struct worker workers[] = {{.session = member->session, .scope = MUSTER_GLOBAL},
                               {.session = member->session, .scope = MUSTER_LOCAL}};
    pthread_t thread;
    MEMBER_CHECK(member, pthread_create(&thread, NULL, run_in_scope, &workers[1]) == 0);
    (void)run_in_scope(&workers[0]);
    MEMBER_CHECK(member, pthread_join(thread, NULL) == 0);
    MEMBER_CHECK(member, !workers[0].failed && !workers[1].failed);
}

static void test_two_threads_have_operations_in_flight_in_two_scopes(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "threads",
                        .count = 4,
                        .hosts = 2,
                        .function = use_two_threads};
    assert_int_equal(crew_run(&crew), 0);
}

/* Random uses by two threads of each member, until a member dies ------------------------------- */

enum { RANDOM_MEMBERS = 4, RANDOM_ROUNDS = 8, HELD_MAX = 12, STARTS_MAX = 300 };

static uint64_t seed;

/* A thread with operations in flight. Each has memory of its own, because a detached one may use
 * its memory for long. */
struct random_user {
    struct crew_member *member;
    muster_scope scope;
    uint64_t counts; /* draws the sizes: the same on all members */
    uint64_t ways;   /* draws what is done with the handles */
    muster_operation held[HELD_MAX];
    size_t held_count;
    struct buffers *memory; /* [STARTS_MAX] */
    size_t starts;
    bool failed; /* in a way that no death explains */
};

static struct random_user random_users[RANDOM_MEMBERS][2];

/* A death revokes the generation; members that close after it may end the job. */
static bool is_over(muster_status status)
{
    return status == MUSTER_REJOIN || status == MUSTER_ENDED;
}

/* Waits for an operation, tests it or detaches it. False: its generation is over. */
static bool use_handle(struct random_user *user)
{
    size_t pick = test_random_below(&user->ways, (uint32_t)user->held_count);
    muster_operation operation = user->held[pick];
    muster_status status = MUSTER_OK;
    int done = 1;
    switch (test_random_below(&user->ways, 5)) {
    case 0:
        status = muster_wait(operation);
        break;
    case 1:
        status = muster_wait_for(operation, test_random_below(&user->ways, 3));
        done = status != MUSTER_RETRY;
        break;
    case 2:
        status = muster_test(operation, &done);
        break;
    case 3:
        status = muster_detach(operation);
        break;
    default:
        status = muster_wait_any(user->held, user->held_count, &pick);
        break;
    }
    if (done != 0) {
        user->failed |= status != MUSTER_OK && !is_over(status);
        user->held[pick] = user->held[--user->held_count];
    }
    return !is_over(status);
}

/* False: its generation is over. */
static bool start_random(struct random_user *user)
{
    size_t count = test_random_below(&user->counts, COUNT) + 1;
    struct buffers *buffers = &user->memory[user->starts++];
    muster_status status =
        muster_allreduce_start(user->member->session, user->scope, buffers->in, buffers->out, count,
                               MUSTER_INT32, MUSTER_SUM, NULL, &user->held[user->held_count]);
    user->failed |= status != MUSTER_OK && !is_over(status);
    user->held_count += status == MUSTER_OK;
    return status == MUSTER_OK;
}

/* The last member dies after some steps of its first thread. */
static void *use_randomly(void *argument)
{
    struct random_user *user = argument;
    bool dies = user->member->index == RANDOM_MEMBERS - 1 && user->scope == MUSTER_GLOBAL;
    uint32_t last = dies ? test_random_below(&user->ways, STARTS_MAX) : UINT32_MAX;
    bool goes_on = true;
    for (uint32_t step = 0; goes_on && user->starts < STARTS_MAX; step++) {
        bool room = user->held_count < HELD_MAX;
        bool starts = user->held_count == 0 || (room && test_random_below(&user->ways, 2) == 0);
        goes_on = starts ? start_random(user) : use_handle(user);
        if (step == last) {
            muster_fabric_kill(user->member->session->fabric);
        }
    }
    while (user->held_count > 0) {
        muster_status status = muster_wait(user->held[--user->held_count]);
        user->failed |= status != MUSTER_OK && !is_over(status);
    }
    return NULL;
}

static void use_from_two_threads(struct crew_member *member)
{
    struct random_user *users = random_users[member->index];
    pthread_t thread;
    for (uint32_t i = 0; i < 2; i++) {
        users[i] = (struct random_user){.member = member,
                                        .scope = i == 0 ? MUSTER_GLOBAL : MUSTER_LOCAL,
                                        .counts = seed + i,
                                        .ways = seed + 1000 + 2 * (uint64_t)member->index + i,
                                        .memory = calloc(STARTS_MAX, sizeof *users[i].memory)};
        MEMBER_CHECK(member, users[i].memory != NULL);
    }
    MEMBER_CHECK(member, pthread_create(&thread, NULL, use_randomly, &users[1]) == 0);
    (void)use_randomly(&users[0]);
    MEMBER_CHECK(member, pthread_join(thread, NULL) == 0);
    MEMBER_CHECK(member, !users[0].failed && !users[1].failed);
}

static void test_no_handle_and_no_wait_is_left_after_random_uses_and_a_death(void **state)
{
    (void)state;
    const char *rounds = getenv("MUSTER_RUNS");
    seed = test_seed();
    for (int round = 0; round < (rounds != NULL ? atoi(rounds) : RANDOM_ROUNDS); round++, seed++) {
        char job[32];
        (void)snprintf(job, sizeof job, "random%d", round);
        struct crew crew = {.url = group_service.url,
                            .job = job,
                            .count = RANDOM_MEMBERS,
                            .hosts = 2,
                            .function = use_from_two_threads};
        assert_int_equal(crew_run(&crew), 0);
        assert_int_equal(muster_session_count_operations(), 0);
        for (uint32_t i = 0; i < RANDOM_MEMBERS; i++) {
            free(random_users[i][0].memory);
            free(random_users[i][1].memory);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_handle_is_consumed_by_the_call_that_reports_the_end),
        cmocka_unit_test(test_wrong_uses_of_handles_are_named),
        cmocka_unit_test(test_operations_of_two_sessions_cannot_be_waited_for_together),
        cmocka_unit_test(test_a_persistent_operation_is_started_again_and_again),
        cmocka_unit_test(test_an_operation_ends_with_its_generation),
        cmocka_unit_test(test_a_session_closes_with_an_operation_in_flight),
        cmocka_unit_test(test_a_child_of_fork_has_no_operations),
        cmocka_unit_test(test_two_threads_have_operations_in_flight_in_two_scopes),
        cmocka_unit_test(test_no_handle_and_no_wait_is_left_after_random_uses_and_a_death),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
