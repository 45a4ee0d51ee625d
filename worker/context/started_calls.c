/* Calls in flight: from a request to an operation in the progress engine, and to its end. */
#include "worker/context/started_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/base/thread.h"
#include "worker/context/buffer_counts.h"
#include "worker/context/message_staging.h"
#include "worker/context/started_parts.h"
#include "worker/trace/timeline.h"

enum {
    IDLE_MAX = 256,        /* calls that are kept for their operations */
    CONTEXT_BIT = 1 << 30, /* in the context numbers of messages: calls in flight */
    COUNTS_BIT = 1 << 29,  /* likewise: their second operations */
};

static struct muster_started_call *call_of(struct muster_in_flight *in_flight)
{
    return (struct muster_started_call *)in_flight; /* its first member */
}

/* Requests ---------------------------------------------------------------------------------------
 */

/* The caller's lists of buffers need only stay until the call is started. */
static muster_status copy_request(struct muster_started_call *call,
                                  const struct muster_request *request)
{
    uint32_t count = request->buffer_count;
    call->request = *request;
    call->request.in_counts = NULL; /* they are in the key */
    call->request.out_counts = NULL;
    if (count > call->list_size) {
        free(call->inputs);
        free(call->outputs);
        call->inputs = calloc(count, sizeof *call->inputs);
        call->outputs = calloc(count, sizeof *call->outputs);
        call->list_size = call->inputs != NULL && call->outputs != NULL ? count : 0;
    }
    if (count > call->list_size) {
        return muster_error_set(MUSTER_FATAL, "no memory for a call of %u buffers", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        call->inputs[i] = request->inputs != NULL ? request->inputs[i] : NULL;
        call->outputs[i] = request->outputs[i];
    }
    call->request.inputs = request->inputs != NULL ? call->inputs : NULL;
    call->request.outputs = count > 0 ? call->outputs : NULL;
    return MUSTER_OK;
}

/* No call of the context can be made any more. With the failure mutex. */
static void break_locked(struct muster_started_calls *calls, muster_status status, const char *text)
{
    if (calls->broken == MUSTER_OK) {
        calls->broken = status;
        (void)snprintf(calls->broken_text, sizeof calls->broken_text, "%s", text);
        atomic_store(&calls->has_broken, true);
    }
}

/* The ranks have disagreed on the call. Where nobody looks at its end, because the program has
 * detached it and goes on with its stream, later results would be wrong without a word. With the
 * failure mutex. */
static void note_refusal_locked(struct muster_started_call *call)
{
    if (call->detached && call->request.stream != 0 && call->refused_text[0] != '\0') {
        break_locked(&call->context->started, MUSTER_INVALID, call->refused_text);
    }
}

/* In the engine's thread. After a failure that the other ranks may not share, the numbers of calls
 * in flight may no longer agree, so no further call can be started. */
static muster_status complete(struct muster_in_flight *in_flight, muster_status status)
{
    struct muster_started_call *call = call_of(in_flight);
    struct muster_context *context = call->context;
    const struct muster_launch *launch = &in_flight->launch;
    if (status == MUSTER_OK && call->counting != NULL) {
        in_flight->launch.contributions = call->counts[1];
    }
    if (status == MUSTER_OK) {
        status = muster_started_call_complete(call, launch);
    }
    if (status == MUSTER_OK) {
        muster_started_call_release(call);
        atomic_fetch_add(&context->progress, 1);
        muster_context_trace(context, launch, call->started_ns);
        return MUSTER_OK;
    }
    (void)muster_error_prefix(status, "%s #%llu in flight (context %s, generation %llu)",
                              muster_collective_name(launch->shape.collective),
                              (unsigned long long)launch->sequence, context->name,
                              (unsigned long long)muster_epoch_shown(context->generation));
    status = status == MUSTER_RETRY ? MUSTER_REJOIN : status;
    muster_mutex_lock(&context->started.failure_mutex);
    if (status == MUSTER_INVALID) { /* the call failed on all ranks alike */
        (void)snprintf(call->refused_text, MUSTER_ERROR_MAX, "%s", muster_last_error());
        note_refusal_locked(call);
    } else {
        break_locked(&context->started, status, muster_last_error());
    }
    muster_mutex_unlock(&context->started.failure_mutex);
    muster_started_call_release(call); /* the next call fails before the stream goes on */
    return muster_error_set(status, "%s", muster_last_error());
}

static void release_locked(struct muster_started_calls *calls, struct muster_started_call *call)
{
    TAILQ_REMOVE(&calls->active, call, order);
    if (call->message != NULL || call->figures != calls->figures) {
        muster_started_call_free(call);
        return;
    }
    TAILQ_INSERT_HEAD(&calls->idle, call, order);
    if (++calls->idle_count > IDLE_MAX) {
        struct muster_started_call *oldest = TAILQ_LAST(&calls->idle, muster_started_call_list);
        TAILQ_REMOVE(&calls->idle, oldest, order);
        calls->idle_count--;
        muster_started_call_free(oldest);
    }
}

/* Detached calls that are done. */
static void release_detached_locked(struct muster_started_calls *calls)
{
    struct muster_started_call *next = NULL;
    for (struct muster_started_call *each = TAILQ_FIRST(&calls->active); each != NULL;
         each = next) {
        next = TAILQ_NEXT(each, order);
        if (each->detached && muster_progress_engine_test(calls->engine, &each->in_flight)) {
            release_locked(calls, each);
        }
    }
}

static muster_status check_engine(const struct muster_context *context)
{
    return context->started.engine != NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "context %s: no call can be started here",
                                  context->name);
}

