/*
 * How an operation makes progress.
 *
 * Each lane has a window of steps, the present round, and a count of what is outstanding in it. The
 * thread that takes the count to zero starts the next round. That is a done function (under the
 * fabric's lock, so that the next message is posted without waking a thread), or the owner, which
 * is the thread in muster_operation_run(), or the one that progresses an operation in flight. The
 * starter of a round holds one unit of the count until all of the round is posted. So messages that
 * complete at once can neither start the next round too early nor recurse through the rounds.
 *
 * Receives of the next round that touch nothing of the present round are posted with the present
 * one. Their senders then get the grant early. A later grant could be delayed by other data of this
 * rank and of its host, and the sender would be idle until it arrives. Such receives are counted in
 * their own round, whose count has the unit of its starter from then on.
 *
 * Local steps (copy, reduce) may take long, and a done function must be short. So the starter of a
 * round with local steps leaves its unit with the lane, sets local_work and wakes the owner. The
 * owner does the local steps without the lock, while the posted messages move.
 *
 * What threads share: the window of a lane belongs to the thread that starts the round; the count
 * hands it over. `pending` and `failure` are written under the fabric's lock. The owner reads them
 * after muster_fabric_withdraw(), which takes that lock and waits until no done function is called
 * any more.
 */
#include "worker/executor/executor_parts.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/reduce.h"
#include "collectives/schedule/group_step.h"
#include "worker/base/status.h"
#include "worker/executor/executor_device.h"
#include "worker/executor/executor_group.h"
#include "worker/executor/executor_moves.h"
#include "worker/executor/executor_packs.h"
#include "worker/executor/executor_ranges.h"
#include "worker/executor/executor_steps.h"
#include "worker/trace/timeline.h"

/* The fabric reads the flag under its lock; the owner clears it without the lock, hence the
 * atomics. */
static void wake_owner(struct muster_operation *operation)
{
    __atomic_store_n(operation->awake, true, __ATOMIC_SEQ_CST);
}

/* Addresses and local work ------------------------------------------------------------------- */

static char *address_of(const struct muster_operation *operation, uint8_t buffer, uint64_t offset)
{
    char *base = operation->buffers[buffer];
    return base == NULL ? NULL : base + offset * operation->element_size_bytes;
}

static bool has_ranges(const struct muster_operation *operation, const struct muster_step *step)
{
    return operation->ranges[step->target] != NULL || operation->ranges[step->source] != NULL;
}

static muster_status run_local_step(const struct muster_operation *operation,
                                    const struct muster_step *step)
{
    char *target = address_of(operation, step->target, step->at);
    const char *source = address_of(operation, step->source, step->span.offset);
    if (step->span.count == 0 || muster_step_is_group(step)) {
        return MUSTER_OK;
    }
    if (operation->memories[step->target] != NULL || operation->memories[step->source] != NULL) {
        return muster_operation_step_device(operation, step);
    }
    if (operation->launch->packing.compression != 0) {
        muster_operation_step_packs(operation, step);
    } else if (has_ranges(operation, step)) {
        muster_operation_step_in_ranges(operation, step);
    } else if (step->kind == MUSTER_STEP_REDUCE) {
        muster_reduction_combine(&operation->launch->reduction, target, target, source,
                                 step->span.count);
    } else if (target != source) {
        memcpy(target, source, step->span.count * operation->element_size_bytes);
    }
    return MUSTER_OK;
}

static void add_span(const struct muster_operation *operation, const struct muster_step *step,
                     int64_t started_ns)
{
    muster_timeline_add_local(
        operation->timeline,
        step->kind == MUSTER_STEP_REDUCE ? MUSTER_TIMELINE_REDUCE : MUSTER_TIMELINE_COPY,
        started_ns, step->span.count * operation->element_size_bytes,
        (struct muster_timeline_operation){.sequence = operation->launch->sequence,
                                           .context = operation->launch->context});
}

static muster_status run_local_steps(struct muster_lane_state *lane)
{
    const struct muster_operation *operation = lane->operation;
    for (size_t i = lane->start; i < lane->next; i++) {
        const struct muster_step *step = &operation->schedule.steps[i];
        if (muster_step_is_local(step) && !muster_step_is_group(step)) {
            int64_t started_ns = muster_timeline_clock(operation->timeline);
            TRY(run_local_step(operation, step));
            add_span(operation, step, started_ns);
        }
    }
    return MUSTER_OK;
}

