/*
 * The queue of callers of one context, some of which pass their deadlines while they wait. Every
 * caller returns, and calls run in the order in which they came, up to the first one that has
 * timed out.
 */
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/context/context_parts.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    CALLERS = 8, /* the first keeps its turn until go_on is posted */
    RUNS = 60,
    SOON_NS = 2 * 1000 * 1000, /* the latest of the deadlines */
};

struct queue;

struct caller {
    struct queue *queue;
    uint32_t index;
    bool predicts; /* calls muster_context_predict(), which has no deadline */
    int64_t deadline_ns;
    muster_status status;
    uint32_t place; /* in the order of the calls that ran, from 1; 0: it did not run */
    pthread_t thread;
};

struct queue {
    struct muster_context *context;
    sem_t go_on;
    uint32_t ran;
    struct caller callers[CALLERS];
};

/* The user function: runs once in each call, during the caller's turn. */
static void add(void *out, const void *left, const void *right, size_t count, muster_type type,
                void *user)
{
    struct caller *caller = user;
    struct queue *queue = caller->queue;
    while (caller->index == 0 && sem_wait(&queue->go_on) != 0) {
    }
    caller->place = ++queue->ran;
    pattern_user(out, left, right, count, type, NULL);
}

/* The only member reduces two buffers of its own. */
static void *call(void *argument)
{
    struct caller *caller = argument;
    const int32_t numbers[2] = {1, 2};
    int32_t sums[2] = {0, 0};
    const void *const inputs[2] = {&numbers[0], &numbers[1]};
    void *const outputs[2] = {&sums[0], &sums[1]};
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = inputs[0],
                                           .out = outputs[0],
                                           .count = 1,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_USER,
                                           .user_function = add,
                                           .user_data = caller,
                                           .buffer_count = 2,
                                           .inputs = inputs,
                                           .outputs = outputs,
                                           .deadline_ns = caller->deadline_ns};
    double us;
    caller->status = caller->predicts
                         ? muster_context_predict(caller->queue->context, &request, &us)
                         : muster_context_run(caller->queue->context, &request, NULL);
    return NULL;
}

/* How many callers have come, at most one of which has found the turn free. */
static uint64_t count_callers(struct muster_context *context)
{
    AUTO_LOCK(&context->turns.mutex);
    return context->turns.waits + (atomic_load(&context->turns.state) != MUSTER_TURNS_FREE);
}

/* Starts the caller's thread and waits until it is in the queue. */
static void start(struct caller *caller)
{
    struct muster_context *context = caller->queue->context;
    uint64_t before = count_callers(context);
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
    while (count_callers(context) == before) {
        (void)sched_yield();
    }
}

/* The calls up to the first one that timed out ran, in the order in which they came; all after it
 * failed. */
static void expect_order(const struct queue *queue)
{
    uint32_t place = 0;
    bool failed = false;
    for (uint32_t i = 0; i < CALLERS; i++) {
        const struct caller *caller = &queue->callers[i];
        if (caller->predicts) {
            assert_int_equal(caller->status, MUSTER_OK);
            continue;
        }
        failed = failed || caller->status != MUSTER_OK;
        assert_int_equal(caller->status, failed ? MUSTER_REJOIN : MUSTER_OK);
        assert_int_equal(caller->place, failed ? 0 : ++place);
    }
}

/* A later call fails if one in the queue timed out, and succeeds if none did. */
static void expect_later_call(struct queue *queue)
{
    bool failed = false;
    for (uint32_t i = 0; i < CALLERS; i++) {
        failed = failed || queue->callers[i].status != MUSTER_OK;
    }
    struct caller later = {.queue = queue, .index = CALLERS, .deadline_ns = group_deadline()};
    (void)call(&later);
    assert_int_equal(later.status, failed ? MUSTER_REJOIN : MUSTER_OK);
}

/* Queues callers with random deadlines and lets them run; `hold` keeps the first one's turn until
 * all deadlines have passed. Returns how many calls failed. */
static uint32_t run_queue(uint64_t *random, bool hold)
{
    struct group group;
    struct queue *queue = calloc(1, sizeof *queue);
    assert_non_null(queue);
    group_start_flat(&group, GROUP_INPROC, 1);
    queue->context = group.members[0].contexts[MUSTER_GLOBAL];
    assert_int_equal(sem_init(&queue->go_on, 0, 0), 0);
    uint32_t odds = 1 + test_random_below(random, 6);
    bool has_deadline[CALLERS] = {false};
    for (uint32_t i = 0; i < CALLERS; i++) {
        struct caller *caller = &queue->callers[i];
        *caller = (struct caller){.queue = queue, .index = i, .deadline_ns = MUSTER_NEVER};
        if (i > 0 && test_random_below(random, odds) == 0) {
            has_deadline[i] = true;
            caller->deadline_ns = muster_clock_ns() + test_random_below(random, SOON_NS);
        } else if (i > 0) {
            caller->predicts = test_random_below(random, 4) == 0;
        }
        start(caller);
    }
    for (uint32_t i = 0; hold && i < CALLERS; i++) {
        if (has_deadline[i]) { /* the first caller still has its turn */
            (void)pthread_join(queue->callers[i].thread, NULL);
            assert_int_equal(queue->callers[i].status, MUSTER_REJOIN);
        }
    }
    assert_int_equal(sem_post(&queue->go_on), 0);
    uint32_t failed = 0;
    for (uint32_t i = 0; i < CALLERS; i++) {
        if (!hold || !has_deadline[i]) {
            (void)pthread_join(queue->callers[i].thread, NULL);
        }
        failed += queue->callers[i].status != MUSTER_OK;
    }
    expect_order(queue);
    expect_later_call(queue);
    (void)sem_destroy(&queue->go_on);
    group_finish(&group);
    free(queue);
    return failed;
}

static void callers_that_time_out_do_not_block_the_others(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    uint32_t failed = 0;
    for (int i = 0; i < RUNS; i++) {
        failed += run_queue(&random, true);
    }
    assert_true(failed > 0);
}

/* The deadlines pass at about the time when the turn passes from caller to caller. */
static void callers_that_time_out_as_their_turn_comes_do_not_block_the_others(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < RUNS; i++) {
        (void)run_queue(&random, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_that_time_out_do_not_block_the_others),
        cmocka_unit_test(callers_that_time_out_as_their_turn_comes_do_not_block_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
