/* An engine: made, submitted to, ended. */
#include "worker/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/engine/engine_parts.h"
#include "worker/engine/engine_trace.h"
#include "worker/engine/tensor_check.h"

/* Beginning and end ---------------------------------------------------------------------------- */

static void destroy(struct muster_engine *engine)
{
    for (uint32_t b = 0; b < engine->block_count; b++) {
        for (uint32_t i = 0; i < MUSTER_ENGINE_BLOCK_ENTRIES; i++) {
            free(engine->blocks[b][i].text);
            free(engine->blocks[b][i].splits);
        }
        free(engine->blocks[b]);
    }
    free((void *)engine->blocks);
    free(engine->calls.calls);
    free(engine->ins);
    free(engine->outs);
    free(engine->tokens);
    free((void *)engine->entries);
    free(engine->pack);
    muster_agreement_destroy(engine->agreement);
    (void)pthread_cond_destroy(&engine->changed);
    (void)pthread_cond_destroy(&engine->thread_due);
    (void)pthread_mutex_destroy(&engine->mutex);
    free(engine);
}

static muster_status start(struct muster_engine *engine)
{
    struct muster_agreement_options options =
        muster_agreement_defaults(engine->options.rank, engine->options.ranks);
    options.blob_bytes = MUSTER_ENGINE_BLOB_BYTES;
    TRY(muster_agreement_create(&options, &engine->agreement));
    engine->pack = malloc((size_t)2 * MUSTER_ENGINE_PACK_BYTES);
    if (engine->pack == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for an engine");
    }
    TRY(muster_engine_table_add(engine));
    int error = muster_thread_start(&engine->thread, muster_engine_thread, engine);
    if (error != 0) {
        muster_engine_table_remove(engine);
        return muster_error_set(MUSTER_FATAL, "the engine's thread: %s", strerror(error));
    }
    return MUSTER_OK;
}

muster_status muster_engine_create(const struct muster_engine_options *options,
                                   struct muster_engine **ret_engine)
{
    struct muster_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for an engine");
    }
    engine->options = *options;
    engine->free_entry = UINT32_MAX;
    muster_mutex_init(&engine->mutex);
    muster_condition_init(&engine->changed);
    muster_condition_init(&engine->thread_due);
    muster_status status = start(engine);
    if (status != MUSTER_OK) {
        destroy(engine);
        return status;
    }
    *ret_engine = engine;
    return MUSTER_OK;
}

void muster_engine_end(struct muster_engine *engine, muster_status status, const char *text)
{
    AUTO_LOCK(&engine->mutex);
    muster_engine_end_locked(engine, status, text);
}

void muster_engine_stop(struct muster_engine *engine, muster_status status, const char *text)
{
    muster_mutex_lock(&engine->mutex);
    bool running = !engine->stopping;
    muster_engine_end_locked(engine, status, text);
    engine->stopping = true;
    (void)pthread_cond_broadcast(&engine->thread_due);
    while (engine->driving) {
        engine->waiters++;
        (void)pthread_cond_wait(&engine->changed, &engine->mutex);
        engine->waiters--;
    }
    muster_mutex_unlock(&engine->mutex);
    if (running) {
        (void)pthread_join(engine->thread, NULL);
    }
    muster_mutex_lock(&engine->mutex);
    muster_engine_make_calls_locked(engine);
    muster_mutex_unlock(&engine->mutex);
}

bool muster_engine_wait_all(struct muster_engine *engine, int64_t until_ns)
{
    AUTO_LOCK(&engine->mutex);
    while (muster_agreement_pending(engine->agreement) > 0 && engine->ended == MUSTER_OK) {
        engine->thread_wanted = true;
        muster_engine_wake_locked(engine);
        engine->waiters++;
        bool late = !muster_condition_wait(&engine->changed, &engine->mutex, until_ns);
        engine->waiters--;
        if (late) {
            return muster_agreement_pending(engine->agreement) == 0;
        }
    }
    return true;
}

void muster_engine_destroy(struct muster_engine *engine)
{
    if (engine != NULL) {
        muster_engine_table_remove(engine);
        destroy(engine);
    }
}

bool muster_engine_has_handles(struct muster_engine *engine)
{
    AUTO_LOCK(&engine->mutex);
    return engine->used > 0;
}

