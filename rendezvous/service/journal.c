/* Events and snapshots as JSON texts, into the store and out of it. */
#include "rendezvous/service/journal.h"

#include "rendezvous/service/jobs.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Takes the JSON; NULL: no memory. */
static char *encode_text(json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

muster_status muster_journal_append(struct muster_store *store, struct muster_job *job,
                                    const struct muster_event *event)
{
    AUTO_FREE char *text = encode_text(muster_event_encode(event));
    if (text == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    const struct muster_store_job stored = {
        .name = job->name, .token = job->token, .link_token = job->link_token};
    TRY(store->ops->append(store, &stored, job->event_count, text));
    job->event_count++;
    return MUSTER_OK;
}

/* Compaction ---------------------------------------------------------------------------------- */

struct snapshot_texts {
    char **items;
    size_t count, capacity;
};

static void finish_texts(struct snapshot_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        free(texts->items[i]);
    }
    free(texts->items);
}

static muster_status add_text(void *user, const struct muster_snapshot_record *record)
{
    struct snapshot_texts *texts = user;
    if (texts->count == texts->capacity) {
        size_t capacity = texts->capacity == 0 ? 64 : 2 * texts->capacity;
        char **items = reallocarray(texts->items, capacity, sizeof *items);
        if (items == NULL) {
            return muster_error_set(MUSTER_RETRY, "no memory");
        }
        texts->items = items;
        texts->capacity = capacity;
    }
    char *text = encode_text(muster_snapshot_record_encode(record));
    if (text == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    texts->items[texts->count++] = text;
    return MUSTER_OK;
}

static void plan_compaction(struct muster_job *job, uint64_t records)
{
    uint64_t more = records > MUSTER_EVENTS_TO_COMPACT ? records : MUSTER_EVENTS_TO_COMPACT;
    job->compact_at = job->event_count + more;
}

void muster_journal_compact_if_due(struct muster_store *store, struct muster_job *job)
{
    if (job->event_count < job->compact_at) {
        return;
    }
    uint64_t replaced = job->event_count;
    struct snapshot_texts texts = {0};
    muster_status status = muster_membership_snapshot(job->membership, add_text, &texts);
    if (status == MUSTER_OK) {
        status = store->ops->replace(store, job->name, texts.items, texts.count);
    }
    if (status == MUSTER_OK) {
        job->event_count = texts.count;
        muster_log(MUSTER_LOG_INFO,
                   "job=%s a snapshot of %zu records replaces %" PRIu64 " events in the store",
                   job->name, texts.count, replaced);
    } else {
        muster_log(MUSTER_LOG_WARN, "job=%s %" PRIu64 " events stay in the store: %s", job->name,
                   replaced, muster_last_error());
    }
    plan_compaction(job, texts.count);
    finish_texts(&texts);
}

/* Loading ------------------------------------------------------------------------------------- */

struct journal_reader {
    struct muster_service *service;
    struct muster_job *job; /* the one that is being read */
    bool restoring;         /* the last text of it was a record of a snapshot */
};

static muster_status finish_snapshot(struct journal_reader *reader)
{
    bool restored = reader->restoring;
    reader->restoring = false;
    if (restored && muster_membership_check_restored(reader->job->membership) != MUSTER_OK) {
        return muster_error_prefix(MUSTER_INVALID, "job %s: its snapshot", reader->job->name);
    }
    return MUSTER_OK;
}

static muster_status load_job(void *user, const struct muster_store_job *stored)
{
    struct journal_reader *reader = user;
    TRY(finish_snapshot(reader));
    if (!muster_job_name_valid(stored->name) || strlen(stored->token) > MUSTER_TOKEN_MAX_BYTES ||
        strlen(stored->link_token) != MUSTER_LINK_TOKEN_SIZE - 1) {
        return muster_error_set(MUSTER_INVALID, "job \"%.80s\": not as a musterd writes it",
                                stored->name);
    }
    struct muster_job *job;
    TRY(muster_job_create(stored->name, &job));
    (void)snprintf(job->token, sizeof job->token, "%s", stored->token);
    (void)snprintf(job->link_token, sizeof job->link_token, "%s", stored->link_token);
    AUTO_LOCK(&reader->service->table_mutex);
    TRY(muster_jobs_add_locked(reader->service, job));
    reader->job = job;
    return MUSTER_OK;
}

/* Applies a stored event. The job's clock goes on from its last event. */
static muster_status replay_event(struct muster_job *job, const json_t *json)
{
    struct muster_event event;
    struct muster_actions actions = {0};
    TRY(muster_event_decode(json, &event));
    TRY(muster_membership_apply(job->membership, &event, &actions));
    muster_actions_finish(&actions);
    job->origin_ms = muster_clock_ms() - event.now_ms;
    return MUSTER_OK;
}

static muster_status restore_record(struct muster_job *job, const json_t *json)
{
    struct muster_snapshot_record record;
    TRY(muster_snapshot_record_decode(json, &record));
    if ((record.kind == MUSTER_SNAPSHOT_JOB) != (job->event_count == 0)) {
        return muster_error_set(MUSTER_INVALID,
                                "a snapshot begins with the record of the job, which occurs once");
    }
    TRY(muster_membership_restore(job->membership, &record));
    if (record.kind == MUSTER_SNAPSHOT_JOB) {
        job->origin_ms = muster_clock_ms() - record.now_ms;
    }
    plan_compaction(job, job->event_count + 1);
    return MUSTER_OK;
}

static muster_status load_event(void *user, uint64_t sequence, const char *text, size_t size_bytes)
{
    struct journal_reader *reader = user;
    struct muster_job *job = reader->job;
    json_t *json = NULL;
    muster_status status = MUSTER_OK;
    if (sequence != job->event_count) {
        status = muster_error_set(MUSTER_INVALID, "missing");
    }
    if (status == MUSTER_OK) {
        status = muster_json_parse(text, size_bytes, &json);
    }
    bool is_record = status == MUSTER_OK && muster_snapshot_record_is(json);
    if (status == MUSTER_OK && !is_record) {
        status = finish_snapshot(reader);
    }
    if (status == MUSTER_OK) {
        status = is_record ? restore_record(job, json) : replay_event(job, json);
        reader->restoring = is_record;
    }
    json_decref(json);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_INVALID, "job %s: event %" PRIu64, job->name,
                                   job->event_count);
    }
    job->event_count++;
    return MUSTER_OK;
}

static muster_status load_value(void *user, uint64_t generation, const char *key, const void *value,
                                size_t size_bytes)
{
    struct muster_job *job = ((struct journal_reader *)user)->job;
    muster_status status = muster_values_load(&job->values, generation, key, value, size_bytes);
    return status == MUSTER_OK ? status : muster_error_prefix(status, "job %s", job->name);
}

muster_status muster_journal_load(struct muster_service *service)
{
    struct journal_reader user = {.service = service};
    const struct muster_store_reader reader = {
        .job = load_job, .event = load_event, .value = load_value, .user = &user};
    TRY(service->store->ops->load(service->store, &reader));
    return finish_snapshot(&user);
}
