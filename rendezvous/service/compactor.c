/* The thread that compacts, and the steps of a compaction. */
#include "rendezvous/service/compactor.h"

#include "rendezvous/service/journal.h"
#include "rendezvous/service/transactions.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

enum { PAUSE_MS = 1 }; /* between two steps, so that others get the locks */

/* Texts of rows, owned. */
struct compaction_texts {
    char **items;
    size_t count, capacity;
};

struct muster_compaction {
    struct muster_compaction *next;
    char name[MUSTER_JOB_NAME_SIZE];
    struct muster_compactor *compactor;
    uint64_t number; /* a successor of the job, of the same name, does not have it */
    uint64_t end;    /* events below it are replaced */
    struct muster_store_job before, after;
    char token[MUSTER_TOKEN_MAX_BYTES + 1], link_token[MUSTER_LINK_TOKEN_SIZE];
    struct muster_membership *membership;
    struct compaction_texts rows, records;
    uint64_t at; /* the row that comes next */
};

/* Texts --------------------------------------------------------------------------------------- */

static void clear_texts(struct compaction_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        free(texts->items[i]);
    }
    texts->count = 0;
}

/* Takes the text; NULL: no memory. */
static muster_status add_text(struct compaction_texts *texts, char *text)
{
    if (text != NULL && texts->count == texts->capacity) {
        size_t capacity = texts->capacity == 0 ? MUSTER_COMPACTION_ROWS : 2 * texts->capacity;
        char **items = reallocarray(texts->items, capacity, sizeof *items);
        if (items != NULL) {
            texts->items = items;
            texts->capacity = capacity;
        }
    }
    if (text == NULL || texts->count == texts->capacity) {
        free(text);
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    texts->items[texts->count++] = text;
    return MUSTER_OK;
}

/* Steps --------------------------------------------------------------------------------------- */

/* Lets others have the locks. False: the service is ending. */
static bool pause_between_steps(struct muster_compactor *compactor)
{
    int64_t until_ns = muster_clock_after_ms(PAUSE_MS);
    AUTO_LOCK(&compactor->mutex);
    while (!compactor->stopping &&
           muster_condition_wait(&compactor->changed, &compactor->mutex, until_ns)) {
    }
    return !compactor->stopping;
}

/* Locks the job. False: it was removed meanwhile, or the service is ending. */
static bool begin_step(struct muster_compaction *compaction,
                       struct muster_transaction *ret_transaction)
{
    struct muster_service *service = compaction->compactor->service;
    if (!pause_between_steps(compaction->compactor) ||
        !muster_transaction_begin_internal(service, compaction->name, ret_transaction)) {
        return false;
    }
    if (ret_transaction->job->compaction != compaction->number) {
        muster_transaction_end(ret_transaction);
        return false;
    }
    return true;
}

static muster_status stopped(void)
{
    return muster_error_set(MUSTER_ENDED, "the job is gone, or musterd is ending");
}

static muster_status take_row(void *user, uint64_t number, const char *text, size_t size_bytes)
{
    struct muster_compaction *compaction = user;
    if (number != compaction->at + compaction->rows.count) {
        return muster_error_set(MUSTER_INVALID, "row %" PRIu64 " is missing",
                                compaction->at + compaction->rows.count);
    }
    return add_text(&compaction->rows, strndup(text, size_bytes));
}

static muster_status refuse_damage(void *user, const struct muster_store_job *job, const char *what)
{
    (void)user;
    (void)job;
    return muster_error_set(MUSTER_INVALID, "%s", what);
}

/* Reads the next rows up to this one, and applies them with nothing locked. */
static muster_status replay_some(struct muster_compaction *compaction, bool of_snapshot,
                                 uint64_t end)
{
    struct muster_transaction transaction;
    struct muster_store *store = compaction->compactor->service->store;
    uint64_t left = end - compaction->at;
    const struct muster_store_reader reader = {
        .record = take_row, .event = take_row, .damaged = refuse_damage, .user = compaction};
    const struct muster_store_range range = {
        .of_snapshot = of_snapshot,
        .from = compaction->at,
        .max = left < MUSTER_COMPACTION_ROWS ? left : MUSTER_COMPACTION_ROWS};
    size_t count = 0;
    if (!begin_step(compaction, &transaction)) {
        return stopped();
    }
    muster_status status = store->ops->read(store, &compaction->before, range, &reader, &count);
    muster_transaction_end(&transaction);
    TRY(status);
    if (compaction->rows.count != range.max) {
        return muster_error_set(MUSTER_INVALID, "rows are missing from %" PRIu64 " on",
                                compaction->at + compaction->rows.count);
    }
    for (size_t i = 0; i < compaction->rows.count; i++) {
        const char *text = compaction->rows.items[i];
        int64_t now_ms;
        TRY(muster_journal_apply(compaction->membership, of_snapshot, text, strlen(text), &now_ms));
    }
    compaction->at += compaction->rows.count;
    clear_texts(&compaction->rows);
    return MUSTER_OK;
}

static muster_status replay(struct muster_compaction *compaction)
{
    const struct muster_store_job *before = &compaction->before;
    for (compaction->at = 0; compaction->at < before->record_count;) {
        TRY(replay_some(compaction, true, before->record_count));
    }
    for (compaction->at = before->first_event; compaction->at < compaction->end;) {
        TRY(replay_some(compaction, false, compaction->end));
    }
    return MUSTER_OK;
}

static muster_status take_record(void *user, const struct muster_snapshot_record *record)
{
    json_t *json = muster_snapshot_record_encode(record);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return add_text(user, text);
}

static muster_status stage_some(struct muster_compaction *compaction)
{
    struct muster_transaction transaction;
    struct muster_store *store = compaction->compactor->service->store;
    size_t left = compaction->records.count - compaction->at;
    size_t count = left < MUSTER_COMPACTION_ROWS ? left : MUSTER_COMPACTION_ROWS;
    if (!begin_step(compaction, &transaction)) {
        return stopped();
    }
    muster_status status = store->ops->stage(store, &compaction->after, compaction->at,
                                             &compaction->records.items[compaction->at], count);
    muster_transaction_end(&transaction);
    compaction->at += count;
    return status;
}

/* Removes what the store has of no use, of an earlier compaction that did not end too. */
static muster_status trim_all(struct muster_compaction *compaction,
                              const struct muster_store_job *job)
{
    struct muster_store *store = compaction->compactor->service->store;
    size_t count = MUSTER_COMPACTION_ROWS;
    while (count == MUSTER_COMPACTION_ROWS) {
        struct muster_transaction transaction;
        if (!begin_step(compaction, &transaction)) {
            return stopped();
        }
        muster_status status = store->ops->trim(store, job, MUSTER_COMPACTION_ROWS, &count);
        muster_transaction_end(&transaction);
        TRY(status);
    }
    return MUSTER_OK;
}

static muster_status install(struct muster_compaction *compaction)
{
    struct muster_transaction transaction;
    struct muster_store *store = compaction->compactor->service->store;
    if (!begin_step(compaction, &transaction)) {
        return stopped();
    }
    muster_status status = store->ops->install(store, &compaction->after);
    if (status == MUSTER_OK) {
        transaction.job->snapshot = compaction->after.snapshot;
        transaction.job->record_count = compaction->after.record_count;
        transaction.job->first_event = compaction->after.first_event;
    }
    muster_transaction_end(&transaction);
    return status;
}

/* A compaction -------------------------------------------------------------------------------- */

/* What the compaction replaces, and by what. */
static muster_status prepare(struct muster_compaction *compaction)
{
    struct muster_transaction transaction;
    if (!begin_step(compaction, &transaction)) {
        return stopped();
    }
    const struct muster_job *job = transaction.job;
    compaction->end = job->event_count;
    (void)snprintf(compaction->token, sizeof compaction->token, "%s", job->token);
    (void)snprintf(compaction->link_token, sizeof compaction->link_token, "%s", job->link_token);
    compaction->before = (struct muster_store_job){.name = compaction->name,
                                                   .token = compaction->token,
                                                   .link_token = compaction->link_token,
                                                   .snapshot = job->snapshot,
                                                   .record_count = job->record_count,
                                                   .first_event = job->first_event};
    compaction->after = compaction->before;
    compaction->after.snapshot++;
    compaction->after.first_event = compaction->end;
    muster_transaction_end(&transaction);
    return muster_membership_create(&compaction->membership);
}

static muster_status compact(struct muster_compaction *compaction)
{
    TRY(prepare(compaction));
    TRY(trim_all(compaction, &compaction->before));
    TRY(replay(compaction));
    TRY(muster_membership_snapshot(compaction->membership, take_record, &compaction->records));
    compaction->after.record_count = compaction->records.count;
    for (compaction->at = 0; compaction->at < compaction->records.count;) {
        TRY(stage_some(compaction));
    }
    TRY(install(compaction));
    return trim_all(compaction, &compaction->after);
}

/* Logs how it ended, and plans the next one. */
static void conclude(struct muster_compaction *compaction, muster_status status)
{
    struct muster_transaction transaction;
    uint64_t events = compaction->end - compaction->before.first_event;
    if (status == MUSTER_OK) {
        muster_log(MUSTER_LOG_INFO,
                   "job=%s a snapshot of %zu records replaces %" PRIu64 " events in the store",
                   compaction->name, compaction->records.count, events);
    } else if (status != MUSTER_ENDED) {
        muster_log(MUSTER_LOG_WARN, "job=%s %" PRIu64 " events stay in the store: %s",
                   compaction->name, events, muster_last_error());
    }
    if (!muster_transaction_begin_internal(compaction->compactor->service, compaction->name,
                                           &transaction)) {
        return;
    }
    struct muster_job *job = transaction.job;
    if (job->compaction == compaction->number) {
        job->compaction = 0;
        muster_job_plan_compaction(job, status == MUSTER_OK ? job->first_event : job->event_count);
    }
    muster_transaction_end(&transaction);
}

static void destroy(struct muster_compaction *compaction)
{
    clear_texts(&compaction->rows);
    clear_texts(&compaction->records);
    free(compaction->rows.items);
    free(compaction->records.items);
    muster_membership_destroy(compaction->membership);
    free(compaction);
}

/* The thread ---------------------------------------------------------------------------------- */

/* NULL: the thread is to end. */
static struct muster_compaction *take_next(struct muster_compactor *compactor)
{
    AUTO_LOCK(&compactor->mutex);
    while (compactor->queue == NULL && !compactor->stopping) {
        (void)muster_condition_wait(&compactor->changed, &compactor->mutex, MUSTER_NEVER);
    }
    struct muster_compaction *next = compactor->stopping ? NULL : compactor->queue;
    if (next != NULL) {
        LL_DELETE(compactor->queue, next);
    }
    return next;
}

static void *run(void *user)
{
    struct muster_compaction *compaction;
    while ((compaction = take_next(user)) != NULL) {
        conclude(compaction, compact(compaction));
        destroy(compaction);
    }
    return NULL;
}

void muster_compactor_add_if_due(struct muster_compactor *compactor, struct muster_job *job)
{
    if (job->event_count < job->compact_at || job->compaction != 0 || !compactor->runs ||
        !compactor->service->store->ops->syncs) {
        return;
    }
    struct muster_compaction *compaction = calloc(1, sizeof *compaction);
    if (compaction == NULL) {
        muster_job_plan_compaction(job, job->event_count);
        return;
    }
    (void)snprintf(compaction->name, sizeof compaction->name, "%s", job->name);
    compaction->compactor = compactor;
    AUTO_LOCK(&compactor->mutex);
    compaction->number = ++compactor->numbers;
    job->compaction = compaction->number;
    LL_APPEND(compactor->queue, compaction);
    (void)pthread_cond_signal(&compactor->changed);
}

void muster_compactor_init(struct muster_compactor *compactor, struct muster_service *service)
{
    compactor->service = service;
    muster_mutex_init(&compactor->mutex);
    muster_condition_init(&compactor->changed);
}

muster_status muster_compactor_start(struct muster_compactor *compactor)
{
    int failed = muster_thread_start(&compactor->thread, run, compactor);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
    }
    compactor->runs = true;
    return MUSTER_OK;
}

void muster_compactor_finish(struct muster_compactor *compactor)
{
    struct muster_compaction *compaction;
    struct muster_compaction *next;
    if (compactor->runs) {
        muster_mutex_lock(&compactor->mutex);
        compactor->stopping = true;
        (void)pthread_cond_signal(&compactor->changed);
        muster_mutex_unlock(&compactor->mutex);
        (void)pthread_join(compactor->thread, NULL);
    }
    LL_FOREACH_SAFE(compactor->queue, compaction, next)
    {
        destroy(compaction);
    }
    (void)pthread_cond_destroy(&compactor->changed);
    (void)pthread_mutex_destroy(&compactor->mutex);
}
