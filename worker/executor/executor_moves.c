/* Moves of an operation between memory of a device and of the host. */
#include "worker/executor/executor_moves.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/reduce/reduce.h"
#include "collectives/schedule/moves.h"
#include "worker/base/clock.h"
#include "worker/device/devices.h"
#include "worker/executor/executor_group.h"
#include "worker/trace/timeline.h"

enum {
    FETCH_FIRST_BYTES = 64 << 10, /* so that the first message leaves early */
    FETCH_MOST_BYTES = 4 << 20,
    STORE_BYTES = 1 << 20, /* smaller neighbours are stored together */
    SPIN_NS = 30 * 1000,   /* longer than a device needs for a piece of 1 MiB */
    POLL_NS = 10 * 1000,
    POLL_LATER_NS = 100 * 1000,
    SOON_NS = 500 * 1000, /* after that much time without a copy, it is the program that lasts */
    GIVE_UP_MS = 1000,
    CHECK_NS = 1000 * 1000, /* between two looks whether others are alive */
    STORES_NOTED = 64,      /* for the timeline */
};

/* A queue's copies in this launch. */
struct copies {
    uint64_t before; /* of earlier launches */
    uint64_t count;  /* that were enqueued */
    uint64_t done;
};

struct muster_moves {
    struct muster_schedule_moves plan;
    bool finishes; /* it is for launches that finish their results */
    struct copies fetches, stores;
    atomic_size_t fetched;       /* fetches that are complete */
    int64_t changed_ns;          /* when a copy was enqueued or completed last */
    struct muster_span *waiting; /* [lanes] final, and not enqueued yet */
    size_t *enqueued;            /* [lanes] the stores of the steps before this one are */
    /* For the timeline: */
    int64_t begun_ns, fetched_ns, stored_ns;
    struct {
        int64_t at_ns;
        uint64_t bytes;
    } noted[STORES_NOTED];
};

static const struct muster_queue_ops *queues_of(const struct muster_operation *operation)
{
    const struct muster_launch_moves *launch = operation->launch->moves;
    return launch->queues;
}

/* Making --------------------------------------------------------------------------------------- */

void muster_moves_destroy(struct muster_operation *operation)
{
    struct muster_moves *moves = operation->moves;
    if (moves != NULL) {
        muster_schedule_moves_finish(&moves->plan);
        free(moves->waiting);
        free(moves->enqueued);
        free(moves);
    }
    operation->moves = NULL;
}

/* Whether the results are averaged or scaled. */
static bool finishes(const struct muster_launch *launch)
{
    return muster_collective_reduces(launch->shape.collective) &&
           muster_reduction_has_finish(&launch->reduction, launch->contributions);
}

/* NULL, with its text: no memory. */
static struct muster_moves *plan(struct muster_operation *operation)
{
    size_t size = operation->element_size_bytes;
    struct muster_moves *moves = calloc(1, sizeof *moves);
    operation->moves = moves;
    if (moves != NULL) {
        moves->waiting = calloc(operation->schedule.lanes + 1, sizeof *moves->waiting);
        moves->enqueued = calloc(operation->schedule.lanes + 1, sizeof *moves->enqueued);
    }
    if (moves == NULL || moves->waiting == NULL || moves->enqueued == NULL) {
        muster_moves_destroy(operation);
        (void)muster_error_set(MUSTER_FATAL, "no memory to plan the moves of an operation");
        return NULL;
    }
    moves->finishes = finishes(operation->launch);
    muster_status status =
        muster_schedule_moves_plan(&operation->launch->shape, &operation->schedule, moves->finishes,
                                   FETCH_FIRST_BYTES / size, FETCH_MOST_BYTES / size, &moves->plan);
    if (status != MUSTER_OK) {
        muster_moves_destroy(operation);
        return NULL;
    }
    return moves;
}

static muster_status count_before(const struct muster_operation *operation, void *queue,
                                  struct copies *copies)
{
    *copies = (struct copies){0};
    return queue == NULL ? MUSTER_OK : queues_of(operation)->poll(queue, &copies->before);
}

static muster_status enqueue_fetches(struct muster_operation *operation)
{
    struct muster_moves *moves = operation->moves;
    const struct muster_launch_moves *launch = operation->launch->moves;
    size_t size = operation->element_size_bytes;
    for (size_t i = 0; i < moves->plan.fetch_count; i++) {
        const struct muster_span span = moves->plan.fetches[i];
        TRY(queues_of(operation)->copy(
            launch->fetches, operation->buffers[MUSTER_INPUT] + span.offset * size,
            (const char *)launch->in + span.offset * size, span.count * size));
        moves->fetches.count++;
    }
    return MUSTER_OK;
}