static void consume_and_reduce(struct muster_transfer *transfer, uint64_t offset_bytes,
                               const void *data, size_t size_bytes)
{
    const struct muster_step_message *message = transfer->owner;
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    char *target = address_of(operation, step->target, step->at) + offset_bytes;
    const char *source = address_of(operation, step->source, step->span.offset) + offset_bytes;
    muster_reduction_combine(&operation->launch->reduction, target, source, data,
                             size_bytes / operation->element_size_bytes);
}

/* A message that ends in the middle of an element would leave one that is neither what it was nor
 * the result: with this function only whole elements are written. */
static void consume_and_copy(struct muster_transfer *transfer, uint64_t offset_bytes,
                             const void *data, size_t size_bytes)
{
    memcpy((char *)transfer->data + offset_bytes, data, size_bytes);
}

static bool is_kept(const struct muster_operation *operation, const struct muster_step *step)
{
    return operation->launch->keeps && step->kind != MUSTER_STEP_SEND &&
           step->target == MUSTER_OUTPUT;
}

static muster_consume_function consume_of(const struct muster_operation *operation,
                                          const struct muster_step *step)
{
    if (step->kind == MUSTER_STEP_RECV_REDUCE) {
        return consume_and_reduce;
    }
    return is_kept(operation, step) ? consume_and_copy : NULL;
}

/* Rounds -------------------------------------------------------------------------------------- */

static void when_done(struct muster_transfer *transfer);

static void prepare_message(struct muster_step_message *message)
{
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_launch *launch = operation->launch;
    const struct muster_step *step = message->step;
    message->pending = true;
    if (operation->repeats) {
        message->transfer.key.sequence = launch->sequence;
        return;
    }
    bool sends = step->kind == MUSTER_STEP_SEND;
    message->transfer = (struct muster_transfer){
        .key = {.generation = launch->generation,
                .sequence = launch->sequence,
                .context = launch->context,
                .ordinal = message->ordinal,
                .lane = step->lane},
        .call = &launch->call,
        .direction = sends ? MUSTER_SEND : MUSTER_RECEIVE,
        .peer = operation->ranks[step->peer],
        .data = sends ? address_of(operation, step->source, step->span.offset)
                      : address_of(operation, step->target, step->at),
        .size_bytes = step->span.count * operation->element_size_bytes,
        .consume = consume_of(operation, step),
        .checked = is_kept(operation, step),
        .quick = !operation->on_device && launch->reduction.op != MUSTER_USER,
        .element_size_bytes = (uint32_t)operation->element_size_bytes,
        .priority = launch->priority,
        .done = when_done,
        .owner = message,
    };
    if (operation->on_device) {
        muster_message_prepare_device(message);
    } else if (launch->packing.compression != 0) {
        muster_message_prepare_packs(message);
    } else if (operation->in_ranges) {
        muster_message_prepare_ranges(message);
    }
}

/* Moves the window to the next round. */
static void enter_next_round(struct muster_lane_state *lane)
{
    const struct muster_step *steps = lane->operation->schedule.steps;
    lane->has_local = false;
    lane->turn ^= 1;
    lane->start = lane->next;
    while (lane->next < lane->end && steps[lane->next].round == steps[lane->start].round) {
        lane->has_local |= muster_step_is_local(&steps[lane->next]);
        lane->next++;
    }
}

/* Only done functions, which have the fabric's lock as well, count down while the starter of the
 * round holds a unit of its count. */
