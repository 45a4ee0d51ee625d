/*
 * How an operation moves.
 *
 * Each lane has a window of steps, the round under way, and a count of what is outstanding in it.
 * Who takes the count to zero starts the next round: a done function (under the fabric's lock, so
 * that the next message leaves without waking anybody), or the owner, the thread in
 * muster_operation_run(). Whoever starts a round holds one unit of the count itself until all of
 * the round is posted, so that messages that are done at once can neither start a round that is
 * still being posted nor recurse through the rounds.
 *
 * With a round go the receives of the next one that nothing in this round touches: whoever sends
 * them then hears early that it may, and does not stand still for as long as that word takes, which
 * has to pass what this rank and others of its host have in the uplink's queue. They count for
 * their own round, whose count has its starter's unit from then on.
 *
 * Local steps (copy, reduce) may be long, and a done function must not do long work: whoever starts
 * a round with local steps leaves its unit with the lane, sets local_work and wakes the owner, who
 * does them without the lock, while the messages that were posted move.
 *
 * What is shared: lane windows belong to who starts the round (handed over by the count); pending
 * and failure are written under the fabric's lock, and read by the owner after
 * muster_fabric_withdraw(), which takes that lock and ends all calls of done functions.
 */
#include "worker/executor/executor_parts.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"
#include "worker/executor/executor_gpu.h"
#include "worker/trace/timeline.h"

static bool is_local(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_COPY || step->kind == MUSTER_STEP_REDUCE;
}

/* The fabric reads the flag under its lock; the owner clears it without, hence the atomics. */
static void wake(struct muster_operation *operation)
{
    __atomic_store_n(&operation->awake, true, __ATOMIC_SEQ_CST);
}

/* Addresses and local work ------------------------------------------------------------------- */

static char *address_of(const struct muster_operation *operation, uint8_t buffer, uint64_t offset)
{
    char *base = operation->buffers[buffer];
    return base == NULL ? NULL : base + offset * operation->element_size_bytes;
}