muster_status muster_moves_begin(struct muster_operation *operation)
{
    const struct muster_launch_moves *launch = operation->launch->moves;
    if (launch == NULL) {
        return MUSTER_OK;
    }
    if (operation->moves != NULL && operation->moves->finishes != finishes(operation->launch)) {
        muster_moves_destroy(operation);
    }
    struct muster_moves *moves = operation->moves != NULL ? operation->moves : plan(operation);
    if (moves == NULL) {
        return MUSTER_FATAL;
    }
    atomic_store(&moves->fetched, launch->in == NULL ? moves->plan.fetch_count : 0);
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        moves->waiting[i] = (struct muster_span){0};
        moves->enqueued[i] = operation->lanes[i].first;
    }
    moves->changed_ns = muster_clock_ns();
    moves->begun_ns = moves->fetched_ns = moves->stored_ns =
        muster_timeline_clock(operation->timeline);
    TRY(count_before(operation, launch->fetches, &moves->fetches));
    TRY(count_before(operation, launch->stores, &moves->stores));
    return launch->in != NULL ? enqueue_fetches(operation) : MUSTER_OK;
}

/* Rounds --------------------------------------------------------------------------------------- */

bool muster_moves_allow(const struct muster_lane_state *lane)
{
    const struct muster_operation *operation = lane->operation;
    const struct muster_moves *moves = operation->moves;
    size_t fetched = atomic_load(&moves->fetched);
    size_t needed = 0;
    for (size_t i = lane->start; i < lane->next; i++) {
        needed = moves->plan.needs[i] > needed ? moves->plan.needs[i] : needed;
    }
    for (size_t i = lane->next; i < lane->end && operation->schedule.steps[i].round ==
                                                     operation->schedule.steps[lane->next].round;
         i++) {
        bool counts = operation->messages[i].early && moves->plan.needs[i] > needed;
        needed = counts ? moves->plan.needs[i] : needed;
    }
    return fetched >= needed;
}

bool muster_moves_has_stores(const struct muster_lane_state *lane)
{
    const size_t *stored_by = lane->operation->moves->plan.stored_by;
    return stored_by[lane->next] > stored_by[lane->start];
}

/* Progress ------------------------------------------------------------------------------------- */

static void record(const struct muster_operation *operation, int64_t *last_ns, int64_t begun_ns,
                   uint64_t bytes)
{
    if (operation->timeline == NULL || begun_ns == 0) {
        return;
    }
    int64_t started_ns = begun_ns > *last_ns ? begun_ns : *last_ns;
    muster_timeline_add_local(
        operation->timeline, MUSTER_TIMELINE_DEVICE_COPY, started_ns, bytes,
        (struct muster_timeline_operation){.sequence = operation->launch->sequence,
                                           .context = operation->launch->context});
    *last_ns = muster_timeline_clock(operation->timeline);
}

static muster_status poll_fetches(struct muster_operation *operation)
{
    struct muster_moves *moves = operation->moves;
    uint64_t done = 0;
    if (moves->fetches.done == moves->fetches.count) {
        return MUSTER_OK;
    }
    TRY(queues_of(operation)->poll(operation->launch->moves->fetches, &done));
    while (moves->fetches.done < done - moves->fetches.before) {
        const struct muster_span span = moves->plan.fetches[moves->fetches.done++];
        record(operation, &moves->fetched_ns, moves->begun_ns,
               span.count * operation->element_size_bytes);
    }
    atomic_store(&moves->fetched, moves->fetches.done);
    return MUSTER_OK;
}

static muster_status poll_stores(struct muster_operation *operation)
{
    struct muster_moves *moves = operation->moves;
    uint64_t done = 0;
    if (moves->stores.done == moves->stores.count) {
        return MUSTER_OK;
    }
    TRY(queues_of(operation)->poll(operation->launch->moves->stores, &done));
    for (; moves->stores.done < done - moves->stores.before; moves->stores.done++) {
        size_t at = moves->stores.done % STORES_NOTED;
        record(operation, &moves->stored_ns, moves->noted[at].at_ns, moves->noted[at].bytes);
    }
    return MUSTER_OK;
}