/* How long threads may wait, from a deadline. */
static int64_t limit_of(int64_t deadline_ns)
{
    return deadline_ns == MUSTER_NEVER ? MUSTER_NEVER : deadline_ns - muster_clock_ns();
}

/* A call that is ready to be launched. */
static muster_status make_call_locked(struct muster_context *context,
                                      const struct muster_request *request,
                                      struct muster_started_call **ret_call)
{
    struct muster_started_calls *calls = &context->started;
    struct muster_started_call *call = NULL;
    struct muster_request bound;
    calls->ranges.staged.active = false;
    if (request->ranges != NULL) {
        TRY(muster_context_bind_ranges(context, request, &calls->ranges, &bound));
        request = &bound;
    }
    TRY(muster_request_key(request, context->topology.ranks, calls->key));
    TRY(muster_started_call_find(context, request, &call));
    /* The analyzer does not see that MUSTER_OK means that there is one. */
    call->in_flight.operation =
        call->own.operation; /* NOLINT(clang-analyzer-core.NullDereference) */
    call->in_flight.then = call->counting;
    call->in_flight.complete = complete;
    call->in_flight.limit_ns = limit_of(request->deadline_ns);
    call->detached = false;
    call->refused_text[0] = '\0';
    call->persistent = false;
    muster_status status = copy_request(call, request);
    /* Ranges are bound before the call is found, whose lists they become. */
    muster_call_ranges_move(&call->request, &calls->ranges, &call->ranges);
    if (status != MUSTER_OK) {
        muster_started_call_free(call);
        return status;
    }
    *ret_call = call;
    return MUSTER_OK;
}

/* Starting ---------------------------------------------------------------------------------------
 */

/* The second operation has the number of the first, so that calls that differ between the ranks,
 * whose first operations fail, have used one number on all of them. */
static void bind_counts(struct muster_started_call *call)
{
    const struct muster_launch *first = &call->in_flight.launch;
    struct muster_launch *second = &call->in_flight.then_launch;
    second->generation = first->generation;
    second->context = call->context->number | CONTEXT_BIT | COUNTS_BIT;
    second->sequence = first->sequence;
    second->deadline_ns = first->deadline_ns;
    muster_buffer_counts_bind(&call->request, call->counts, second);
}