static muster_status run_local_step(const struct muster_operation *operation,
                                    const struct muster_step *step)
{
    char *target = address_of(operation, step->target, step->at);
    const char *source = address_of(operation, step->source, step->span.offset);
    if (step->span.count == 0) {
        return MUSTER_OK;
    }
    if (operation->gpu[step->target] != NULL || operation->gpu[step->source] != NULL) {
        return muster_operation_step_gpu(operation, step);
    }
    if (step->kind == MUSTER_STEP_REDUCE) {
        muster_reduction_combine(operation->binding->reduction, target, target, source,
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
        (struct muster_timeline_operation){.sequence = operation->binding->sequence,
                                           .context = operation->binding->context});
}

static muster_status run_local_steps(struct lane *lane)
{
    const struct muster_operation *operation = lane->operation;
    for (size_t i = lane->start; i < lane->next; i++) {
        const struct muster_step *step = &operation->schedule.steps[i];
        if (is_local(step)) {
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
    const struct message *message = transfer->owner;
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_step *step = message->step;
    char *target = address_of(operation, step->target, step->at) + offset_bytes;
    const char *source = address_of(operation, step->source, step->span.offset) + offset_bytes;
    muster_reduction_combine(operation->binding->reduction, target, source, data,
                             size_bytes / operation->element_size_bytes);
}

/* Rounds -------------------------------------------------------------------------------------- */

static void when_done(struct muster_transfer *transfer);

static void bind_message(struct message *message)
{
    const struct muster_operation *operation = message->lane->operation;
    const struct muster_binding *binding = operation->binding;
    const struct muster_step *step = message->step;
    bool sends = step->kind == MUSTER_STEP_SEND;
    message->transfer = (struct muster_transfer){
        .key = {.generation = binding->generation,
                .sequence = binding->sequence,
                .context = binding->context,
                .ordinal = message->ordinal,
                .lane = step->lane},
        .call = &binding->call,
        .direction = sends ? MUSTER_SEND : MUSTER_RECEIVE,
        .peer = operation->ranks[step->peer],
        .data = sends ? address_of(operation, step->source, step->span.offset)
                      : address_of(operation, step->target, step->at),
        .size_bytes = step->span.count * operation->element_size_bytes,
        .consume = step->kind == MUSTER_STEP_RECV_REDUCE ? consume_and_reduce : NULL,
        .element_size_bytes = (uint32_t)operation->element_size_bytes,
        .done = when_done,
        .owner = message,
    };
    message->pending = true;
    if (operation->on_gpu) {
        muster_message_bind_gpu(message);
    }
}

/* Moves the window to the next round. True: it has local steps. */
static bool enter_next_round(struct lane *lane)
{
    const struct muster_step *steps = lane->operation->schedule.steps;
    bool has_local = false;
    lane->turn ^= 1;
    lane->start = lane->next;
    while (lane->next < lane->end && steps[lane->next].round == steps[lane->start].round) {
        has_local |= is_local(&steps[lane->next]);
        lane->next++;
    }
    return has_local;
}

static muster_status post_message(struct message *message, uint8_t turn)
{
    bind_message(message);
    message->turn = turn;
    atomic_fetch_add(&message->lane->waiting[turn], 1);
    return muster_fabric_post_locked(message->lane->operation->binding->fabric, &message->transfer);
}

static muster_status post_round(struct lane *lane)
{
    struct message *messages = lane->operation->messages;
    uint8_t next_turn = lane->turn ^ 1;
    atomic_store(&lane->waiting[next_turn], 1);
    for (size_t i = lane->start; i < lane->next; i++) {
        if (!is_local(messages[i].step) && !messages[i].early) {
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

/* Gives back one unit of the round. True if that was the last one: the round is over. */
static bool give_unit(struct lane *lane, uint8_t turn)
{
    return atomic_fetch_sub(&lane->waiting[turn], 1) == 1;
}

/* Starts the next round, and the ones after it for as long as they are over at once. Under the
 * fabric's lock. */
static muster_status start_rounds(struct lane *lane)
{
    struct muster_operation *operation = lane->operation;
    do {
        if (lane->next == lane->end) {
            if (atomic_fetch_sub(&operation->lanes_left, 1) == 1) {
                wake(operation);
            }
            return MUSTER_OK;
        }
        bool has_local = enter_next_round(lane);
        TRY(post_round(lane));
        if (has_local) {
            atomic_store(&lane->local_work, true);
            wake(operation);
            return MUSTER_OK;
        }
    } while (give_unit(lane, lane->turn));
    return MUSTER_OK;
}

/* Keeps why, in whoever's thread it happened. Under the fabric's lock; the first one counts. */
static void fail(struct muster_operation *operation, muster_status status)
{
    if (!atomic_load(&operation->failed)) {
        operation->failure = status;
        (void)snprintf(operation->reason, sizeof operation->reason, "%s", muster_last_error());
        atomic_store(&operation->failed, true);
    }
    wake(operation);
}

static void when_done(struct muster_transfer *transfer)
{
    struct message *message = transfer->owner;
    struct lane *lane = message->lane;
    struct muster_operation *operation = lane->operation;
    message->pending = false;
    muster_status ended = transfer->status;
    if (ended == MUSTER_OK && operation->on_gpu) {
        ended = muster_message_check_gpu(message);
    }
    if (ended != MUSTER_OK) {
        fail(operation, ended);
        return;
    }
    if (give_unit(lane, message->turn) && !atomic_load(&operation->failed)) {
        muster_status status = start_rounds(lane);
        if (status != MUSTER_OK) {
            fail(operation, status);
        }
    }
}

/* Runs ---------------------------------------------------------------------------------------- */

static void bind_operation(struct muster_operation *operation, const struct muster_binding *binding)
{
    const struct muster_call *call = &binding->call;
    operation->binding = binding;
    operation->timeline = muster_fabric_timeline(binding->fabric);
    operation->buffers[MUSTER_INPUT] = (char *)binding->in; /* only ever read */
    operation->buffers[MUSTER_OUTPUT] = binding->out;
    operation->buffers[MUSTER_SCRATCH] = binding->scratch;
    operation->gpu[MUSTER_INPUT] = binding->in_gpu;
    operation->gpu[MUSTER_OUTPUT] = binding->out_gpu;
    operation->gpu_reason[0] = '\0';
    operation->on_gpu = binding->in_gpu != NULL || binding->out_gpu != NULL;
    operation->element_size_bytes = muster_type_size_bytes((muster_type)call->type);
    operation->failure = MUSTER_OK;
    operation->awake = false;
    atomic_store(&operation->failed, false);
    atomic_store(&operation->lanes_left, operation->schedule.lanes);
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        struct lane *lane = &operation->lanes[i];
        lane->start = lane->next = lane->first;
        atomic_store(&lane->waiting[lane->turn ^ 1], 1);
        atomic_store(&lane->local_work, false);
    }
    for (size_t i = 0; i < operation->schedule.step_count; i++) {
        operation->messages[i].pending = false;
    }
}

/* So many lanes, one after the other; where there is nobody to post to, there may be no fabric. */
static muster_status start_lanes(const struct muster_operation *operation, struct lane *lanes,
                                 uint32_t count)
{
    struct muster_fabric *fabric = operation->binding->fabric;
    muster_status status = MUSTER_OK;
    if (operation->peer_count > 0) {
        muster_fabric_hold(fabric);
    }
    for (uint32_t i = 0; i < count && status == MUSTER_OK; i++) {
        status = start_rounds(&lanes[i]);
    }
    if (operation->peer_count > 0) {
        muster_fabric_release(fabric);
    }
    return status;
}

/* Does the local work that is left with the lanes. */
static muster_status serve_lanes(struct muster_operation *operation)
{
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        struct lane *lane = &operation->lanes[i];
        while (atomic_exchange(&lane->local_work, false)) {
            TRY(run_local_steps(lane));
            if (give_unit(lane, lane->turn)) {
                TRY(start_lanes(operation, lane, 1));
            }
        }
    }
    return MUSTER_OK;
}

/* A done function on another thread may have ended the last lane and still be on its way out; when
 * this returns it has left the fabric's lock, and the operation is the owner's alone. */
static void settle(const struct muster_operation *operation)
{
    const struct muster_binding *binding = operation->binding;
    const bool finished = true;
    muster_status status =
        muster_fabric_wait(binding->fabric, binding->generation, &finished, binding->deadline_ns);
    (void)status; /* this rank's part is done, whatever has become of the generation */
}

/* The owner's part. MUSTER_OK: finished, or failed is set. */
static muster_status drive(struct muster_operation *operation)
{
    const struct muster_binding *binding = operation->binding;
    const struct muster_message_key key = {.generation = binding->generation,
                                           .sequence = binding->sequence,
                                           .context = binding->context};
    TRY(start_lanes(operation, operation->lanes, operation->schedule.lanes));
    while (true) {
        /* Cleared before looking: what comes after the look sets it again. */
        __atomic_store_n(&operation->awake, false, __ATOMIC_SEQ_CST);
        TRY(serve_lanes(operation));
        if (atomic_load(&operation->lanes_left) == 0 || atomic_load(&operation->failed)) {
            return MUSTER_OK;
        }
        TRY(muster_fabric_wait_in(binding->fabric, &key, &operation->awake, binding->deadline_ns));
    }
}

muster_status muster_operation_run(struct muster_operation *operation,
                                   const struct muster_binding *binding, uint32_t *ret_suspect)
{
    bind_operation(operation, binding);
    muster_status status = drive(operation);
    if (atomic_load(&operation->lanes_left) > 0) {
        uint32_t suspect = UINT32_MAX;
        status = muster_operation_end_failed(operation, status, &suspect);
        if (ret_suspect != NULL) {
            *ret_suspect = suspect;
        }
        return status;
    }
    if (operation->peer_count > 0) {
        settle(operation);
    }
    return MUSTER_OK;
}

bool muster_operation_reads_gpu(const struct muster_operation *operation,
                                struct muster_fabric *fabric, uint64_t generation)
{
    return muster_fabric_reads_gpu(fabric, generation, operation->peers, operation->peer_count);
}

/* Making -------------------------------------------------------------------------------------- */

/* Numbers the messages of each (lane, peer, direction). counts is [2 x ranks], all 0, and is left
 * so. */
static void number_lane(struct muster_operation *operation, const struct lane *lane,
                        uint32_t *counts)
{
    for (size_t i = lane->first; i < lane->end; i++) {
        const struct muster_step *step = &operation->schedule.steps[i];
        if (!is_local(step)) {
            size_t sends = step->kind == MUSTER_STEP_SEND;
            operation->messages[i].ordinal = counts[2 * (size_t)step->peer + sends]++;
        }
    }
    for (size_t i = lane->first; i < lane->end; i++) {
        const struct muster_step *step = &operation->schedule.steps[i];
        if (!is_local(step)) {
            memset(&counts[2 * (size_t)step->peer], 0, 2 * sizeof *counts);
        }
    }
}

static void cut_lanes(struct muster_operation *operation, uint32_t *counts)
{
    const struct muster_schedule *schedule = &operation->schedule;
    size_t next = 0;
    for (uint32_t i = 0; i < schedule->lanes; i++) {
        struct lane *lane = &operation->lanes[i];
        *lane = (struct lane){.operation = operation, .first = next};
        while (next < schedule->step_count && schedule->steps[next].lane == i) {
            operation->messages[next].step = &schedule->steps[next];
            operation->messages[next].lane = lane;
            operation->messages[next].early = muster_schedule_receives_early(schedule, next);
            next++;
        }
        lane->end = next;
        number_lane(operation, lane, counts);
    }
    assert(next == schedule->step_count); /* ordered by lane: the builder's promise */
}

/* seen is [2 x ranks], all 0. */
static void list_peers(struct muster_operation *operation, uint32_t *seen)
{
    const struct muster_schedule *schedule = &operation->schedule;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (is_local(step)) {
            continue;
        }
        assert(step->peer < schedule->ranks && step->peer != schedule->rank);
        if (seen[step->peer] == 0) {
            seen[step->peer] = 1;
            operation->peers[operation->peer_count++] = operation->ranks[step->peer];
        }
    }
}

static size_t at_least_one(size_t count)
{
    return count == 0 ? 1 : count;
}

muster_status muster_operation_create(struct muster_schedule *schedule, const uint32_t *ranks,
                                      struct muster_operation **ret_operation)
{
    struct muster_operation *operation = calloc(1, sizeof *operation);
    if (operation == NULL) {
        muster_schedule_finish(schedule);
        return muster_error_set(MUSTER_FATAL, "no memory for an operation");
    }
    operation->schedule = *schedule;
    *schedule = (struct muster_schedule){.steps = NULL};
    schedule = &operation->schedule;
    size_t peers_max =
        schedule->step_count < schedule->ranks ? schedule->step_count : schedule->ranks;
    uint32_t *counts = calloc(2 * (size_t)schedule->ranks, sizeof *counts);
    operation->ranks = ranks;
    operation->messages = calloc(at_least_one(schedule->step_count), sizeof *operation->messages);
    operation->lanes = calloc(at_least_one(schedule->lanes), sizeof *operation->lanes);
    operation->peers = calloc(at_least_one(peers_max), sizeof *operation->peers);
    if (counts == NULL || operation->messages == NULL || operation->lanes == NULL ||
        operation->peers == NULL) {
        size_t steps = schedule->step_count;
        free(counts);
        muster_operation_destroy(operation);
        return muster_error_set(MUSTER_FATAL, "no memory for an operation of %zu steps", steps);
    }
    cut_lanes(operation, counts);
    list_peers(operation, counts);
    free(counts);
    *ret_operation = operation;
    return MUSTER_OK;
}

void muster_operation_destroy(struct muster_operation *operation)
{
    if (operation == NULL) {
        return;
    }
    muster_schedule_finish(&operation->schedule);
    free(operation->messages);
    free(operation->lanes);
    free(operation->peers);
    free(operation);
}
