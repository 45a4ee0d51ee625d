/* Submitted tensors: where they are kept, and how they end. */
#include <stdlib.h>
#include <string.h>

#include "worker/base/thread.h"
#include "worker/engine/engine_parts.h"

enum { ENTRIES_MAX = 1 << 20, CALLS_FIRST = 16 };

struct muster_engine_entry *muster_engine_entry(const struct muster_engine *engine, uint32_t index)
{
    return &engine
                ->blocks[index / MUSTER_ENGINE_BLOCK_ENTRIES][index % MUSTER_ENGINE_BLOCK_ENTRIES];
}

static muster_status add_block_locked(struct muster_engine *engine)
{
    uint32_t count = engine->block_count;
    uint32_t first = count * MUSTER_ENGINE_BLOCK_ENTRIES;
    if (first >= ENTRIES_MAX) {
        return muster_error_set(MUSTER_FATAL, "%d tensors are pending, or not waited for",
                                ENTRIES_MAX);
    }
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
    void *blocks = realloc(engine->blocks, (count + 1) * sizeof *engine->blocks);
    struct muster_engine_entry *block = calloc(MUSTER_ENGINE_BLOCK_ENTRIES, sizeof *block);
    engine->blocks = blocks != NULL ? blocks : engine->blocks;
    if (blocks == NULL || block == NULL) {
        free(block);
        return muster_error_set(MUSTER_FATAL, "no memory for %u tensors",
                                first + MUSTER_ENGINE_BLOCK_ENTRIES);
    }
    engine->blocks[count] = block;
    engine->block_count++;
    for (uint32_t i = MUSTER_ENGINE_BLOCK_ENTRIES; i > 0; i--) {
        block[i - 1].serial = 1;
        block[i - 1].next_free = engine->free_entry;
        engine->free_entry = first + i - 1;
    }
    return MUSTER_OK;
}

muster_status muster_engine_take_entry_locked(struct muster_engine *engine, uint32_t *ret_index)
{
    if (engine->free_entry == UINT32_MAX) {
        TRY(add_block_locked(engine));
    }
    uint32_t index = engine->free_entry;
    engine->free_entry = muster_engine_entry(engine, index)->next_free;
    engine->used++;
    *ret_index = index;
    return MUSTER_OK;
}

void muster_engine_free_entry_locked(struct muster_engine *engine, uint32_t index)
{
    struct muster_engine_entry *entry = muster_engine_entry(engine, index);
    free(entry->splits);
    free(entry->text);
    entry->splits = NULL;
    entry->text = NULL;
    entry->detached = entry->taken = entry->running = false;
    entry->serial++;
    entry->next_free = engine->free_entry;
    atomic_store_explicit(&entry->state, MUSTER_ENTRY_FREE, memory_order_release);
    engine->free_entry = index;
    engine->used--;
}

/* Without memory the call is lost, which the log of the caller's process cannot hide: abort() as
 * for a lock that fails would be worse than a status that is missing. */
static void add_call_locked(struct muster_engine *engine, const struct muster_engine_entry *entry)
{
    struct muster_engine_calls *calls = &engine->calls;
    if (calls->count == calls->room) {
        size_t room = calls->room == 0 ? CALLS_FIRST : 2 * calls->room;
        struct muster_engine_call *more = realloc(calls->calls, room * sizeof *more);
        if (more == NULL) {
            return;
        }
        calls->calls = more;
        calls->room = room;
    }
    calls->calls[calls->count++] = (struct muster_engine_call){
        .done = entry->tensor.done,
        .data = entry->tensor.done_data,
        .status = entry->status,
        .text = entry->text != NULL ? strdup(entry->text) : NULL,
    };
}

void muster_engine_finish_entry_locked(struct muster_engine *engine, uint64_t token,
                                       muster_status status, const char *text)
{
    uint32_t index = (uint32_t)token - 1;
    struct muster_engine_entry *entry = muster_engine_entry(engine, index);
    entry->status = status;
    entry->text = status != MUSTER_OK ? strdup(text) : NULL;
    engine->counters.finished++;
    if (entry->tensor.done != NULL) {
        add_call_locked(engine, entry);
    }
    atomic_store_explicit(&entry->state, MUSTER_ENTRY_DONE, memory_order_release);
    if (entry->detached) {
        muster_engine_free_entry_locked(engine, index);
    }
}

void muster_engine_make_calls_locked(struct muster_engine *engine)
{
    while (engine->calls.count > 0) {
        struct muster_engine_calls calls = engine->calls;
        engine->calls = (struct muster_engine_calls){.count = 0};
        muster_mutex_unlock(&engine->mutex);
        for (size_t i = 0; i < calls.count; i++) {
            const struct muster_engine_call *call = &calls.calls[i];
            call->done(call->status, call->text != NULL ? call->text : "", call->data);
            free(call->text);
        }
        free(calls.calls);
        muster_mutex_lock(&engine->mutex);
    }
}
