/* Events and snapshots as JSON texts, into the store and out of it. */
#include "rendezvous/service/journal.h"

#include "rendezvous/service/damaged_jobs.h"
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
    struct muster_job *job; /* the one that is being read; NULL: none, or it is damaged */
};

/* Takes the job that is being read out of the table, and remembers it as damaged. */
static muster_status give_up_job(struct journal_reader *reader, const char *what)
{
    struct muster_job *job = TAKE(reader->job);
    const struct muster_store_job stored = {.name = job->name, .token = job->token};
    muster_status status = muster_damaged_jobs_add(reader->service, &stored, what);
    job->hold_count++; /* by this function; nobody else has the job yet */
    muster_jobs_release(reader->service, job, true);
    return status;
}

static muster_status damaged(void *user, const struct muster_store_job *stored, const char *what)
{
    struct journal_reader *reader = user;
    return reader->job != NULL && strcmp(reader->job->name, stored->name) == 0
               ? give_up_job(reader, what)
               : muster_damaged_jobs_add(reader->service, stored, what);
}

/* A row has its checksum, and yet no server can have written it here. Memory that is out is no
 * damage. */
static muster_status refuse_row(struct journal_reader *reader, muster_status status,
                                const char *name)
{
    char what[MUSTER_ERROR_MAX];
    (void)snprintf(what, sizeof what, "%s in the store: %s", name, muster_last_error());
    return status == MUSTER_FATAL ? status : give_up_job(reader, what);
}

/* The job that has been read must have an event: it was stored with its first. */
static muster_status end_job(struct journal_reader *reader)
{
    if (reader->job == NULL || reader->job->event_count > 0) {
        return MUSTER_OK;
    }
    return give_up_job(reader, "event 0 in the store: missing");
}

static muster_status load_job(void *user, const struct muster_store_job *stored)
{
    struct journal_reader *reader = user;
    TRY(end_job(reader));
    reader->job = NULL;
    if (!muster_job_name_valid(stored->name) || strlen(stored->token) > MUSTER_TOKEN_MAX_BYTES ||
        strlen(stored->link_token) != MUSTER_LINK_TOKEN_SIZE - 1) {
        return muster_damaged_jobs_add(reader->service, stored,
                                       "its row in the store is not as a musterd writes it");
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

static muster_status apply_text(struct muster_job *job, const char *text, size_t size_bytes)
{
    json_t *json = NULL;
    TRY(muster_json_parse(text, size_bytes, &json));
    muster_status status =
        muster_snapshot_record_is(json) ? restore_record(job, json) : replay_event(job, json);
    json_decref(json);
    return status;
}

static muster_status load_event(void *user, uint64_t sequence, const char *text, size_t size_bytes)
{
    struct journal_reader *reader = user;
    if (reader->job == NULL) {
        return MUSTER_OK;
    }
    muster_status status = sequence == reader->job->event_count
                               ? apply_text(reader->job, text, size_bytes)
                               : muster_error_set(MUSTER_INVALID, "missing");
    if (status != MUSTER_OK) {
        char name[64];
        (void)snprintf(name, sizeof name, "event %" PRIu64, reader->job->event_count);
        return refuse_row(reader, status, name);
    }
    reader->job->event_count++;
    return MUSTER_OK;
}

static muster_status load_value(void *user, uint64_t generation, const char *key, const void *value,
                                size_t size_bytes)
{
    struct journal_reader *reader = user;
    if (reader->job == NULL) {
        return MUSTER_OK;
    }
    muster_status status =
        muster_values_load(&reader->job->values, generation, key, value, size_bytes);
    return status == MUSTER_OK ? status : refuse_row(reader, status, "a value");
}

muster_status muster_journal_load(struct muster_service *service)
{
    struct journal_reader user = {.service = service};
    const struct muster_store_reader reader = {.job = load_job,
                                               .event = load_event,
                                               .value = load_value,
                                               .damaged = damaged,
                                               .user = &user};
    TRY(service->store->ops->load(service->store, &reader));
    return end_job(&user);
}
