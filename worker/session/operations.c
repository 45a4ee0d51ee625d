/* The table of operations in flight, and the public functions that wait for them. */
#include "worker/session/operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/engine/engine.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/scopes.h"

enum { SLOTS_MAX = 1 << 20, SLOTS_FIRST = 64 };

enum slot_state {
    SLOT_FREE = 0,
    SLOT_ACTIVE = 1,   /* there is a call */
    SLOT_ENDED = 2,    /* its generation has ended; `status` is how the call did */
    SLOT_STARTING = 3, /* its call is being started, and nobody has its handle yet */
    SLOT_INACTIVE = 4, /* there is a persistent call, which is not in flight */
};

struct slot {
    enum slot_state state;
    uint32_t serial; /* of its present or next use */
    bool busy;       /* a thread waits for it, or starts it */
    bool persistent; /* inactive again at its end, until it is detached */
    struct muster_session *session;
    uint64_t generation;
    struct muster_started_call *call;
    muster_status status;
    char *text; /* owned; or NULL */
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a slot is no longer busy */
    struct slot *slots;     /* [count] */
    uint32_t count;
    uint32_t hint; /* where a free slot may be */
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Slots ------------------------------------------------------------------------------------------
 */

static muster_operation handle_of(uint32_t index)
{
    return (uint64_t)table.slots[index].serial << 32 | (index + 1);
}

static muster_status grow_locked(void)
{
    uint32_t count = table.count == 0 ? SLOTS_FIRST : 2 * table.count;
    struct slot *slots = count <= SLOTS_MAX ? realloc(table.slots, count * sizeof *slots) : NULL;
    if (slots == NULL) {
        return muster_error_set(MUSTER_FATAL, "no room for an operation in flight beside %u others",
                                table.count);
    }
    for (uint32_t i = table.count; i < count; i++) {
        slots[i] = (struct slot){.serial = 1};
    }
    table.hint = table.count;
    table.slots = slots;
    table.count = count;
    return MUSTER_OK;
}

/* The index of a free slot. */
static muster_status find_free_locked(uint32_t *ret_index)
{
    for (uint32_t i = 0; i < table.count; i++) {
        uint32_t index = (table.hint + i) % table.count;
        if (table.slots[index].state == SLOT_FREE) {
            table.hint = (index + 1) % table.count;
            *ret_index = index;
            return MUSTER_OK;
        }
    }
    TRY(grow_locked());
    *ret_index = table.hint++;
    return MUSTER_OK;
}

static void free_locked(struct slot *slot)
{
    free(slot->text);
    *slot = (struct slot){.serial = slot->serial + 1};
    (void)pthread_cond_broadcast(&table.changed);
}

/* The slot of a handle that no other thread uses. */
static muster_status find_any_locked(muster_operation operation, uint32_t *ret_index)
{
    uint32_t index = (uint32_t)operation - 1;
    enum slot_state state = index < table.count ? table.slots[index].state : SLOT_FREE;
    if (state == SLOT_FREE || state == SLOT_STARTING || handle_of(index) != operation) {
        return muster_error_set(MUSTER_INVALID,
                                "operation %llx is not in flight: it was never started, has been "
                                "waited for, or its session is closed",
                                (unsigned long long)operation);
    }
    if (table.slots[index].busy) {
        return muster_error_set(MUSTER_INVALID, "operation %llx: another thread waits for it",
                                (unsigned long long)operation);
    }
    *ret_index = index;
    return MUSTER_OK;
}

/* One that can be waited for. */
static muster_status find_locked(muster_operation operation, uint32_t *ret_index)
{
    TRY(find_any_locked(operation, ret_index));
    return table.slots[*ret_index].state != SLOT_INACTIVE
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "operation %llx is persistent and not started, or has been "
                                  "waited for since its last start",
                                  (unsigned long long)operation);
}

/* Consumes the handle of an operation whose generation has ended. */
static muster_status consume_ended_locked(struct slot *slot)
{
    muster_status status = slot->status;
    if (status != MUSTER_OK) {
        (void)muster_error_set(status, "%s", slot->text != NULL ? slot->text : "");
    }
    free_locked(slot);
    return status;
}

/* A child of fork() has none of its parent's operations; they stay allocated in its copy. */
static void reset_in_child(void)
{
    muster_mutex_init(&table.mutex);
    (void)pthread_cond_init(&table.changed, NULL);
    table.slots = NULL;
    table.count = 0;
}

