/*
 * Who makes the steps, and when.
 *
 * A step that is due is made by a thread that waits, if there is one: a hand-over to another thread
 * takes longer than a small operation. So in a loop of a program that submits and then waits, the
 * engine's thread need not be woken when the last tensor of a step is submitted: if waiters came
 * soon after the last few such steps were due, the thread gives them some milliseconds. It looks
 * after these by the clock, and only while tensors are submitted.
 */
#include <stdio.h>
#include <stdlib.h>

#include "worker/base/array.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/engine/engine_parts.h"
#include "worker/engine/engine_trace.h"

enum {
    PROMPT_US = 300, /* a waiter that comes so soon after a step is due is one to wait for */
    PATIENCE_MS = 2, /* of the thread, with a waiter that is expected */
    CALM_MS = 20,    /* without a submission, until the thread sleeps without a limit */
    NS_PER_US = 1000,
};

int64_t muster_engine_due_ns_locked(struct muster_engine *engine)
{
    if (engine->ended != MUSTER_OK) {
        return MUSTER_NEVER;
    }
    return muster_agreement_due_ns(engine->agreement);
}

/* Waking --------------------------------------------------------------------------------------- */

void muster_engine_wake_locked(struct muster_engine *engine)
{
    if (engine->driving || engine->ended != MUSTER_OK) {
        return;
    }
    int64_t due_ns = muster_agreement_due_ns(engine->agreement);
    if (due_ns == MUSTER_NEVER) {
        return;
    }
    if (due_ns <= 0 && !engine->due) {
        engine->due = true;
        engine->due_ns = muster_clock_ns();
    }
    if (engine->waiters > 0 && !engine->thread_wanted) {
        (void)pthread_cond_broadcast(&engine->changed);
    } else if (engine->thread_wanted || !engine->lazy || engine->thread_sleeps) {
        (void)pthread_cond_signal(&engine->thread_due);
    }
}

/* How long the engine's thread may sleep: 0: a step is due, and it is to make it. */
static int64_t thread_time_locked(struct muster_engine *engine)
{
    int64_t due_ns = engine->driving ? MUSTER_NEVER : muster_engine_due_ns_locked(engine);
    int64_t now_ns = muster_clock_ns();
    if (due_ns <= now_ns && (engine->waiters == 0 || engine->thread_wanted)) {
        int64_t patience_ns = (int64_t)PATIENCE_MS * MUSTER_NS_PER_MS;
        bool expects = engine->lazy && !engine->thread_wanted && engine->due;
        if (!expects || now_ns >= engine->due_ns + patience_ns) {
            return 0;
        }
        return engine->due_ns + patience_ns;
    }
    if (due_ns > now_ns && due_ns != MUSTER_NEVER) {
        return due_ns;
    }
    if (engine->lazy && engine->active != engine->counters.submitted) {
        engine->active = engine->counters.submitted;
        return now_ns + (int64_t)CALM_MS * MUSTER_NS_PER_MS;
    }
    return MUSTER_NEVER;
}

void *muster_engine_thread(void *user)
{
    struct muster_engine *engine = user;
    AUTO_LOCK(&engine->mutex);
    while (!engine->stopping) {
        int64_t time_ns = thread_time_locked(engine);
        muster_engine_make_calls_locked(engine);
        if (time_ns == 0) {
            engine->thread_wanted = false;
            (void)muster_engine_drive_locked(engine, false);
            continue;
        }
        if (time_ns == MUSTER_NEVER) {
            engine->thread_sleeps = true;
            (void)pthread_cond_wait(&engine->thread_due, &engine->mutex);
            engine->thread_sleeps = false;
        } else {
            (void)muster_condition_wait(&engine->thread_due, &engine->mutex, time_ns);
        }
        engine->counters.wake_ups++;
    }
    return NULL;
}

/* Ends ----------------------------------------------------------------------------------------- */

void muster_engine_end_locked(struct muster_engine *engine, muster_status status, const char *text)
{
    uint64_t token = 0;
    if (engine->ended != MUSTER_OK) {
        return;
    }
    engine->ended = status;
    (void)snprintf(engine->ended_text, sizeof engine->ended_text, "%s", text);
    while ((token = muster_agreement_take_pending(engine->agreement)) != 0) {
        if (!muster_engine_entry(engine, (uint32_t)token - 1)->running) {
            muster_engine_finish_entry_locked(engine, token, status, text);
        }
    }
    (void)pthread_cond_broadcast(&engine->changed);
    (void)pthread_cond_signal(&engine->thread_due);
}

static void take_ended_locked(struct muster_engine *engine)
{
    uint64_t token = 0;
    const char *text = NULL;
    while (muster_agreement_take_ended(engine->agreement, &token, &text)) {
        muster_engine_finish_entry_locked(engine, token, MUSTER_INVALID, text);
    }
}

/* Steps ---------------------------------------------------------------------------------------- */

static muster_status copy_tokens_locked(struct muster_engine *engine,
                                        const struct muster_agreement_step *step)
{
    if (step->tensor_count > engine->token_room) {
        uint32_t count = step->tensor_count;
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
        if (!muster_array_resize(&engine->entries, count, sizeof *engine->entries) ||
            !muster_array_resize(&engine->tokens, count, sizeof *engine->tokens)) {
            return muster_error_set(MUSTER_FATAL, "no memory for %u tensors", count);
        }
        engine->token_room = count;
    }
    for (uint32_t i = 0; i < step->tensor_count; i++) {
        uint64_t token = muster_agreement_token(engine->agreement, step->tensors[i]);
        engine->tokens[i] = token;
        engine->entries[i] = token != 0 ? muster_engine_entry(engine, (uint32_t)token - 1) : NULL;
        if (token != 0) {
            engine->entries[i]->running = true;
        }
    }
    return MUSTER_OK;
}