static muster_status post_message(struct muster_step_message *message, uint8_t turn)
{
    atomic_size_t *waiting = &message->lane->waiting[turn];
    prepare_message(message);
    message->turn = turn;
    atomic_store_explicit(waiting, atomic_load_explicit(waiting, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return muster_fabric_post_locked(message->lane->operation->fabric, &message->transfer);
}

static muster_status post_round(struct muster_lane_state *lane)
{
    struct muster_step_message *messages = lane->operation->messages;
    uint8_t next_turn = lane->turn ^ 1;
    atomic_store_explicit(&lane->waiting[next_turn], 1, memory_order_relaxed);
    for (size_t i = lane->start; i < lane->next; i++) {
        if (!muster_step_is_local(messages[i].step) && !messages[i].early) {
            TRY(post_message(&messages[i], lane->turn));
        }
    }
    for (size_t i = lane->next;
         i < lane->end && messages[i].step->round == messages[lane->next].step->round; i++) {
        if (messages[i].early) {
            TRY(post_message(&messages[i], next_turn));
        }
    }
    return MUSTER_OK;
}

/* Returns one unit of the round's count. True: it was the last one, so the round is over. */
static bool return_unit(struct muster_lane_state *lane, uint8_t turn)
{
    return atomic_fetch_sub(&lane->waiting[turn], 1) == 1;
}

/* Says what the end of the present round has made final. */
static void note_final(struct muster_lane_state *lane)
{
    if (lane->operation->launch->moves != NULL) {
        atomic_store(&lane->final, lane->next);
        if (muster_moves_has_stores(lane)) {
            wake_owner(lane->operation);
        }
    }
}

/* Whether the round has to wait for what is fetched; then the owner posts it. */
static bool hold(struct muster_lane_state *lane)
{
    bool held = lane->operation->launch->moves != NULL && !muster_moves_allow(lane);
    if (held) {
        atomic_store(&lane->held, true);
        wake_owner(lane->operation);
    }
    return held;
}

/* Posts the round that the lane has entered. *ret_over: it is over. */
static muster_status begin_round(struct muster_lane_state *lane, bool *ret_over)
{
    *ret_over = false;
    TRY(post_round(lane));
    if (lane->has_local) {
        atomic_store(&lane->local_work, true);
        wake_owner(lane->operation);
        return MUSTER_OK;
    }
    *ret_over = return_unit(lane, lane->turn);
    return MUSTER_OK;
}

/* Starts the next round, and further ones as long as each is over at once. Under the fabric's lock.
 */
static muster_status start_rounds(struct muster_lane_state *lane)
{
    struct muster_operation *operation = lane->operation;
    bool over = true;
    while (over) {
        note_final(lane);
        if (lane->next == lane->end) {
            operation->ended_by = pthread_self();
            if (atomic_fetch_sub(&operation->lanes_left, 1) == 1) {
                wake_owner(operation);
            }
            return MUSTER_OK;
        }
        enter_next_round(lane);
        if (hold(lane)) {
            return MUSTER_OK;
        }
        TRY(begin_round(lane, &over));
    }
    return MUSTER_OK;
}

/* The same for a round that was held. */
static muster_status start_held_round(struct muster_lane_state *lane)
{
    bool over = false;
    TRY(begin_round(lane, &over));
    return over ? start_rounds(lane) : MUSTER_OK;
}

/* Stores the first failure with its text, from whichever thread. Under the fabric's lock. */
static void fail(struct muster_operation *operation, muster_status status)
{
    if (!atomic_load(&operation->failed)) {
        operation->failure = status;
        (void)snprintf(operation->reason, sizeof operation->reason, "%s", muster_last_error());
        atomic_store(&operation->failed, true);
    }
    wake_owner(operation);
}

static void when_done(struct muster_transfer *transfer)
{
    struct muster_step_message *message = transfer->owner;
    struct muster_lane_state *lane = message->lane;
    struct muster_operation *operation = lane->operation;
    message->pending = false;
    muster_status ended = transfer->status;
    if (ended == MUSTER_OK && operation->on_device) {
        ended = muster_message_check_device(message);
    }
    if (ended != MUSTER_OK) {
        fail(operation, ended);
        return;
    }
    if (return_unit(lane, message->turn) && !atomic_load(&operation->failed)) {
        muster_status status = start_rounds(lane);
        if (status != MUSTER_OK) {
            fail(operation, status);
        }
    }
}

/* Runs ---------------------------------------------------------------------------------------- */

/* What stays the same when a launch repeats the one before. */
static void bind(struct muster_operation *operation, const struct muster_launch *launch)
{
    const struct muster_call *call = &launch->call;
    operation->launch = launch;
    operation->timeline =
        operation->fabric != NULL ? muster_fabric_timeline(operation->fabric) : NULL;
    operation->buffers[MUSTER_INPUT] = (char *)launch->in; /* only ever read */
    operation->buffers[MUSTER_OUTPUT] = launch->out;
    operation->buffers[MUSTER_SCRATCH] = launch->scratch;
    operation->ranges[MUSTER_INPUT] = launch->in_ranges;
    operation->ranges[MUSTER_OUTPUT] = launch->out_ranges;
    operation->in_ranges = launch->in_ranges != NULL || launch->out_ranges != NULL;
    operation->memories[MUSTER_INPUT] = launch->in_memory;
    operation->memories[MUSTER_OUTPUT] = launch->out_memory;
    operation->copy_reason[0] = '\0';
    operation->on_device = launch->in_memory != NULL || launch->out_memory != NULL;
    operation->element_size_bytes = muster_type_size_bytes((muster_type)call->type);
    if (launch->packing.compression != 0) {
        muster_operation_prepare_packs(operation);
    }
}

void muster_operation_prepare(struct muster_operation *operation,
                              const struct muster_launch *launch)
{
    operation->repeats = launch->repeats && operation->launch == launch;
    if (!operation->repeats) {
        bind(operation, launch);
    }
    operation->failure = MUSTER_OK;
    atomic_store_explicit(&operation->failed, false, memory_order_relaxed);
    atomic_store_explicit(&operation->lanes_left, operation->schedule.lanes, memory_order_relaxed);
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        struct muster_lane_state *lane = &operation->lanes[i];
        lane->start = lane->next = lane->first;
        atomic_store_explicit(&lane->waiting[lane->turn ^ 1], 1, memory_order_relaxed);
        atomic_store_explicit(&lane->local_work, false, memory_order_relaxed);
        atomic_store_explicit(&lane->held, false, memory_order_relaxed);
        atomic_store_explicit(&lane->final, lane->first, memory_order_relaxed);
        lane->groups = 0;
    }
    muster_group_steps_begin(operation);
    for (size_t i = 0; i < operation->schedule.step_count; i++) {
        operation->messages[i].pending = false;
    }
}

/* Starts the first round of `count` lanes. An operation without messages needs no fabric; in a
 * group of several ranks it fails, too, if the generation is over, or this rank would never know.
 */
static muster_status start_lanes(const struct muster_operation *operation,
                                 struct muster_lane_state *lanes, uint32_t count,
                                 muster_status (*start)(struct muster_lane_state *))
{
    struct muster_fabric *fabric = operation->fabric;
    muster_status status = MUSTER_OK;
    if (operation->peer_count > 0) {
        muster_fabric_begin_posting(fabric);
    } else if (operation->schedule.ranks > 1 && fabric != NULL) {
        status = muster_fabric_check(fabric, operation->launch->generation);
    }
    for (uint32_t i = 0; i < count && status == MUSTER_OK; i++) {
        status = start(&lanes[i]);
    }
    if (operation->peer_count > 0) {
        muster_fabric_end_posting(fabric);
    }
    return status;
}

/* Posts the rounds whose input has been fetched by now. */
static muster_status start_held_rounds(struct muster_operation *operation)
{
    for (uint32_t i = 0; i < operation->schedule.lanes && operation->launch->moves != NULL; i++) {
        struct muster_lane_state *lane = &operation->lanes[i];
        if (atomic_load(&lane->held) && muster_moves_allow(lane)) {
            atomic_store(&lane->held, false);
            TRY(start_lanes(operation, lane, 1, start_held_round));
        }
    }
    return MUSTER_OK;
}

/* Does the local steps that done functions have left to the owner. A round with group steps is not
 * over when they are done. */
static muster_status run_local_steps_due(struct muster_operation *operation)
{
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        struct muster_lane_state *lane = &operation->lanes[i];
        while (atomic_load(&lane->local_work)) {
            atomic_store(&lane->local_work, false);
            TRY(run_local_steps(lane));
            lane->groups = muster_group_steps_in_round(lane);
            if (lane->groups == 0 && return_unit(lane, lane->turn)) {
                TRY(start_lanes(operation, lane, 1, start_rounds));
            }
        }
    }
    return MUSTER_OK;
}

