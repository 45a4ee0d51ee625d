/*
 * The queue of callers of one context, some of whom give up: nobody stays in it for good, whoever
 * else gave up and when, and calls run in the order in which they came until the first that has
 * not.
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
    CALLERS = 8, /* the first holds the turn until it is told to go on */
    RUNS = 60,
    SOON_NS = 2 * 1000 * 1000, /* all that give up do so within this time */
};

struct queue;

struct caller {
    struct queue *queue;
    uint32_t index;
    bool asks; /* which has no deadline */
    int64_t deadline_ns;
    muster_status status;
    uint32_t place; /* among those that ran, from 1; 0: it did not */
    pthread_t thread;
};

struct queue {
    struct muster_context *context;
    sem_t go_on;
    uint32_t ran;
    struct caller callers[CALLERS];
};

/* Runs once in each call, in the caller's turn. */
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

/* A member that is alone reduces only buffers of its own. */
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
    caller->status = caller->asks ? muster_context_predict(caller->queue->context, &request, &us)
                                  : muster_context_run(caller->queue->context, &request, NULL);
    return NULL;
}

static uint64_t count_tickets(struct muster_context *context)
{
    AUTO_LOCK(&context->mutex);
    return context->tickets;
}

/* And waits until it stands in the queue. */
static void start(struct caller *caller)
{
    struct muster_context *context = caller->queue->context;
    uint64_t before = count_tickets(context);
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
    while (count_tickets(context) == before) {
        (void)sched_yield();
    }
}

/* Those that run are the first of those that run at all, and run in this order. */
static void expect_order(const struct queue *queue)
{
    uint32_t place = 0;
    bool missed = false;
    for (uint32_t i = 0; i < CALLERS; i++) {
        const struct caller *caller = &queue->callers[i];
        if (caller->asks) {
            assert_int_equal(caller->status, MUSTER_OK);
            continue;
        }
        missed = missed || caller->status != MUSTER_OK;
        assert_int_equal(caller->status, missed ? MUSTER_REJOIN : MUSTER_OK);
        assert_int_equal(caller->place, missed ? 0 : ++place);
    }
}

/* What comes later fares as those in the queue did. */
static void expect_later_call(struct queue *queue)
{
    bool missed = false;
    for (uint32_t i = 0; i < CALLERS; i++) {
        missed = missed || queue->callers[i].status != MUSTER_OK;
    }
    struct caller later = {.queue = queue, .index = CALLERS, .deadline_ns = group_deadline()};
    (void)call(&later);
    assert_int_equal(later.status, missed ? MUSTER_REJOIN : MUSTER_OK);
}

/* How many have given up. */
static uint32_t queue_up(uint64_t *random, bool hold)
{
    struct group group;
    struct queue *queue = calloc(1, sizeof *queue);
    assert_non_null(queue);
    group_start_flat(&group, GROUP_INPROC, 1);
    queue->context = group.members[0].contexts[MUSTER_GLOBAL];
    assert_int_equal(sem_init(&queue->go_on, 0, 0), 0);
    uint32_t odds = 1 + test_random_below(random, 6);
    bool gives_up[CALLERS] = {false};
    for (uint32_t i = 0; i < CALLERS; i++) {
        struct caller *caller = &queue->callers[i];
        *caller = (struct caller){.queue = queue, .index = i, .deadline_ns = MUSTER_NEVER};
        if (i > 0 && test_random_below(random, odds) == 0) {
            gives_up[i] = true;
            caller->deadline_ns = muster_clock_ns() + test_random_below(random, SOON_NS);
        } else if (i > 0) {
            caller->asks = test_random_below(random, 4) == 0;
        }
        start(caller);
    }
    for (uint32_t i = 0; hold && i < CALLERS; i++) {
        if (gives_up[i]) { /* in whatever order; the turn is not given back before */
            (void)pthread_join(queue->callers[i].thread, NULL);
            assert_int_equal(queue->callers[i].status, MUSTER_REJOIN);
        }
    }
    assert_int_equal(sem_post(&queue->go_on), 0);
    uint32_t missed = 0;
    for (uint32_t i = 0; i < CALLERS; i++) {
        if (!hold || !gives_up[i]) {
            (void)pthread_join(queue->callers[i].thread, NULL);
        }
        missed += queue->callers[i].status != MUSTER_OK;
    }
    expect_order(queue);
    expect_later_call(queue);
    (void)sem_destroy(&queue->go_on);
    group_finish(&group);
    free(queue);
    return missed;
}

static void who_gives_up_does_not_keep_the_others(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    uint32_t missed = 0;
    for (int i = 0; i < RUNS; i++) {
        missed += queue_up(&random, true);
    }
    assert_true(missed > 0);
}

/* Deadlines that pass just when the turn goes round. */
static void who_gives_up_as_its_turn_comes_does_not_keep_the_others(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < RUNS; i++) {
        (void)queue_up(&random, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_gives_up_does_not_keep_the_others),
        cmocka_unit_test(who_gives_up_as_its_turn_comes_does_not_keep_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
