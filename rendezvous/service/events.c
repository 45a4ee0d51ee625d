/* How events get into a job: check, store, apply; and back out of the store. */
#include "elastic/membership/liveness.h"
#include "rendezvous/service/jobs.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    NS_PER_MS = 1000000,
    STORE_RETRY_MS = 1000, /* between attempts that the store does not take */
    CHECKS_PER_LEASE = 4,  /* so that being away for half a lease cannot stay unseen */
};

void muster_job_heartbeat(struct muster_job *job, const char *member, uint64_t progress)
{
    muster_membership_heartbeat(job->membership, member, progress, muster_job_now_ms(job));
}

/* Takes the JSON; NULL: no memory. */
static char *write_text(json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static muster_status store_event(struct muster_transaction *transaction,
                                 const struct muster_event *event)
{
    struct muster_job *job = transaction->job;
    struct muster_store *store = transaction->service->store;
    AUTO_FREE char *text = write_text(muster_event_encode(event));
    if (text == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    const struct muster_store_job kept = {
        .name = job->name, .token = job->token, .link_token = job->link_token};
    TRY(store->ops->append(store, &kept, job->event_count, text));
    job->event_count++;
    return MUSTER_OK;
}

/* Compaction ---------------------------------------------------------------------------------- */

struct texts {
    char **items;
    size_t count, capacity;
};

static void finish_texts(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        free(texts->items[i]);
    }
    free(texts->items);
}

static muster_status add_text(void *user, const struct muster_snapshot_record *record)
{
    struct texts *texts = user;
    if (texts->count == texts->capacity) {
        size_t capacity = texts->capacity == 0 ? 64 : 2 * texts->capacity;
        char **items = reallocarray(texts->items, capacity, sizeof *items);
        if (items == NULL) {
            return muster_error_set(MUSTER_RETRY, "no memory");
        }
        texts->items = items;
        texts->capacity = capacity;
    }
    char *text = write_text(muster_snapshot_record_encode(record));
    if (text == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    texts->items[texts->count++] = text;
    return MUSTER_OK;
}

/* So seldom that it costs little beside the events. */
static void plan_compaction(struct muster_job *job, uint64_t records)
{
    uint64_t more = records > MUSTER_EVENTS_TO_COMPACT ? records : MUSTER_EVENTS_TO_COMPACT;
    job->compact_at = job->event_count + more;
}

/* A job may live for ever, so its events must not: what the membership knows takes their place. */
static void compact_if_due(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    struct muster_store *store = transaction->service->store;
    if (job->event_count < job->compact_at) {
        return;
    }
    uint64_t replaced = job->event_count;
    struct texts texts = {0};
    muster_status status = muster_membership_snapshot(job->membership, add_text, &texts);
    if (status == MUSTER_OK) {
        status = store->ops->replace(store, job->name, texts.items, texts.count);
    }
    if (status == MUSTER_OK) {
        job->event_count = texts.count;
        muster_log(MUSTER_LOG_INFO, "job=%s %" PRIu64 " events became %zu records", job->name,
                   replaced, texts.count);
    } else {
        muster_log(MUSTER_LOG_WARN, "job=%s keeps %" PRIu64 " events: %s", job->name, replaced,
                   muster_last_error());
    }
    plan_compaction(job, texts.count);
    finish_texts(&texts);
}

/* What people see of it ----------------------------------------------------------------------- */

static void log_event(const struct muster_job *job, const struct muster_event *event)
{
    switch (event->kind) {
    case MUSTER_EVENT_JOIN:
        muster_log(MUSTER_LOG_INFO, "job=%s member=%s host=%s pid=%u joins, state version %" PRIu64,
                   job->name, event->info.id, event->info.host, event->info.pid,
                   event->info.state_version);
        break;
    case MUSTER_EVENT_REPORT:
        muster_log(MUSTER_LOG_INFO, "job=%s member=%s reports member %s: %s", job->name,
                   event->member, event->suspect, event->why);
        break;
    case MUSTER_EVENT_DISCONNECT:
        muster_log(MUSTER_LOG_INFO, "job=%s member=%s its connection closed", job->name,
                   event->member);
        break;
    case MUSTER_EVENT_RESIZE:
        muster_log(MUSTER_LOG_INFO, "job=%s resize to %u", job->name, event->target_size);
        break;
    default: /* seen in what comes of it */
        break;
    }
}

static void log_gone(const struct muster_job *job, const char *member)
{
    struct muster_departure_record record;
    struct muster_departure_record found = {.why = "?"};
    for (uint32_t i = 0; muster_membership_departure_record(job->membership, i, &record); i++) {
        if (strcmp(record.member, member) == 0) {
            found = record;
        }
    }
    muster_log(MUSTER_LOG_INFO, "job=%s member=%s gone: %s", job->name, member, found.why);
}

static void log_phase(const struct muster_job *job)
{
    static const char *const names[] = {"?", "forming", "running", "ended"};
    struct muster_generation_view generation = muster_membership_generation(job->membership);
    muster_log(MUSTER_LOG_INFO, "job=%s generation=%" PRIu64 " size=%u hosts=%u %s: %s", job->name,
               generation.number, generation.size, generation.hosts,
               names[muster_membership_phase(job->membership)],
               muster_membership_why(job->membership));
}

/* What comes of it ---------------------------------------------------------------------------- */

/* When the membership wants to be asked again. */
static int64_t next_ns(const struct muster_job *job)
{
    int64_t next_ms = muster_membership_next_ms(job->membership);
    if (next_ms > INT64_MAX / NS_PER_MS - job->origin_ms) {
        return MUSTER_NEVER;
    }
    int64_t clock_ms = next_ms < 0 ? job->origin_ms : next_ms + job->origin_ms;
    return clock_ms * NS_PER_MS;
}

/* Values of generations that are over would only pile up. */
static void drop_old_values(struct muster_transaction *transaction)
{
    struct muster_store *store = transaction->service->store;
    struct muster_job *job = transaction->job;
    uint64_t number = muster_membership_generation(job->membership).number;
    if (muster_values_drop(&job->values, number) > 0 &&
        store->ops->drop_values(store, job->name, number) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "job=%s values of old generations stay in the store: %s",
                   job->name, muster_last_error());
    }
}

static void carry_out(struct muster_transaction *transaction, const struct muster_event *event,
                      const struct muster_actions *actions, enum muster_job_phase phase_before,
                      uint64_t generation_before)
{
    struct muster_job *job = transaction->job;
    enum muster_job_phase phase = muster_membership_phase(job->membership);
    log_event(job, event);
    for (size_t i = 0; i < actions->count; i++) {
        if (actions->items[i].kind == MUSTER_ACTION_GONE) {
            log_gone(job, actions->items[i].member);
        }
    }
    bool formed = muster_membership_generation(job->membership).number != generation_before;
    if (formed || phase != phase_before) {
        log_phase(job);
    }
    if (formed) {
        drop_old_values(transaction);
    }
    job->ended_ns = phase == MUSTER_JOB_ENDED ? muster_clock_ns() : 0;
    if (job->ended_ns != 0) {
        muster_job_schedule(transaction->service, job, job->ended_ns);
    }
    if (actions->count > 0) {
        transaction->service->respond_ready(transaction);
    }
}

static muster_status accept_one(struct muster_transaction *transaction,
                                const struct muster_event *event)
{
    struct muster_job *job = transaction->job;
    TRY(muster_membership_check(job->membership, event));
    enum muster_job_phase phase = muster_membership_phase(job->membership);
    uint64_t generation = muster_membership_generation(job->membership).number;
    TRY(store_event(transaction, event));
    struct muster_actions actions = {0};
    muster_status status = muster_membership_apply(job->membership, event, &actions);
    /* It is stored and cannot be taken back: only a server that starts anew has both alike. */
    assert(status == MUSTER_OK);
    (void)status;
    carry_out(transaction, event, &actions, phase, generation);
    muster_actions_finish(&actions);
    compact_if_due(transaction);
    return MUSTER_OK;
}

void muster_job_check_lateness(struct muster_job *job)
{
    int64_t now_ns = muster_clock_ns();
    uint32_t lease_ms = muster_membership_settings(job->membership).lease_ms;
    if (muster_membership_phase(job->membership) != MUSTER_JOB_ENDED &&
        muster_liveness_check_was_late(job->next_ns / NS_PER_MS, now_ns / NS_PER_MS, lease_ms)) {
        muster_log(MUSTER_LOG_WARN, "job=%s looked after %" PRId64 " ms late: fresh leases for all",
                   job->name, (now_ns - job->next_ns) / NS_PER_MS);
        job->restart_pending = true;
        job->next_ns = now_ns; /* told once */
    }
}

/* The requests of those who are alive may lie unread behind a clock that was stopped. */
static muster_status restart_if_pending(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    if (!job->restart_pending) {
        return MUSTER_OK;
    }
    if (muster_membership_phase(job->membership) != MUSTER_JOB_ENDED) {
        struct muster_event event = {.kind = MUSTER_EVENT_RESTART,
                                     .now_ms = muster_job_now_ms(job)};
        TRY(accept_one(transaction, &event));
    }
    job->restart_pending = false;
    return MUSTER_OK;
}

static void retry_later(struct muster_transaction *transaction)
{
    muster_log(MUSTER_LOG_ERROR, "job=%s cannot go on: %s", transaction->job->name,
               muster_last_error());
    muster_job_schedule(transaction->service, transaction->job,
                        muster_clock_after_ms(STORE_RETRY_MS));
}

static void schedule_next_check(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    int64_t due_ns = next_ns(job);
    if (due_ns != MUSTER_NEVER) {
        uint32_t lease_ms = muster_membership_settings(job->membership).lease_ms;
        int64_t soon_ns = muster_clock_after_ms(lease_ms / CHECKS_PER_LEASE);
        muster_job_schedule(transaction->service, job, due_ns < soon_ns ? due_ns : soon_ns);
    }
}

void muster_job_apply_due(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    if (restart_if_pending(transaction) != MUSTER_OK) {
        retry_later(transaction);
        return;
    }
    struct muster_event event;
    /* Each round declares one member dead or forms a generation. */
    for (int rounds = 0; rounds < 2 * MUSTER_MEMBERS_MAX &&
                         muster_membership_due(job->membership, muster_job_now_ms(job), &event);
         rounds++) {
        if (accept_one(transaction, &event) != MUSTER_OK) {
            retry_later(transaction);
            return;
        }
    }
    schedule_next_check(transaction);
}

muster_status muster_job_accept(struct muster_transaction *transaction, struct muster_event *event)
{
    muster_job_check_lateness(transaction->job);
    TRY(restart_if_pending(transaction));
    event->now_ms = muster_job_now_ms(transaction->job);
    TRY(accept_one(transaction, event));
    muster_job_apply_due(transaction);
    return MUSTER_OK;
}

/* Replay -------------------------------------------------------------------------------------- */

struct loading {
    struct muster_service *service;
    struct muster_job *job;
};

static muster_status load_job(void *user, const struct muster_store_job *kept)
{
    struct loading *loading = user;
    if (!muster_job_name_valid(kept->name) || strlen(kept->token) > MUSTER_TOKEN_MAX_BYTES ||
        strlen(kept->link_token) != MUSTER_LINK_TOKEN_SIZE - 1) {
        return muster_error_set(MUSTER_INVALID, "job \"%.80s\": not as a musterd writes it",
                                kept->name);
    }
    struct muster_job *job;
    TRY(muster_job_create(kept->name, &job));
    AUTO_LOCK(&loading->service->table_mutex);
    if (!muster_jobs_add_locked(loading->service, job)) {
        muster_job_destroy(job);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    (void)snprintf(job->token, sizeof job->token, "%s", kept->token);
    (void)snprintf(job->link_token, sizeof job->link_token, "%s", kept->link_token);
    loading->job = job;
    return MUSTER_OK;
}

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

static muster_status restore(struct muster_job *job, const json_t *json)
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
    return MUSTER_OK;
}

static muster_status replay(struct muster_job *job, const json_t *json)
{
    if (!muster_snapshot_record_is(json)) {
        return replay_event(job, json);
    }
    TRY(restore(job, json));
    plan_compaction(job, job->event_count + 1);
    return MUSTER_OK;
}

static muster_status load_event(void *user, uint64_t sequence, const char *text, size_t size_bytes)
{
    struct muster_job *job = ((struct loading *)user)->job;
    json_t *json = NULL;
    muster_status status = MUSTER_OK;
    if (sequence != job->event_count) {
        status = muster_error_set(MUSTER_INVALID, "missing");
    }
    if (status == MUSTER_OK) {
        status = muster_json_parse(text, size_bytes, &json);
    }
    if (status == MUSTER_OK) {
        status = replay(job, json);
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
    struct muster_job *job = ((struct loading *)user)->job;
    return muster_values_put(&job->values, generation, key, value, size_bytes);
}

struct restarting {
    muster_status status;
    char said[MUSTER_ERROR_MAX];
};

static void restart_job(struct muster_transaction *transaction, void *user)
{
    struct restarting *restarting = user;
    struct muster_job *job = transaction->job;
    if (muster_membership_phase(job->membership) == MUSTER_JOB_ENDED) {
        job->ended_ns = muster_clock_ns();
        muster_job_schedule(transaction->service, job, job->ended_ns);
        return;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_RESTART, .now_ms = muster_job_now_ms(job)};
    muster_status status = muster_job_accept(transaction, &event);
    if (status != MUSTER_OK) {
        restarting->status = status;
        (void)snprintf(restarting->said, sizeof restarting->said, "%s", muster_last_error());
    }
    drop_old_values(transaction);
}

muster_status muster_jobs_load(struct muster_service *service)
{
    struct loading loading = {.service = service};
    const struct muster_store_reader reader = {
        .job = load_job, .event = load_event, .value = load_value, .user = &loading};
    TRY(service->store->ops->load(service->store, &reader));
    struct restarting restarting = {.status = MUSTER_OK};
    (void)muster_transaction_each(service, MUSTER_NEVER, restart_job, &restarting);
    if (restarting.status != MUSTER_OK) {
        return muster_error_set(restarting.status, "%s", restarting.said);
    }
    return MUSTER_OK;
}