/* Finishes the elements in memory of the host, and enqueues their copy. */
static muster_status store(struct muster_operation *operation, struct muster_span span)
{
    struct muster_moves *moves = operation->moves;
    const struct muster_launch *launch = operation->launch;
    size_t size = operation->element_size_bytes;
    char *from = operation->buffers[MUSTER_OUTPUT] + span.offset * size;
    if (span.count == 0) {
        return MUSTER_OK;
    }
    if (moves->finishes) {
        muster_reduction_finish(&launch->reduction, from, span.count, launch->contributions);
    }
    size_t at = moves->stores.count % STORES_NOTED;
    moves->noted[at].at_ns = muster_timeline_clock(operation->timeline);
    moves->noted[at].bytes = span.count * size;
    TRY(queues_of(operation)->copy(launch->moves->stores,
                                   (char *)launch->moves->out + span.offset * size, from,
                                   span.count * size));
    moves->stores.count++;
    return MUSTER_OK;
}

/* Adds what is final to what waits, and stores that in parts. */
static muster_status add(struct muster_operation *operation, struct muster_span *waiting,
                         struct muster_span span)
{
    uint64_t most = STORE_BYTES / operation->element_size_bytes;
    if (waiting->count > 0 && waiting->offset + waiting->count == span.offset) {
        waiting->count += span.count;
    } else {
        TRY(store(operation, *waiting));
        *waiting = span;
    }
    while (waiting->count >= most) {
        TRY(store(operation, (struct muster_span){.offset = waiting->offset, .count = most}));
        waiting->offset += most;
        waiting->count -= most;
    }
    return MUSTER_OK;
}

static muster_status store_lane(struct muster_operation *operation, uint32_t index, bool all)
{
    struct muster_moves *moves = operation->moves;
    size_t final = atomic_load(&operation->lanes[index].final);
    for (size_t i = moves->plan.stored_by[moves->enqueued[index]]; i < moves->plan.stored_by[final];
         i++) {
        TRY(add(operation, &moves->waiting[index], moves->plan.stores[i]));
    }
    moves->enqueued[index] = final;
    if (all) {
        TRY(store(operation, moves->waiting[index]));
        moves->waiting[index] = (struct muster_span){0};
    }
    return MUSTER_OK;
}

static uint64_t count_events(const struct muster_moves *moves)
{
    return moves->fetches.done + moves->stores.count + moves->stores.done;
}

static muster_status progress(struct muster_operation *operation)
{
    bool ended = atomic_load(&operation->lanes_left) == 0;
    TRY(poll_fetches(operation));
    for (uint32_t i = 0; i < operation->schedule.lanes && operation->launch->moves->out != NULL;
         i++) {
        TRY(store_lane(operation, i, ended));
    }
    return poll_stores(operation);
}

bool muster_moves_are_complete(const struct muster_operation *operation)
{
    const struct muster_moves *moves = operation->moves;
    if (operation->launch->moves == NULL || moves == NULL) {
        return true;
    }
    for (uint32_t i = 0; i < operation->schedule.lanes && operation->launch->moves->out != NULL;
         i++) {
        if (moves->enqueued[i] < operation->lanes[i].end || moves->waiting[i].count > 0) {
            return false;
        }
    }
    return moves->stores.done == moves->stores.count && moves->fetches.done == moves->fetches.count;
}

/* Whether the round of a lane that was held may be posted now. */
static bool has_allowed(const struct muster_operation *operation)
{
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        if (atomic_load(&operation->lanes[i].held) && muster_moves_allow(&operation->lanes[i])) {
            return true;
        }
    }
    return false;
}

muster_status muster_moves_progress(struct muster_operation *operation)
{
    if (operation->launch->moves == NULL) {
        return MUSTER_OK;
    }
    struct muster_moves *moves = operation->moves;
    uint64_t before = count_events(moves);
    TRY(progress(operation));
    int64_t now_ns = muster_moves_advance(operation) ? muster_clock_ns() : MUSTER_NEVER;
    int64_t until_ns = now_ns == MUSTER_NEVER ? 0 : now_ns + SPIN_NS;
    for (; now_ns < until_ns && !has_allowed(operation) && !muster_moves_are_complete(operation);
         now_ns = muster_clock_ns()) {
        TRY(progress(operation));
    }
    if (count_events(moves) != before) {
        moves->changed_ns = muster_clock_ns();
    }
    return MUSTER_OK;
}

bool muster_moves_wait(const struct muster_operation *operation)
{
    if (operation->launch->moves == NULL || operation->moves == NULL) {
        return false;
    }
    bool waits = atomic_load(&operation->lanes_left) == 0;
    for (uint32_t i = 0; i < operation->schedule.lanes && !waits; i++) {
        waits = atomic_load(&operation->lanes[i].held);
    }
    return waits;
}

bool muster_moves_advance(const struct muster_operation *operation)
{
    return muster_moves_wait(operation) &&
           muster_clock_ns() - operation->moves->changed_ns < SOON_NS;
}