/* Numbers the call, which makes the order of calls, and passes it to the engine. */
static muster_status launch_locked(struct muster_started_calls *calls,
                                   struct muster_started_call *call)
{
    struct muster_context *context = call->context;
    struct muster_launch *launch = &call->in_flight.launch;
    call->started_ns = muster_timeline_clock(muster_fabric_timeline(context->fabric));
    call->refused_text[0] = '\0';
    TRY(muster_started_call_prepare(call, launch));
    launch->context |= CONTEXT_BIT;
    launch->deadline_ns = MUSTER_NEVER; /* the engine has a limit */
    launch->sequence = calls->sequence + 1;
    if (call->counting != NULL) {
        bind_counts(call);
    }
    muster_status status = muster_progress_engine_start(calls->engine, &call->in_flight);
    if (status != MUSTER_OK) {
        muster_started_call_release(call);
        return status;
    }
    calls->sequence++;
    TAILQ_INSERT_TAIL(&calls->active, call, order);
    return MUSTER_OK;
}

muster_status muster_started_calls_check(struct muster_started_calls *calls)
{
    if (!atomic_load_explicit(&calls->has_broken, memory_order_acquire)) {
        return MUSTER_OK;
    }
    AUTO_LOCK(&calls->failure_mutex);
    return muster_error_set(calls->broken, "%s", calls->broken_text);
}

muster_status muster_context_start(struct muster_context *context,
                                   const struct muster_request *request,
                                   struct muster_started_call **ret_call)
{
    struct muster_started_calls *calls = &context->started;
    struct muster_started_call *call = NULL;
    TRY(check_engine(context));
    AUTO_LOCK(&calls->mutex);
    TRY(muster_started_calls_check(calls));
    release_detached_locked(calls);
    TRY(make_call_locked(context, request, &call));
    muster_status status = launch_locked(calls, call);
    if (status != MUSTER_OK) {
        muster_started_call_free(call);
        return status;
    }
    *ret_call = call;
    return MUSTER_OK;
}

muster_status muster_context_make_persistent(struct muster_context *context,
                                             const struct muster_request *request,
                                             struct muster_started_call **ret_call)
{
    TRY(check_engine(context));
    AUTO_LOCK(&context->started.mutex);
    TRY(make_call_locked(context, request, ret_call));
    (*ret_call)->persistent = true;
    return MUSTER_OK;
}

/* Messages ---------------------------------------------------------------------------------------
 */

/* In the engine's thread. */
static muster_status complete_message(struct muster_in_flight *in_flight, muster_status status)
{
    struct muster_started_call *call = call_of(in_flight);
    if (status != MUSTER_OK) {
        muster_message_request_give_up(call->message, status);
    }
    return muster_message_request_end(call->message, &in_flight->suspect);
}

/* Posted before the engine has it, which may finish it at once. */
static muster_status launch_message_locked(struct muster_started_call *call)
{
    /* The analyzer does not see that MUSTER_OK means that there is a call. */
    struct muster_started_calls *calls =
        &call->context->started; /* NOLINT(clang-analyzer-core.NullDereference) */
    struct muster_point_to_point *messages = call->message->owner;
    const struct muster_message_call what = call->message->what;
    struct muster_launch *launch = &call->in_flight.launch;
    launch->generation = call->context->generation;
    launch->sequence = MUSTER_ANNOUNCED_SEQUENCE;
    launch->context = call->context->number | MUSTER_ANNOUNCED_CONTEXT;
    launch->deadline_ns = MUSTER_NEVER; /* the engine has a limit */
    call->in_flight.limit_ns = (int64_t)what.timeout_ms * MUSTER_NS_PER_MS;
    call->in_flight.finished = &call->message->finished;
    call->in_flight.complete = complete_message;
    (void)muster_message_request_start(messages, &what, muster_progress_engine_flag(calls->engine),
                                       call->message);
    muster_status status = muster_progress_engine_start(calls->engine, &call->in_flight);
    if (status != MUSTER_OK) {
        muster_message_request_give_up(call->message, status);
        return status;
    }
    TAILQ_INSERT_TAIL(&calls->active, call, order);
    return MUSTER_OK;
}