/* The same, and the group steps that are due, in their order. */
static muster_status run_local_work(struct muster_operation *operation)
{
    struct muster_lane_state *done = NULL;
    do {
        TRY(start_held_rounds(operation));
        TRY(run_local_steps_due(operation));
        TRY(muster_group_steps_progress(operation, &done));
        if (done != NULL && --done->groups == 0 && return_unit(done, done->turn)) {
            TRY(start_lanes(operation, done, 1, start_rounds));
        }
    } while (done != NULL && !atomic_load(&operation->failed));
    return MUSTER_OK;
}

/* The last lane has been ended by another thread. Waits for the fabric's lock once, since the done
 * function that did so may still hold it. Afterwards only the owner uses the operation. */
static void wait_for_done_functions(const struct muster_operation *operation)
{
    const struct muster_launch *launch = operation->launch;
    const bool finished = true;
    muster_status status =
        muster_fabric_wait(operation->fabric, launch->generation, &finished, launch->deadline_ns);
    (void)status; /* this rank's part is done, even if the generation has been revoked since */
}

muster_status muster_operation_start(struct muster_operation *operation,
                                     const struct muster_launch *launch, bool *awake)
{
    muster_operation_prepare(operation, launch);
    operation->awake = awake;
    TRY(muster_moves_begin(operation));
    return start_lanes(operation, operation->lanes, operation->schedule.lanes, start_rounds);
}