/* The mutex is not held: only the thread that drives uses the agreement's copies. */
static muster_status carry_out(struct muster_engine *engine,
                               const struct muster_agreement_step *step,
                               const struct muster_description *description)
{
    if (!engine->prepared) {
        TRY(engine->options.context.prepare(engine->options.context.owner));
        engine->prepared = true;
    }
    switch (step->action) {
    case MUSTER_AGREEMENT_ROUND:
        return muster_engine_run_round(engine, step);
    case MUSTER_AGREEMENT_DESCRIBE:
        return muster_engine_run_describe(engine, step);
    default:
        return muster_engine_run_tensors(engine, description, step->tensor_count);
    }
}

static void count_locked(struct muster_engine *engine, const struct muster_agreement_step *step,
                         bool as_waiter)
{
    if (step->action == MUSTER_AGREEMENT_RUN) {
        engine->counters.operations++;
        engine->counters.ordered += step->ordered;
        engine->counters.driven_by_waiters += as_waiter;
    } else {
        engine->counters.agreements++;
    }
}

static void finish_tokens_locked(struct muster_engine *engine, uint32_t count, muster_status status,
                                 const char *text)
{
    for (uint32_t i = 0; i < count; i++) {
        if (engine->tokens[i] != 0) {
            muster_engine_finish_entry_locked(engine, engine->tokens[i], status, text);
        }
    }
}

/* The tensors of a RUN have ended with this status. */
static void finish_run_locked(struct muster_engine *engine,
                              const struct muster_agreement_step *step, muster_status status,
                              const char *text)
{
    uint32_t count = step->tensor_count;
    muster_agreement_run_done(engine->agreement, muster_clock_ns());
    if (status == MUSTER_OK) {
        muster_engine_trace_run_locked(engine, step, engine->started_ns);
    }
    finish_tokens_locked(engine, count, status, text);
}

/* The step was not a RUN, or its tensors stay pending. */
static void stop_running_locked(struct muster_engine *engine, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (engine->entries[i] != NULL) {
            engine->entries[i]->running = false;
        }
    }
}

static muster_status apply_locked(struct muster_engine *engine,
                                  const struct muster_agreement_step *step, muster_status status)
{
    char text[MUSTER_ERROR_MAX];
    if (status == MUSTER_INVALID) {
        if (!engine->failed_alike && muster_agreement_deviated(engine->agreement)) {
            stop_running_locked(engine, step->tensor_count);
            return MUSTER_OK;
        }
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        if (step->action == MUSTER_AGREEMENT_RUN) {
            finish_run_locked(engine, step, status, text);
            return MUSTER_OK;
        }
    }
    TRY(status);
    if (step->action == MUSTER_AGREEMENT_RUN) {
        finish_run_locked(engine, step, MUSTER_OK, "");
    } else if (step->action == MUSTER_AGREEMENT_ROUND) {
        TRY(muster_agreement_round_done(engine->agreement, muster_clock_ns()));
        take_ended_locked(engine);
    } else {
        muster_agreement_describe_done(engine->agreement);
    }
    return MUSTER_OK;
}

/* Whether waiters are to be expected at the next step of the order. */
static void learn_patience_locked(struct muster_engine *engine,
                                  const struct muster_agreement_step *step, bool as_waiter,
                                  int64_t now_ns)
{
    if (step->action == MUSTER_AGREEMENT_RUN && step->ordered) {
        bool prompt = engine->due && now_ns - engine->due_ns < (int64_t)PROMPT_US * NS_PER_US;
        engine->lazy = as_waiter && (prompt || !engine->due);
    }
    engine->due = false;
}

/* The engine may have ended while the step was made. */
static void end_step_locked(struct muster_engine *engine, const struct muster_agreement_step *step,
                            muster_status status)
{
    char text[MUSTER_ERROR_MAX];
    if (engine->ended != MUSTER_OK) {
        (void)snprintf(text, sizeof text, "%s",
                       status != MUSTER_OK ? muster_last_error() : engine->ended_text);
        finish_tokens_locked(engine, step->tensor_count, status, text);
        return;
    }
    status = apply_locked(engine, step, status);
    if (status != MUSTER_OK) {
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        stop_running_locked(engine, step->tensor_count);
        muster_engine_end_locked(engine, status, text);
    }
}

bool muster_engine_drive_locked(struct muster_engine *engine, bool as_waiter)
{
    struct muster_agreement_step step;
    struct muster_description description = {.count = 0};
    int64_t now_ns = muster_clock_ns();
    if (engine->driving || engine->ended != MUSTER_OK) {
        return false;
    }
    muster_agreement_next(engine->agreement, now_ns, &step);
    if (step.action == MUSTER_AGREEMENT_SLEEP) {
        return false;
    }
    engine->driving = true;
    learn_patience_locked(engine, &step, as_waiter, now_ns);
    count_locked(engine, &step, as_waiter);
    engine->failed_alike = false;
    engine->started_ns = muster_engine_trace_clock(engine);
    muster_status status = copy_tokens_locked(engine, &step);
    if (step.action == MUSTER_AGREEMENT_RUN) {
        description = *muster_agreement_description(engine->agreement, step.tensors[0]);
    }
    muster_mutex_unlock(&engine->mutex);
    status = status == MUSTER_OK ? carry_out(engine, &step, &description) : status;
    muster_mutex_lock(&engine->mutex);
    end_step_locked(engine, &step, status);
    engine->driving = false;
    if (engine->waiters > 0) {
        (void)pthread_cond_broadcast(&engine->changed);
    }
    muster_engine_make_calls_locked(engine);
    return true;
}