static muster_status make_message(struct muster_context *context,
                                  const struct muster_message_call *what,
                                  struct muster_started_call **ret_call)
{
    struct muster_point_to_point *messages = NULL;
    TRY(check_engine(context));
    TRY(muster_message_call_check(context, what));
    TRY(muster_message_call_check_on_host(what));
    TRY(muster_context_messages(context, &messages));
    struct muster_started_call *call = calloc(1, sizeof *call);
    struct muster_message_request *message = calloc(1, sizeof *message);
    if (call == NULL || message == NULL) {
        free(call);
        free(message);
        return muster_error_set(MUSTER_FATAL, "no memory for a call in flight");
    }
    message->owner = messages;
    message->what = *what;
    call->context = context;
    call->message = message;
    *ret_call = call;
    return MUSTER_OK;
}

muster_status muster_context_start_message(struct muster_context *context,
                                           const struct muster_message_call *what,
                                           struct muster_started_call **ret_call)
{
    struct muster_started_calls *calls = &context->started;
    struct muster_started_call *call = NULL;
    TRY(make_message(context, what, &call));
    AUTO_LOCK(&calls->mutex);
    release_detached_locked(calls);
    muster_status status = launch_message_locked(call);
    if (status != MUSTER_OK) {
        muster_started_call_free(call);
        return status;
    }
    *ret_call = call;
    return MUSTER_OK;
}

muster_status muster_context_make_persistent_message(struct muster_context *context,
                                                     const struct muster_message_call *what,
                                                     struct muster_started_call **ret_call)
{
    TRY(make_message(context, what, ret_call));
    (*ret_call)->persistent = true;
    return MUSTER_OK;
}

/* Persistent calls -------------------------------------------------------------------------------
 */

/* A collective that has failed ends all later ones, but no message. */
muster_status muster_started_call_start(struct muster_started_call *call)
{
    struct muster_started_calls *calls = &call->context->started;
    AUTO_LOCK(&calls->mutex);
    release_detached_locked(calls);
    if (call->message != NULL) {
        return launch_message_locked(call);
    }
    TRY(muster_started_calls_check(calls));
    return launch_locked(calls, call);
}

/* Ending -----------------------------------------------------------------------------------------
 */

bool muster_started_call_test(struct muster_started_call *call)
{
    return muster_progress_engine_test(call->context->started.engine, &call->in_flight);
}

bool muster_started_call_wait(struct muster_started_call *call, int64_t until_ns)
{
    return muster_progress_engine_wait(call->context->started.engine, &call->in_flight, until_ns);
}

size_t muster_started_calls_wait_any(struct muster_started_call *const *calls, size_t count,
                                     int64_t until_ns)
{
    /* A call begins with its record in the engine. */
    return muster_progress_engine_wait_any(calls[0]->context->started.engine,
                                           (struct muster_in_flight *const *)calls, count,
                                           until_ns);
}

muster_status muster_started_call_end(struct muster_started_call *call, uint32_t *ret_suspect)
{
    struct muster_started_calls *calls = &call->context->started;
    (void)muster_progress_engine_wait(calls->engine, &call->in_flight, MUSTER_NEVER);
    muster_status status = call->in_flight.status;
    if (status != MUSTER_OK) {
        (void)muster_error_set(status, "%s", call->in_flight.text);
    }
    if (ret_suspect != NULL) {
        *ret_suspect = call->in_flight.suspect;
    }
    AUTO_LOCK(&calls->mutex);
    if (call->persistent) {
        TAILQ_REMOVE(&calls->active, call, order);
    } else {
        release_locked(calls, call);
    }
    return status;
}

