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
    const struct muster_store_job stored = {.name = job->name,
                                            .token = job->token,
                                            .link_token = job->link_token,
                                            .first_event = job->first_event};
    TRY(store->ops->append(store, &stored, job->event_count, text));
    job->event_count++;
    return MUSTER_OK;
}

/* Loading ------------------------------------------------------------------------------------- */

struct journal_reader {
    struct muster_service *service;
    struct muster_job *job; /* the one that is being read; NULL: none, or it is damaged */
    uint64_t records;       /* of its snapshot, so far */
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

/* All records of its snapshot have been read: there must be as many as it has, and they must be a
 * membership. */
static muster_status end_snapshot(struct journal_reader *reader)
{
    const struct muster_job *job = reader->job;
    if (reader->records != job->record_count) {
        return give_up_job(reader, "the end of its snapshot in the store: missing");
    }
    return job->record_count == 0 || muster_membership_check_restored(job->membership) == MUSTER_OK
               ? MUSTER_OK
               : refuse_row(reader, MUSTER_INVALID, "its snapshot");
}

/* The job that has been read must have its first event, or its whole snapshot in place of that. */
static muster_status end_job(struct journal_reader *reader)
{
    struct muster_job *job = reader->job;
    if (job == NULL) {
        return MUSTER_OK;
    }
    if (job->event_count == 0) {
        return give_up_job(reader, "event 0 in the store: missing");
    }
    TRY(end_snapshot(reader));
    if (reader->job != NULL) {
        muster_job_plan_compaction(job, job->first_event);
    }
    return MUSTER_OK;
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
    job->snapshot = stored->snapshot;
    job->record_count = stored->record_count;
    job->first_event = stored->first_event;
    job->event_count = stored->first_event;
    reader->records = 0;
    AUTO_LOCK(&reader->service->table_mutex);
    TRY(muster_jobs_add_locked(reader->service, job));
    reader->job = job;
    return MUSTER_OK;
}

static muster_status apply_event(struct muster_membership *membership, const json_t *json,
                                 int64_t *ret_now_ms)
{
    struct muster_event event;
    struct muster_actions actions = {0};
    TRY(muster_event_decode(json, &event));
    TRY(muster_membership_apply(membership, &event, &actions));
    muster_actions_finish(&actions);
    *ret_now_ms = event.now_ms;
    return MUSTER_OK;
}

static muster_status restore_record(struct muster_membership *membership, const json_t *json,
                                    int64_t *ret_now_ms)
{
    struct muster_snapshot_record record;
    TRY(muster_snapshot_record_decode(json, &record));
    TRY(muster_membership_restore(membership, &record));
    *ret_now_ms = record.kind == MUSTER_SNAPSHOT_JOB ? record.now_ms : -1;
    return MUSTER_OK;
}

muster_status muster_journal_apply(struct muster_membership *membership, bool of_snapshot,
                                   const char *text, size_t size_bytes, int64_t *ret_now_ms)
{
    json_t *json = NULL;
    muster_status status;
    TRY(muster_json_parse(text, size_bytes, &json));
    if (muster_snapshot_record_is(json) != of_snapshot) {
        status =
            muster_error_set(MUSTER_INVALID, of_snapshot ? "an event, and no record"
                                                         : "a snapshot's record, and no event");
    } else {
        status = of_snapshot ? restore_record(membership, json, ret_now_ms)
                             : apply_event(membership, json, ret_now_ms);
    }
    json_decref(json);
    return status;
}

/* The job's clock continues from its last event. */
static muster_status apply_to_job(struct muster_job *job, bool of_snapshot, const char *text,
                                  size_t size_bytes)
{
    int64_t now_ms;
    TRY(muster_journal_apply(job->membership, of_snapshot, text, size_bytes, &now_ms));
    if (now_ms >= 0) {
        job->origin_ms = muster_clock_ms() - now_ms;
    }
    return MUSTER_OK;
}

static muster_status load_row(struct journal_reader *reader, bool of_snapshot, uint64_t wanted,
                              uint64_t number, const char *text, size_t size_bytes)
{
    muster_status status = number == wanted
                               ? apply_to_job(reader->job, of_snapshot, text, size_bytes)
                               : muster_error_set(MUSTER_INVALID, "missing");
    if (status != MUSTER_OK) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s %" PRIu64, of_snapshot ? "snapshot record" : "event",
                       wanted);
        return refuse_row(reader, status, name);
    }
    return MUSTER_OK;
}

static muster_status load_record(void *user, uint64_t index, const char *text, size_t size_bytes)
{
    struct journal_reader *reader = user;
    if (reader->job == NULL) {
        return MUSTER_OK;
    }
    return load_row(reader, true, reader->records++, index, text, size_bytes);
}

static muster_status load_event(void *user, uint64_t sequence, const char *text, size_t size_bytes)
{
    struct journal_reader *reader = user;
    if (reader->job != NULL && reader->job->event_count == reader->job->first_event) {
        TRY(end_snapshot(reader));
    }
    struct muster_job *job = reader->job;
    return job == NULL ? MUSTER_OK
                       : load_row(reader, false, job->event_count++, sequence, text, size_bytes);
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
                                               .record = load_record,
                                               .event = load_event,
                                               .value = load_value,
                                               .damaged = damaged,
                                               .user = &user};
    TRY(service->store->ops->load(service->store, &reader));
    return end_job(&user);
}