/* Starting ---------------------------------------------------------------------------------------
 */

static muster_status reserve_slot(uint32_t *ret_index)
{
    if (!muster_fork_guard_call_in_child(reset_in_child)) {
        return muster_error_set(MUSTER_FATAL, "no memory for an operation in flight");
    }
    AUTO_LOCK(&table.mutex);
    TRY(find_free_locked(ret_index));
    table.slots[*ret_index].state = SLOT_STARTING;
    return MUSTER_OK;
}

static muster_status start_call(struct muster_context *context, const struct muster_start *start,
                                struct muster_started_call **ret_call)
{
    if (start->message != NULL) {
        return start->persistent
                   ? muster_context_make_persistent_message(context, start->message, ret_call)
                   : muster_context_start_message(context, start->message, ret_call);
    }
    return start->persistent ? muster_context_make_persistent(context, start->request, ret_call)
                             : muster_context_start(context, start->request, ret_call);
}

/* The generation is held, so it cannot end meanwhile. */
static muster_status make_held(struct muster_session *session, muster_scope scope,
                               const struct muster_start *start, muster_operation *ret_operation)
{
    struct muster_context *context = NULL;
    struct muster_started_call *call = NULL;
    uint32_t index = 0;
    TRY(muster_session_context(session, scope, &context));
    TRY(reserve_slot(&index));
    muster_status status = start_call(context, start, &call);
    AUTO_LOCK(&table.mutex);
    struct slot *slot = &table.slots[index];
    if (status != MUSTER_OK) {
        free_locked(slot);
        return status;
    }
    slot->state = start->persistent ? SLOT_INACTIVE : SLOT_ACTIVE;
    slot->persistent = start->persistent;
    slot->session = session;
    slot->generation = session->generation.number;
    slot->call = call;
    *ret_operation = handle_of(index);
    return MUSTER_OK;
}

muster_status muster_session_start(struct muster_session *session, muster_scope scope,
                                   const struct muster_start *start,
                                   muster_operation *ret_operation)
{
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    muster_status status = make_held(session, scope, start, ret_operation);
    muster_session_release_generation(session);
    return muster_session_handle_result(session, generation, status, UINT32_MAX);
}

/* The slot of a persistent operation that is not in flight. */
static muster_status find_inactive_locked(muster_operation operation, uint32_t *ret_index)
{
    TRY(find_any_locked(operation, ret_index));
    const struct slot *slot = &table.slots[*ret_index];
    if (!slot->persistent) {
        return muster_error_set(MUSTER_INVALID, "operation %llx is not persistent",
                                (unsigned long long)operation);
    }
    if (slot->state != SLOT_INACTIVE) {
        return muster_error_set(MUSTER_INVALID,
                                slot->state == SLOT_ENDED
                                    ? "operation %llx has ended with its generation: make it again"
                                    : "operation %llx is in flight already",
                                (unsigned long long)operation);
    }
    return MUSTER_OK;
}

/* The generation of this session is held. */
static muster_status start_again_held(muster_operation operation)
{
    uint32_t index = 0;
    muster_mutex_lock(&table.mutex);
    muster_status status = find_inactive_locked(operation, &index);
    struct muster_started_call *call = NULL;
    if (status == MUSTER_OK) {
        table.slots[index].busy = true;
        call = table.slots[index].call;
    }
    muster_mutex_unlock(&table.mutex);
    TRY(status);
    status = muster_started_call_start(call);
    AUTO_LOCK(&table.mutex);
    table.slots[index].busy = false;
    table.slots[index].state = status == MUSTER_OK ? SLOT_ACTIVE : SLOT_INACTIVE;
    (void)pthread_cond_broadcast(&table.changed);
    return status;
}

muster_status muster_start(muster_operation operation)
{
    struct muster_session *session = NULL;
    uint32_t index = 0;
    {
        AUTO_LOCK(&table.mutex);
        TRY(find_inactive_locked(operation, &index));
        session = table.slots[index].session;
    }
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    muster_status status = start_again_held(operation);
    muster_session_release_generation(session);
    return muster_session_handle_result(session, generation, status, UINT32_MAX);
}

/* Waiting ----------------------------------------------------------------------------------------
 */

