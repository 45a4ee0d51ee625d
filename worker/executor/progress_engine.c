/* The progress engine: a list of operations in flight, and the thread that drives them. */
#include "worker/executor/progress_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/executor/executor_turns.h"

enum {
    WATCH_MS = 10,
    POLL_MIN_NS = 2 * 1000, /* between two polls of memory */
    POLL_MAX_NS = 1000 * 1000,
    SPIN_NS = 20 * 1000, /* in memory, before the fabric has its turn */
    SPIN_MAX_NS = 200 * 1000,
    TELL_NS = 20 * 1000,
};

TAILQ_HEAD(muster_in_flight_list, muster_in_flight);

struct muster_progress_engine {
    struct muster_fabric *fabric;
    pthread_mutex_t mutex;              /* guards what follows, but for `awake` */
    pthread_cond_t changed;             /* an operation was added, or the engine is to stop */
    pthread_cond_t completed;           /* an operation is done */
    struct muster_in_flight_list queue; /* in the order in which they were started */
    pthread_t thread;
    bool has_thread, stopping;
    bool watching; /* drives the fabric also while there is no operation */
    bool awake;    /* an operation has something to do; see executor.h */

    /* Of the engine's thread, in this round: operations that wait in memory that ranks share, where
     * nothing wakes it, and those that run by messages. */
    uint32_t polled, others;
    bool advanced;        /* one has come further in that memory */
    int64_t advanced_ns;  /* when one did last */
    int64_t spin_ns;      /* how long an operation may wait there in the next round */
    bool has_completed;   /* operations, about which waiting threads have not been told */
    int64_t completed_ns; /* since when */
    /* The operation of the present waits, the oldest one. */
    struct muster_message_key awaited;
    struct muster_wait_clock clock;
};

/* The engine's thread ----------------------------------------------------------------------------
 */

/* The first operation, or the second one. */
static struct muster_operation *operation_of(const struct muster_in_flight *in_flight)
{
    return in_flight->in_then ? in_flight->then : in_flight->operation;
}

static const struct muster_launch *launch_of(const struct muster_in_flight *in_flight)
{
    return in_flight->in_then ? &in_flight->then_launch : &in_flight->launch;
}

/* Ends an operation with what has ended it, and its text. Without the mutex. */
static void finish(struct muster_progress_engine *engine, struct muster_in_flight *in_flight,
                   muster_status status)
{
    if (in_flight->operation != NULL) {
        status = muster_operation_turn_finish(operation_of(in_flight), status, &in_flight->suspect);
    }
    if (status == MUSTER_OK && in_flight->then != NULL && !in_flight->in_then) {
        in_flight->in_then = true;
        in_flight->started = false;
        __atomic_store_n(&engine->awake, true, __ATOMIC_SEQ_CST);
        return;
    }
    status = in_flight->complete(in_flight, status);
    in_flight->status = status;
    if (status != MUSTER_OK) {
        (void)snprintf(in_flight->text, sizeof in_flight->text, "%s", muster_last_error());
    }
    AUTO_LOCK(&engine->mutex);
    TAILQ_REMOVE(&engine->queue, in_flight, order);
    in_flight->done = true;
    if (!engine->has_completed) {
        engine->has_completed = true;
        engine->completed_ns = muster_clock_ns();
    }
}

/* Wakes the threads that wait for operations. On a host with fewer cores than threads a wake after
 * each of many small operations would cost more than these: while operations come further in memory
 * that ranks share, there is one every TELL_NS. */
static void tell_waiting(struct muster_progress_engine *engine)
{
    bool soon = engine->advanced && engine->spin_ns > 0 &&
                muster_clock_ns() - engine->completed_ns < TELL_NS;
    if (engine->has_completed && !soon) {
        engine->has_completed = false;
        (void)pthread_cond_broadcast(&engine->completed);
    }
}

