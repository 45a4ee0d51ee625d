/* The engines of this process, by the number that handles name them with, and the functions that
 * take a handle.
 *
 *   handle   bit 63: set; 12 bits: the engine; 31 bits: serial number of the entry's use; 20 bits:
 *            the entry
 */
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/engine/engine_parts.h"

enum { ENGINES_MAX = 1 << 12, ENTRY_BITS = 20, SERIAL_BITS = 31 };

static struct {
    pthread_mutex_t mutex; /* of adding and removing */
    uint32_t hint;
    _Atomic(struct muster_engine *) engines[ENGINES_MAX];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A child of fork() has none of its parent's engines. */
static void reset_in_child(void)
{
    muster_mutex_init(&table.mutex);
    for (uint32_t i = 0; i < ENGINES_MAX; i++) {
        atomic_store(&table.engines[i], NULL);
    }
}

muster_status muster_engine_table_add(struct muster_engine *engine)
{
    if (!muster_fork_guard_call_in_child(reset_in_child)) {
        return muster_error_set(MUSTER_FATAL, "no memory for named tensors");
    }
    AUTO_LOCK(&table.mutex);
    for (uint32_t i = 0; i < ENGINES_MAX; i++) {
        uint32_t slot = (table.hint + i) % ENGINES_MAX; /* late: an old handle hits no new engine */
        if (atomic_load(&table.engines[slot]) == NULL) {
            atomic_store(&table.engines[slot], engine);
            table.hint = slot + 1;
            engine->slot = slot;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_FATAL, "named tensors in more than %d scopes", ENGINES_MAX);
}

void muster_engine_table_remove(struct muster_engine *engine)
{
    AUTO_LOCK(&table.mutex);
    if (atomic_load(&table.engines[engine->slot]) == engine) {
        atomic_store(&table.engines[engine->slot], NULL);
    }
}

static uint32_t serial_of(const struct muster_engine_entry *entry)
{
    return entry->serial & ((UINT32_C(1) << SERIAL_BITS) - 1);
}

muster_operation muster_engine_handle(const struct muster_engine *engine, uint32_t index)
{
    return UINT64_C(1) << 63 | (uint64_t)engine->slot << (SERIAL_BITS + ENTRY_BITS) |
           (uint64_t)serial_of(muster_engine_entry(engine, index)) << ENTRY_BITS | index;
}

static muster_status unknown(muster_operation operation)
{
    return muster_error_set(MUSTER_INVALID,
                            "operation %llx is not in flight: it was never started, has been "
                            "waited for, or its session is closed",
                            (unsigned long long)operation);
}

static struct muster_engine *find_engine(muster_operation operation)
{
    return atomic_load_explicit(
        &table.engines[operation >> (SERIAL_BITS + ENTRY_BITS) & (ENGINES_MAX - 1)],
        memory_order_acquire);
}

static muster_status find_locked(const struct muster_engine *engine, muster_operation operation,
                                 uint32_t *ret_index)
{
    uint32_t index = (uint32_t)operation & ((1U << ENTRY_BITS) - 1);
    if (index / MUSTER_ENGINE_BLOCK_ENTRIES >= engine->block_count) {
        return unknown(operation);
    }
    const struct muster_engine_entry *entry = muster_engine_entry(engine, index);
    if (atomic_load(&entry->state) == MUSTER_ENTRY_FREE || entry->detached ||
        muster_engine_handle(engine, index) != operation) {
        return unknown(operation);
    }
    if (entry->taken) {
        return muster_error_set(MUSTER_INVALID, "operation %llx: another thread waits for it",
                                (unsigned long long)operation);
    }
    *ret_index = index;
    return MUSTER_OK;
}

/* Of an entry that is done: its status, and the handle is consumed. */
static muster_status consume_locked(struct muster_engine *engine, uint32_t index)
{
    struct muster_engine_entry *entry = muster_engine_entry(engine, index);
    muster_status status = entry->status;
    if (status != MUSTER_OK) {
        (void)muster_error_set(status, "%s", entry->text != NULL ? entry->text : "");
    }
    muster_engine_free_entry_locked(engine, index);
    return status;
}

static bool is_done(const struct muster_engine *engine, uint32_t index)
{
    return atomic_load(&muster_engine_entry(engine, index)->state) == MUSTER_ENTRY_DONE;
}

/* Sleeps until something changes, the time, or until a step may be due. Who waits with a limit does
 * not drive, as an operation has none: the engine's thread has to. */
static void sleep_locked(struct muster_engine *engine, int64_t until_ns)
{
    int64_t due_ns = engine->driving ? MUSTER_NEVER : muster_engine_due_ns_locked(engine);
    if (until_ns != MUSTER_NEVER) {
        engine->thread_wanted = true;
        muster_engine_wake_locked(engine);
        due_ns = MUSTER_NEVER;
    }
    engine->waiters++;
    int64_t time_ns = due_ns < until_ns ? due_ns : until_ns;
    if (time_ns == MUSTER_NEVER) {
        (void)pthread_cond_wait(&engine->changed, &engine->mutex);
    } else {
        (void)muster_condition_wait(&engine->changed, &engine->mutex, time_ns);
    }
    engine->waiters--;
}

/* Waits until one of the entries is done, and returns its place; `count` if none was in time. */
static size_t wait_locked(struct muster_engine *engine, const uint32_t *indices, size_t count,
                          int64_t until_ns)
{
    for (;;) {
        for (size_t i = 0; i < count; i++) {
            if (is_done(engine, indices[i])) {
                return i;
            }
        }
        if (until_ns != MUSTER_NEVER && until_ns <= muster_clock_ns()) {
            engine->thread_wanted = true;
            muster_engine_wake_locked(engine);
            return count;
        }
        if (until_ns != MUSTER_NEVER || !muster_engine_drive_locked(engine, true)) {
            sleep_locked(engine, until_ns);
        }
    }
}

muster_status muster_engine_wait(muster_operation operation, int64_t until_ns, bool *ret_done)
{
    struct muster_engine *engine = find_engine(operation);
    uint32_t index = 0;
    *ret_done = false;
    if (engine == NULL) {
        return unknown(operation);
    }
    AUTO_LOCK(&engine->mutex);
    TRY(find_locked(engine, operation, &index));
    if (!is_done(engine, index)) {
        muster_engine_entry(engine, index)->taken = true;
        bool late = wait_locked(engine, &index, 1, until_ns) == 1;
        muster_engine_entry(engine, index)->taken = false;
        muster_engine_wake_locked(engine); /* another thread has to drive from now on */
        if (late) {
            return MUSTER_OK;
        }
    }
    *ret_done = true;
    return consume_locked(engine, index);
}

/* Finds all entries, and takes them; on failure none is taken. */
static muster_status take_all_locked(struct muster_engine *engine,
                                     const muster_operation *operations, size_t count,
                                     uint32_t *ret_indices)
{
    muster_status status = MUSTER_OK;
    size_t taken = 0;
    while (taken < count && status == MUSTER_OK) {
        status = find_engine(operations[taken]) == engine && muster_engine_owns(operations[taken])
                     ? find_locked(engine, operations[taken], &ret_indices[taken])
                     : muster_error_set(MUSTER_INVALID,
                                        "wait_any: operations %llx and %llx are not tensors of one "
                                        "scope",
                                        (unsigned long long)operations[0],
                                        (unsigned long long)operations[taken]);
        if (status == MUSTER_OK) {
            muster_engine_entry(engine, ret_indices[taken++])->taken = true;
        }
    }
    for (size_t i = 0; status != MUSTER_OK && i < taken; i++) {
        muster_engine_entry(engine, ret_indices[i])->taken = false;
    }
    return status;
}

muster_status muster_engine_wait_any(const muster_operation *operations, size_t count,
                                     size_t *ret_index)
{
    struct muster_engine *engine = find_engine(operations[0]);
    if (engine == NULL) {
        return unknown(operations[0]);
    }
    AUTO_FREE uint32_t *indices = calloc(count, sizeof *indices);
    if (indices == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to wait for %zu operations", count);
    }
    AUTO_LOCK(&engine->mutex);
    TRY(take_all_locked(engine, operations, count, indices));
    size_t done = wait_locked(engine, indices, count, MUSTER_NEVER);
    for (size_t i = 0; i < count; i++) {
        muster_engine_entry(engine, indices[i])->taken = false;
    }
    muster_engine_wake_locked(engine);
    *ret_index = done;
    return consume_locked(engine, indices[done]);
}

muster_status muster_engine_detach(muster_operation operation)
{
    struct muster_engine *engine = find_engine(operation);
    uint32_t index = 0;
    if (engine == NULL) {
        return unknown(operation);
    }
    AUTO_LOCK(&engine->mutex);
    TRY(find_locked(engine, operation, &index));
    if (is_done(engine, index)) {
        muster_engine_free_entry_locked(engine, index);
        return MUSTER_OK;
    }
    muster_engine_entry(engine, index)->detached = true;
    engine->thread_wanted = true;
    muster_engine_wake_locked(engine);
    return MUSTER_OK;
}