/* Ends a call that is done, and consumes its handle unless it is persistent. The slot is busy for
 * this thread. */
static muster_status end_call(uint32_t index)
{
    uint32_t suspect = UINT32_MAX;
    muster_mutex_lock(&table.mutex);
    struct slot slot = table.slots[index];
    muster_mutex_unlock(&table.mutex);
    muster_status status = muster_started_call_end(slot.call, &suspect);
    muster_mutex_lock(&table.mutex);
    if (slot.persistent) {
        table.slots[index].state = SLOT_INACTIVE;
        table.slots[index].busy = false;
        (void)pthread_cond_broadcast(&table.changed);
    } else {
        free_locked(&table.slots[index]);
    }
    muster_mutex_unlock(&table.mutex);
    return muster_session_handle_result(slot.session, slot.generation, status, suspect);
}

static void stop_waiting(uint32_t index)
{
    AUTO_LOCK(&table.mutex);
    table.slots[index].busy = false;
    (void)pthread_cond_broadcast(&table.changed);
}

/* Waits until the time. *ret_done: the handle is consumed, and the status is the operation's. */
static muster_status wait_until(muster_operation operation, int64_t until_ns, bool *ret_done)
{
    struct muster_started_call *call = NULL;
    uint32_t index = 0;
    *ret_done = false;
    if (muster_engine_owns(operation)) {
        return muster_engine_wait(operation, until_ns, ret_done);
    }
    {
        AUTO_LOCK(&table.mutex);
        TRY(find_locked(operation, &index));
        struct slot *slot = &table.slots[index];
        if (slot->state == SLOT_ENDED) {
            *ret_done = true;
            return consume_ended_locked(slot);
        }
        slot->busy = true;
        call = slot->call;
    }
    if (!muster_started_call_wait(call, until_ns)) {
        stop_waiting(index);
        return MUSTER_OK;
    }
    *ret_done = true;
    return end_call(index);
}

muster_status muster_wait(muster_operation operation)
{
    bool done = false;
    return wait_until(operation, MUSTER_NEVER, &done);
}

muster_status muster_wait_for(muster_operation operation, uint32_t timeout_ms)
{
    bool done = false;
    TRY(wait_until(operation, muster_clock_after_ms(timeout_ms), &done));
    return done ? MUSTER_OK
                : muster_error_set(MUSTER_RETRY, "operation %llx is still in flight after %u ms",
                                   (unsigned long long)operation, timeout_ms);
}

muster_status muster_test(muster_operation operation, int *ret_done)
{
    bool done = false;
    muster_status status = wait_until(operation, 0, &done);
    *ret_done = done ? 1 : 0;
    return status;
}

/* As find_locked(), for an operation that is to be of the same session as the first one, which has
 * been found. */
static muster_status find_of_session_locked(muster_operation first, muster_operation operation,
                                            uint32_t *ret_index)
{
    TRY(find_locked(operation, ret_index));
    if (table.slots[*ret_index].session != table.slots[(uint32_t)first - 1].session) {
        return muster_error_set(MUSTER_INVALID,
                                "wait_any: operations %llx and %llx are of two sessions",
                                (unsigned long long)first, (unsigned long long)operation);
    }
    return MUSTER_OK;
}

/* Whether the last operation of a list stands in it twice. */
static bool is_repeated(const muster_operation *operations, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++) {
        if (operations[i] == operations[count - 1]) {
            return true;
        }
    }
    return false;
}

/* Marks the slots of the operations as busy, and lists their calls. *ret_ended: the index of an
 * operation whose generation has ended; or `count`. On failure none is busy. */
static muster_status begin_waiting_for_any(const muster_operation *operations, size_t count,
                                           struct muster_started_call **calls, size_t *ret_ended)
{
    muster_status status = MUSTER_OK;
    size_t marked = 0;
    AUTO_LOCK(&table.mutex);
    *ret_ended = count;
    for (; marked < count && status == MUSTER_OK && *ret_ended == count; marked++) {
        uint32_t index = 0;
        status = find_of_session_locked(operations[0], operations[marked], &index);
        if (status == MUSTER_INVALID && is_repeated(operations, marked + 1)) {
            status = muster_error_set(MUSTER_INVALID, "wait_any: operation %llx is listed twice",
                                      (unsigned long long)operations[marked]);
        }
        if (status == MUSTER_OK && table.slots[index].state == SLOT_ENDED) {
            *ret_ended = marked;
        } else if (status == MUSTER_OK) {
            table.slots[index].busy = true;
            calls[marked] = table.slots[index].call;
        }
    }
    if (status != MUSTER_OK || *ret_ended < count) {
        for (size_t i = 0; i + 1 < marked; i++) { /* the last one was not marked */
            table.slots[(uint32_t)operations[i] - 1].busy = false;
        }
        (void)pthread_cond_broadcast(&table.changed);
    }
    return status;
}