/* Starts an operation or does what is due in it. Without the mutex. */
static void progress(struct muster_progress_engine *engine, struct muster_in_flight *in_flight)
{
    muster_status status = MUSTER_OK;
    bool ended = false;
    if (in_flight->operation == NULL) {
        in_flight->started = true;
        engine->others++;
        if (__atomic_load_n(in_flight->finished, __ATOMIC_SEQ_CST)) {
            finish(engine, in_flight, MUSTER_OK);
        }
        return;
    }
    if (!in_flight->started) {
        in_flight->started = true;
        status = muster_operation_turn_start(operation_of(in_flight), launch_of(in_flight),
                                             &engine->awake);
    }
    if (status == MUSTER_OK) {
        status = muster_operation_turn_progress(operation_of(in_flight), engine->spin_ns, &ended);
    }
    bool advanced = false;
    enum muster_turn turn = muster_operation_turn(operation_of(in_flight), &advanced);
    engine->polled += turn == MUSTER_TURN_TAKEN;
    engine->others += turn == MUSTER_TURN_MESSAGES;
    engine->advanced |= advanced;
    if (status != MUSTER_OK || ended) {
        finish(engine, in_flight, status);
    }
}

/* The operations that are there now, from the first to the last. Other threads only append, and
 * only the engine's thread removes: so it may follow the list up to `last` without the mutex. */
struct span {
    struct muster_in_flight *first, *last; /* NULL: there is none */
};

static struct span all_of(struct muster_progress_engine *engine)
{
    AUTO_LOCK(&engine->mutex);
    return (struct span){.first = TAILQ_FIRST(&engine->queue),
                         .last = TAILQ_LAST(&engine->queue, muster_in_flight_list)};
}

static struct muster_in_flight *next_in(const struct span *span,
                                        const struct muster_in_flight *in_flight)
{
    return in_flight == span->last ? NULL : TAILQ_NEXT(in_flight, order);
}

static void progress_all(struct muster_progress_engine *engine)
{
    const struct span all = all_of(engine);
    struct muster_in_flight *next = NULL;
    engine->polled = 0;
    engine->others = 0;
    engine->advanced = false;
    for (struct muster_in_flight *each = all.first; each != NULL; each = next) {
        next = next_in(&all, each);
        progress(engine, each);
    }
}

/* The limits of operations: a clock that runs while a thread waits. With the mutex. */

static int64_t limit_locked(const struct muster_in_flight *in_flight, int64_t now_ns)
{
    int64_t since_ns = in_flight->waiting > 0 ? in_flight->waiting_since : now_ns;
    return in_flight->limit_ns >= MUSTER_NEVER - since_ns
               ? MUSTER_NEVER
               : since_ns + in_flight->limit_ns - in_flight->waited_ns;
}

static void begin_waiting_locked(struct muster_in_flight *in_flight, int64_t now_ns)
{
    if (in_flight->waiting++ == 0) {
        in_flight->waiting_since = now_ns;
    }
}

static void end_waiting_locked(struct muster_in_flight *in_flight, int64_t now_ns)
{
    if (--in_flight->waiting == 0) {
        in_flight->waited_ns += now_ns - in_flight->waiting_since;
    }
}

/* No operation can reach its limit before this time, whoever begins to wait. */
static int64_t earliest_limit(struct muster_progress_engine *engine, const struct span *all)
{
    int64_t now_ns = muster_clock_ns();
    int64_t earliest_ns = MUSTER_NEVER;
    AUTO_LOCK(&engine->mutex);
    for (const struct muster_in_flight *each = all->first; each != NULL;
         each = next_in(all, each)) {
        int64_t limit_ns = limit_locked(each, now_ns);
        earliest_ns = limit_ns < earliest_ns ? limit_ns : earliest_ns;
    }
    return earliest_ns;
}

static bool is_past_limit(struct muster_progress_engine *engine,
                          const struct muster_in_flight *in_flight, int64_t now_ns)
{
    AUTO_LOCK(&engine->mutex);
    return in_flight->waiting > 0 && limit_locked(in_flight, now_ns) <= now_ns;
}

/* The wait has ended with this status and text: so have the operations whose limit has passed, or
 * those of the generation that is over. */
static void end_failed(struct muster_progress_engine *engine, muster_status status,
                       uint64_t generation)
{
    const struct span all = all_of(engine);
    int64_t now_ns = muster_clock_ns();
    char text[MUSTER_ERROR_MAX];
    struct muster_in_flight *next = NULL;
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    for (struct muster_in_flight *each = all.first; each != NULL; each = next) {
        next = next_in(&all, each);
        bool over = status == MUSTER_RETRY ? is_past_limit(engine, each, now_ns)
                                           : each->launch.generation == generation;
        if (each->started && over) {
            finish(engine, each, muster_error_set(status, "%s", text));
        }
    }
}