int64_t muster_moves_next_poll(const struct muster_operation *operation, int64_t until_ns)
{
    if (!muster_moves_wait(operation)) {
        return until_ns;
    }
    int64_t soon_ns =
        muster_clock_ns() + (muster_moves_advance(operation) ? POLL_NS : POLL_LATER_NS);
    return soon_ns < until_ns ? soon_ns : until_ns;
}

/* Without messages ----------------------------------------------------------------------------- */

static muster_status wait_for(struct muster_operation *operation, struct copies *copies,
                              muster_status (*poll)(struct muster_operation *), int64_t deadline_ns)
{
    TRY(poll(operation));
    while (copies->done < copies->count) {
        if (muster_clock_ns() >= deadline_ns) {
            return muster_error_set(MUSTER_RETRY, "the deadline passed while a device copied");
        }
        TRY(poll(operation));
    }
    return MUSTER_OK;
}

/* The same for the input, which the program may let wait for long: others may die meanwhile. */
static muster_status wait_for_fetches(struct muster_operation *operation, uint32_t *ret_suspect)
{
    const struct muster_launch *launch = operation->launch;
    muster_status status = MUSTER_RETRY;
    while (status == MUSTER_RETRY) {
        int64_t now_ns = muster_clock_ns();
        int64_t soon_ns = now_ns + CHECK_NS;
        status = wait_for(operation, &operation->moves->fetches, poll_fetches,
                          soon_ns < launch->deadline_ns ? soon_ns : launch->deadline_ns);
        if (status == MUSTER_RETRY && now_ns >= launch->deadline_ns) {
            return status;
        }
        if (status == MUSTER_RETRY) {
            muster_fabric_poll(operation->group->fabric);
            TRY(muster_fabric_check(operation->group->fabric, launch->generation));
            TRY(muster_operation_group_check(operation->group, launch, ret_suspect));
        }
    }
    return status;
}

muster_status muster_moves_begin_in_group(struct muster_operation *operation)
{
    atomic_store(&operation->lanes[0].held, true);
    return muster_moves_begin(operation);
}

muster_status muster_moves_fetch_in_group(struct muster_operation *operation, bool *ret_fetched)
{
    *ret_fetched = true;
    if (operation->launch->moves != NULL && atomic_load(&operation->lanes[0].held)) {
        TRY(poll_fetches(operation));
        *ret_fetched =
            atomic_load(&operation->moves->fetched) == operation->moves->plan.fetch_count;
        atomic_store(&operation->lanes[0].held, !*ret_fetched);
    }
    return MUSTER_OK;
}

void muster_moves_end_in_group(struct muster_operation *operation)
{
    for (uint32_t i = 0; i < operation->schedule.lanes; i++) {
        atomic_store(&operation->lanes[i].final, operation->lanes[i].end);
    }
    atomic_store(&operation->lanes_left, 0);
}

static muster_status run_in_group(struct muster_operation *operation, uint32_t *ret_suspect)
{
    const struct muster_launch *launch = operation->launch;
    TRY(muster_moves_begin(operation));
    TRY(wait_for_fetches(operation, ret_suspect));
    TRY(muster_operation_group_run(operation->group, launch, operation->method, ret_suspect));
    muster_moves_end_in_group(operation);
    TRY(muster_moves_progress(operation));
    return wait_for(operation, &operation->moves->stores, poll_stores, launch->deadline_ns);
}

muster_status muster_moves_run_in_group(struct muster_operation *operation, uint32_t *ret_suspect)
{
    muster_status status = run_in_group(operation, ret_suspect);
    if (status != MUSTER_OK) {
        muster_moves_give_up(operation);
    }
    return status;
}

/* What has not begun is not made. */
static void drop(const struct muster_operation *operation, void *queue, struct copies *copies)
{
    if (queue != NULL && copies->count > 0) {
        copies->count = queues_of(operation)->drop(queue) - copies->before;
    }
}

void muster_moves_give_up(struct muster_operation *operation)
{
    char text[MUSTER_ERROR_MAX];
    if (operation->launch->moves == NULL || operation->moves == NULL) {
        return;
    }
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    drop(operation, operation->launch->moves->fetches, &operation->moves->fetches);
    drop(operation, operation->launch->moves->stores, &operation->moves->stores);
    int64_t until_ns = muster_clock_after_ms(GIVE_UP_MS);
    muster_status status = wait_for(operation, &operation->moves->fetches, poll_fetches, until_ns);
    if (status == MUSTER_OK) {
        status = wait_for(operation, &operation->moves->stores, poll_stores, until_ns);
    }
    operation->launch->moves->failed = status != MUSTER_OK;
    (void)muster_error_set(status, "%s", text);
}