muster_status muster_wait_any(const muster_operation *operations, size_t count, size_t *ret_index)
{
    size_t ended = count;
    if (count == 0) {
        return muster_error_set(MUSTER_INVALID, "wait_any: there are no operations");
    }
    if (muster_engine_owns(operations[0])) {
        return muster_engine_wait_any(operations, count, ret_index);
    }
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
    AUTO_FREE struct muster_started_call **calls = calloc(count, sizeof *calls);
    if (calls == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to wait for %zu operations", count);
    }
    TRY(begin_waiting_for_any(operations, count, calls, &ended));
    if (ended < count) {
        *ret_index = ended;
        return muster_wait(operations[ended]);
    }
    size_t done = muster_started_calls_wait_any(calls, count, MUSTER_NEVER);
    for (size_t i = 0; i < count; i++) {
        if (i != done) {
            stop_waiting((uint32_t)operations[i] - 1);
        }
    }
    *ret_index = done;
    return end_call((uint32_t)operations[done] - 1);
}

muster_status muster_detach(muster_operation operation)
{
    uint32_t index = 0;
    if (muster_engine_owns(operation)) {
        return muster_engine_detach(operation);
    }
    AUTO_LOCK(&table.mutex);
    TRY(find_any_locked(operation, &index));
    struct slot *slot = &table.slots[index];
    if (slot->state == SLOT_ACTIVE) {
        muster_started_call_detach(slot->call);
    } else if (slot->state == SLOT_INACTIVE) {
        muster_started_call_free(slot->call);
    }
    free_locked(slot);
    return MUSTER_OK;
}

/* The end of a generation, and of a session ------------------------------------------------------
 */

/* Ends the call of a slot, without the mutex meanwhile: it may last until its deadline. */
static void end_locked(uint32_t index)
{
    const struct slot before = table.slots[index];
    char text[MUSTER_ERROR_MAX] = "its generation has ended";
    muster_status status = MUSTER_REJOIN;
    table.slots[index].busy = true;
    muster_mutex_unlock(&table.mutex);
    if (before.state == SLOT_ACTIVE) {
        status = muster_started_call_end(before.call, NULL);
        (void)snprintf(text, sizeof text, "%s", status != MUSTER_OK ? muster_last_error() : "");
    }
    if (before.persistent) {
        muster_started_call_free(before.call);
    }
    muster_mutex_lock(&table.mutex);
    struct slot *slot = &table.slots[index];
    slot->state = SLOT_ENDED;
    slot->busy = false;
    slot->call = NULL;
    slot->status = status;
    slot->text = status != MUSTER_OK ? strdup(text) : NULL;
    (void)pthread_cond_broadcast(&table.changed);
}

static bool has_call_of(const struct slot *slot, const struct muster_session *session)
{
    return slot->session == session && (slot->state == SLOT_ACTIVE || slot->state == SLOT_INACTIVE);
}

void muster_session_end_operations(struct muster_session *session)
{
    AUTO_LOCK(&table.mutex);
    for (uint32_t i = 0; i < table.count; i++) {
        while (table.slots[i].session == session && table.slots[i].busy) {
            (void)pthread_cond_wait(&table.changed, &table.mutex);
        }
        if (has_call_of(&table.slots[i], session)) {
            end_locked(i);
        }
    }
}

void muster_session_drop_operations(const struct muster_session *session)
{
    AUTO_LOCK(&table.mutex);
    for (uint32_t i = 0; i < table.count; i++) {
        if (table.slots[i].session == session) {
            free_locked(&table.slots[i]);
        }
    }
}

uint32_t muster_session_count_operations(void)
{
    uint32_t used = 0;
    AUTO_LOCK(&table.mutex);
    for (uint32_t i = 0; i < table.count; i++) {
        used += table.slots[i].state != SLOT_FREE;
    }
    return used;
}