/* When memory is polled again: soon after an operation has come further there, and after a longer
 * wait so that at most an eighth of it is lost, and 1 ms. A thread that has nothing else to do
 * polls there first. */
static int64_t next_poll(struct muster_progress_engine *engine)
{
    int64_t now_ns = muster_clock_ns();
    if (engine->advanced) {
        engine->advanced_ns = now_ns;
    }
    int64_t waited_ns = now_ns - engine->advanced_ns;
    int64_t pause_ns = waited_ns / 8;
    engine->spin_ns =
        engine->others == 0 && engine->polled <= 1 && waited_ns < SPIN_MAX_NS ? SPIN_NS : 0;
    pause_ns = pause_ns < POLL_MIN_NS ? POLL_MIN_NS : pause_ns;
    return engine->polled == 0 ? MUSTER_NEVER
                               : now_ns + (pause_ns < POLL_MAX_NS ? pause_ns : POLL_MAX_NS);
}

static bool is_same(const struct muster_message_key *left, const struct muster_message_key *right)
{
    return left->sequence == right->sequence && left->context == right->context &&
           left->generation == right->generation;
}

/* Waits for the messages of all operations, at most until the first limit, or until memory is
 * polled again. */
static void wait_for_messages(struct muster_progress_engine *engine)
{
    const struct span all = all_of(engine);
    if (all.first == NULL) {
        return;
    }
    const struct muster_launch *oldest = launch_of(all.first);
    const struct muster_message_key key = {
        .generation = oldest->generation, .sequence = oldest->sequence, .context = oldest->context};
    if (!is_same(&key, &engine->awaited)) {
        engine->awaited = key;
        engine->clock = (struct muster_wait_clock){0};
    }
    int64_t limit_ns = earliest_limit(engine, &all);
    int64_t poll_ns = next_poll(engine);
    muster_status status =
        muster_fabric_wait_in(engine->fabric, &key, &engine->clock, &engine->awake,
                              poll_ns < limit_ns ? poll_ns : limit_ns);
    if (status == MUSTER_OK) {
        engine->clock = (struct muster_wait_clock){0};
    } else if (status != MUSTER_RETRY || muster_clock_ns() >= limit_ns) {
        end_failed(engine, status, key.generation);
    }
}

/* Not all the time, so that it neither wakes up for each message of a caller's call nor makes that
 * caller wait for it. */
static void watch(struct muster_progress_engine *engine)
{
    bool in_time =
        muster_condition_wait(&engine->changed, &engine->mutex, muster_clock_after_ms(WATCH_MS));
    if (!in_time && TAILQ_EMPTY(&engine->queue) && !engine->stopping) {
        muster_mutex_unlock(&engine->mutex);
        muster_fabric_poll(engine->fabric);
        muster_mutex_lock(&engine->mutex);
    }
}

/* Sleeps or keeps watch while there is no operation. False: the engine is to stop. */
static bool has_operations(struct muster_progress_engine *engine)
{
    AUTO_LOCK(&engine->mutex);
    if (TAILQ_EMPTY(&engine->queue)) {
        engine->advanced = false;
        tell_waiting(engine);
    }
    while (TAILQ_EMPTY(&engine->queue) && !engine->stopping) {
        if (engine->watching) {
            watch(engine);
        } else {
            (void)pthread_cond_wait(&engine->changed, &engine->mutex);
        }
    }
    return !TAILQ_EMPTY(&engine->queue);
}

static void *run(void *user)
{
    struct muster_progress_engine *engine = user;
    while (has_operations(engine)) {
        /* Cleared before the checks: whatever comes after them sets it again. */
        __atomic_store_n(&engine->awake, false, __ATOMIC_SEQ_CST);
        progress_all(engine);
        tell_waiting(engine);
        wait_for_messages(engine);
    }
    return NULL;
}

/* Callers ----------------------------------------------------------------------------------------
 */

static muster_status start_thread_locked(struct muster_progress_engine *engine)
{
    if (!engine->has_thread) {
        int error = muster_thread_start(&engine->thread, run, engine);
        if (error != 0) {
            return muster_error_set(MUSTER_FATAL, "no thread for operations in flight: %s",
                                    strerror(error));
        }
        engine->has_thread = true;
    }
    return MUSTER_OK;
}

muster_status muster_progress_engine_keep_watch(struct muster_progress_engine *engine)
{
    AUTO_LOCK(&engine->mutex);
    engine->watching = true;
    return start_thread_locked(engine);
}