bool muster_engine_has_ended(struct muster_engine *engine)
{
    AUTO_LOCK(&engine->mutex);
    return engine->ended != MUSTER_OK;
}

void muster_engine_read_counters(struct muster_engine *engine, muster_engine_counters *ret)
{
    AUTO_LOCK(&engine->mutex);
    struct muster_agreement_counts counts = muster_agreement_count(engine->agreement);
    size_t size = ret->size;
    *ret = engine->counters;
    ret->size = size;
    ret->descriptions = counts.descriptions;
    ret->deviations = counts.deviations;
    ret->orders = counts.orders;
}

/* Submitting ----------------------------------------------------------------------------------- */

static muster_status copy_splits(struct muster_engine_entry *entry, uint32_t ranks)
{
    if (entry->tensor.kind != MUSTER_TENSOR_ALLTOALL) {
        return MUSTER_OK;
    }
    entry->splits = calloc(ranks, sizeof *entry->splits);
    if (entry->splits == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u splits", ranks);
    }
    memcpy(entry->splits, entry->tensor.splits, ranks * sizeof *entry->splits);
    return MUSTER_OK;
}

static muster_status submit_locked(struct muster_engine *engine, const muster_tensor *tensor,
                                   const struct muster_description *description, bool detached,
                                   uint32_t *ret_index)
{
    uint32_t index = 0;
    TRY(muster_engine_take_entry_locked(engine, &index));
    struct muster_engine_entry *entry = muster_engine_entry(engine, index);
    entry->tensor = *tensor;
    entry->status = MUSTER_OK;
    entry->detached = detached;
    muster_engine_trace_submitted_locked(engine, entry);
    muster_status status = copy_splits(entry, engine->options.ranks);
    if (status == MUSTER_OK) {
        status = muster_agreement_submit(engine->agreement, tensor->name, description,
                                         (uint64_t)index + 1, muster_clock_ns());
    }
    if (status != MUSTER_OK) {
        muster_engine_free_entry_locked(engine, index);
        return status;
    }
    atomic_store_explicit(&entry->state, MUSTER_ENTRY_PENDING, memory_order_release);
    engine->counters.submitted++;
    *ret_index = index;
    return MUSTER_OK;
}

/* Those that were submitted before one of the same group that failed. */
static void withdraw_locked(struct muster_engine *engine, const muster_tensor *tensors,
                            const muster_operation *operations, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        muster_agreement_withdraw(engine->agreement, tensors[i].name);
        muster_engine_free_entry_locked(engine, (uint32_t)operations[i] & 0xfffff);
        engine->counters.submitted--;
    }
}

static muster_status check_locked(const struct muster_engine *engine)
{
    return engine->ended == MUSTER_OK ? MUSTER_OK
                                      : muster_error_set(engine->ended, "%s", engine->ended_text);
}

muster_status muster_engine_submit(struct muster_engine *engine, const muster_tensor *tensors,
                                   size_t count, uint32_t flags, muster_operation *ret_operations)
{
    muster_operation single = 0;
    AUTO_FREE muster_operation *several = NULL;
    muster_operation *handles = &single;
    if (count > 1) {
        several = calloc(count, sizeof *several);
        handles = several;
        if (several == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for a group of %zu tensors", count);
        }
    }
    uint64_t group =
        count > 1 || flags != 0 ? muster_tensor_group_number(tensors, count, flags) : 0;
    AUTO_LOCK(&engine->mutex);
    TRY(check_locked(engine));
    for (size_t i = 0; i < count; i++) {
        uint32_t index = 0;
        struct muster_description description =
            muster_tensor_describe(&tensors[i], engine->options.reproducible);
        description.group = group;
        description.flags |= (flags & MUSTER_GROUP_ALONE) != 0 ? MUSTER_TENSOR_ALONE : 0;
        muster_status status =
            submit_locked(engine, &tensors[i], &description, ret_operations == NULL, &index);
        if (status != MUSTER_OK) {
            withdraw_locked(engine, tensors, handles, i);
            return status;
        }
        handles[i] = muster_engine_handle(engine, index);
    }
    if (group != 0) {
        muster_agreement_close_group(engine->agreement, group);
    }
    if (ret_operations != NULL) {
        memcpy(ret_operations, handles, count * sizeof *handles);
    }
    muster_engine_wake_locked(engine);
    return MUSTER_OK;
}