muster_status muster_operation_progress(struct muster_operation *operation, bool *ret_ended)
{
    *ret_ended = true;
    TRY(muster_moves_progress(operation));
    TRY(run_local_work(operation));
    *ret_ended =
        (atomic_load(&operation->lanes_left) == 0 && muster_moves_are_complete(operation)) ||
        atomic_load(&operation->failed);
    return MUSTER_OK;
}

muster_status muster_operation_finish(struct muster_operation *operation, muster_status status,
                                      uint32_t *ret_suspect)
{
    if (atomic_load(&operation->lanes_left) > 0 || !muster_moves_are_complete(operation)) {
        uint32_t suspect = UINT32_MAX;
        muster_moves_give_up(operation);
        status = muster_group_steps_fail(operation, status, &suspect);
        status = muster_operation_end_failed(operation, status, &suspect);
        if (ret_suspect != NULL) {
            *ret_suspect = suspect;
        }
        return status;
    }
    if (operation->peer_count > 0 && !pthread_equal(operation->ended_by, pthread_self())) {
        wait_for_done_functions(operation);
    }
    if (operation->launch->packing.compression != 0) {
        muster_operation_finish_packs(operation);
    }
    return MUSTER_OK;
}

/* MUSTER_OK: the operation has finished, or operation->failed is set. */
static muster_status drive(struct muster_operation *operation, const struct muster_launch *launch,
                           bool *awake)
{
    const struct muster_message_key key = {
        .generation = launch->generation, .sequence = launch->sequence, .context = launch->context};
    bool ended = false;
    muster_status status = muster_operation_start(operation, launch, awake);
    while (status == MUSTER_OK) {
        /* Cleared before the checks: whatever comes after them sets it again. */
        __atomic_store_n(awake, false, __ATOMIC_SEQ_CST);
        status = muster_operation_progress(operation, &ended);
        if (status != MUSTER_OK || ended) {
            break;
        }
        struct muster_wait_clock clock = {0};
        int64_t until_ns = muster_group_steps_next_poll(operation, launch->deadline_ns);
        until_ns = muster_moves_next_poll(operation, until_ns);
        status = muster_fabric_wait_in(operation->fabric, &key, &clock, awake, until_ns);
        if (status == MUSTER_RETRY && until_ns < launch->deadline_ns) {
            status = MUSTER_OK;
        }
    }
    return status;
}

muster_status muster_operation_run(struct muster_operation *operation,
                                   const struct muster_launch *launch, uint32_t *ret_suspect)
{
    if (operation->in_group && operation->group != NULL) {
        if (launch->moves == NULL) {
            return muster_operation_group_run(operation->group, launch, operation->method,
                                              ret_suspect);
        }
        muster_operation_prepare(operation, launch);
        return muster_moves_run_in_group(operation, ret_suspect);
    }
    bool awake = false; /* done functions may set it until the operation is finished */
    muster_status status = drive(operation, launch, &awake);
    return muster_operation_finish(operation, status, ret_suspect);
}

bool muster_operation_reads_devices(const struct muster_operation *operation, uint64_t generation)
{
    return muster_fabric_reads_devices(operation->fabric, generation, operation->peers,
                                       operation->peer_count);
}

void muster_operation_set_group(struct muster_operation *operation,
                                const struct muster_operation_group *group, unsigned method)
{
    operation->group = group;
    operation->method = method;
}

void muster_operation_set_methods(struct muster_operation *operation, uint8_t *methods)
{
    free(operation->methods);
    operation->methods = methods;
}