void muster_started_call_detach(struct muster_started_call *call)
{
    struct muster_started_calls *calls = &call->context->started;
    AUTO_LOCK(&calls->mutex);
    muster_mutex_lock(&calls->failure_mutex);
    call->detached = true;
    note_refusal_locked(call);
    muster_mutex_unlock(&calls->failure_mutex);
    if (call->message == NULL && call->request.stream != 0) {
        muster_progress_engine_count_time(calls->engine, &call->in_flight);
    }
}

bool muster_context_is_idle(struct muster_context *context)
{
    struct muster_started_calls *calls = &context->started;
    AUTO_LOCK(&calls->mutex);
    if (!TAILQ_EMPTY(&calls->active)) {
        release_detached_locked(calls);
    }
    return TAILQ_EMPTY(&calls->active);
}

/* Beginning and end ------------------------------------------------------------------------------
 */

void muster_started_calls_init(struct muster_started_calls *calls,
                               struct muster_progress_engine *engine,
                               const struct muster_choices *choices, struct muster_request_key *key)
{
    calls->engine = engine;
    calls->choices = *choices;
    calls->key = key;
    TAILQ_INIT(&calls->idle);
    TAILQ_INIT(&calls->active);
    muster_mutex_init(&calls->mutex);
    muster_mutex_init(&calls->failure_mutex);
}

static void free_idle(struct muster_started_calls *calls)
{
    struct muster_started_call *each = NULL;
    while ((each = TAILQ_FIRST(&calls->idle)) != NULL) {
        TAILQ_REMOVE(&calls->idle, each, order);
        muster_started_call_free(each);
    }
    calls->idle_count = 0;
}

/* Algorithms are chosen anew from now on. */
static void forget_choices_locked(struct muster_started_calls *calls)
{
    calls->figures++;
    free_idle(calls);
}

void muster_started_calls_set_model(struct muster_started_calls *calls,
                                    const struct muster_cost_model *model)
{
    AUTO_LOCK(&calls->mutex);
    calls->choices.model = *model;
    muster_choices_clear(&calls->choices);
    forget_choices_locked(calls);
}

void muster_started_calls_tune(struct muster_started_calls *calls,
                               const struct muster_tuned_list *list)
{
    AUTO_LOCK(&calls->mutex);
    muster_tuning_clear(&calls->tuned);
    if (list != NULL) {
        muster_tuning_import(&calls->tuned, list);
    }
    forget_choices_locked(calls);
}

void muster_started_calls_share(struct muster_started_calls *calls,
                                const struct muster_operation_group *group)
{
    AUTO_LOCK(&calls->mutex);
    calls->turns = (struct muster_group_turns){.next = calls->sequence + 1};
    calls->group = *group;
    calls->group.turns = group->state != NULL ? &calls->turns : NULL;
    muster_choices_clear(&calls->choices);
    free_idle(calls); /* made without the memory */
}

void muster_started_calls_share_hosts(struct muster_started_calls *calls,
                                      const struct muster_operation_group *group,
                                      void *const *states)
{
    AUTO_LOCK(&calls->mutex);
    muster_group_channels_init(&calls->channels, states, MUSTER_GROUP_CHANNELS);
    calls->group = *group;
    calls->group.channels = &calls->channels;
    muster_choices_clear(&calls->choices);
    free_idle(calls); /* made without the memory */
}

void muster_started_calls_finish(struct muster_started_calls *calls)
{
    struct muster_started_call *each = NULL;
    while ((each = TAILQ_FIRST(&calls->active)) != NULL) {
        (void)muster_progress_engine_wait(calls->engine, &each->in_flight, MUSTER_NEVER);
        TAILQ_REMOVE(&calls->active, each, order);
        muster_started_call_free(each);
    }
    free_idle(calls);
    muster_tuning_clear(&calls->tuned);
    muster_call_ranges_finish(&calls->ranges);
    free(calls->key);
    pthread_mutex_destroy(&calls->failure_mutex);
    pthread_mutex_destroy(&calls->mutex);
}