muster_status muster_progress_engine_start(struct muster_progress_engine *engine,
                                           struct muster_in_flight *in_flight)
{
    in_flight->status = MUSTER_OK;
    in_flight->suspect = UINT32_MAX;
    in_flight->text[0] = '\0';
    in_flight->started = false;
    in_flight->in_then = false;
    in_flight->done = false;
    in_flight->waiting = 0;
    in_flight->waited_ns = 0;
    {
        AUTO_LOCK(&engine->mutex);
        TRY(start_thread_locked(engine));
        TAILQ_INSERT_TAIL(&engine->queue, in_flight, order);
        (void)pthread_cond_signal(&engine->changed);
    }
    muster_fabric_notify(engine->fabric, &engine->awake);
    return MUSTER_OK;
}

bool *muster_progress_engine_flag(struct muster_progress_engine *engine)
{
    return &engine->awake;
}

void muster_progress_engine_count_time(struct muster_progress_engine *engine,
                                       struct muster_in_flight *in_flight)
{
    AUTO_LOCK(&engine->mutex);
    if (!in_flight->done) {
        begin_waiting_locked(in_flight, muster_clock_ns());
    }
}

bool muster_progress_engine_test(struct muster_progress_engine *engine,
                                 const struct muster_in_flight *in_flight)
{
    AUTO_LOCK(&engine->mutex);
    return in_flight->done;
}

bool muster_progress_engine_wait(struct muster_progress_engine *engine,
                                 struct muster_in_flight *in_flight, int64_t until_ns)
{
    return muster_progress_engine_wait_any(engine, &in_flight, 1, until_ns) == 0;
}

static size_t find_done_locked(struct muster_in_flight *const *in_flight, size_t count)
{
    size_t i = 0;
    while (i < count && !in_flight[i]->done) {
        i++;
    }
    return i;
}

size_t muster_progress_engine_wait_any(struct muster_progress_engine *engine,
                                       struct muster_in_flight *const *in_flight, size_t count,
                                       int64_t until_ns)
{
    AUTO_LOCK(&engine->mutex);
    size_t done = find_done_locked(in_flight, count);
    int64_t now_ns = done == count ? muster_clock_ns() : until_ns;
    if (done < count || now_ns >= until_ns) {
        return done;
    }
    for (size_t i = 0; i < count; i++) {
        begin_waiting_locked(in_flight[i], now_ns);
    }
    for (bool in_time = true; in_time && done == count;) {
        in_time = muster_condition_wait(&engine->completed, &engine->mutex, until_ns);
        done = find_done_locked(in_flight, count);
    }
    now_ns = muster_clock_ns();
    for (size_t i = 0; i < count; i++) {
        end_waiting_locked(in_flight[i], now_ns);
    }
    return done;
}

bool muster_progress_engine_wait_all(struct muster_progress_engine *engine, int64_t until_ns)
{
    AUTO_LOCK(&engine->mutex);
    bool in_time = true;
    while (in_time && !TAILQ_EMPTY(&engine->queue)) {
        in_time = muster_condition_wait(&engine->completed, &engine->mutex, until_ns);
    }
    return TAILQ_EMPTY(&engine->queue);
}

muster_status muster_progress_engine_create(struct muster_fabric *fabric,
                                            struct muster_progress_engine **ret_engine)
{
    struct muster_progress_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for operations in flight");
    }
    engine->fabric = fabric;
    TAILQ_INIT(&engine->queue);
    muster_mutex_init(&engine->mutex);
    muster_condition_init(&engine->changed);
    muster_condition_init(&engine->completed);
    *ret_engine = engine;
    return MUSTER_OK;
}

void muster_progress_engine_destroy(struct muster_progress_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    struct muster_in_flight *each = NULL;
    muster_mutex_lock(&engine->mutex);
    engine->stopping = true;
    TAILQ_FOREACH(each, &engine->queue, order)
    {
        begin_waiting_locked(each, muster_clock_ns());
    }
    (void)pthread_cond_signal(&engine->changed);
    bool has_thread = engine->has_thread;
    muster_mutex_unlock(&engine->mutex);
    if (has_thread) {
        (void)pthread_join(engine->thread, NULL);
    }
    pthread_cond_destroy(&engine->completed);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->mutex);
    free(engine);
}
