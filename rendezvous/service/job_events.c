/* How an event gets into a job, and what is done because of it. */
#include "rendezvous/service/job_events.h"

#include "elastic/membership/liveness.h"
#include "rendezvous/service/journal.h"
#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/base/keepalive.h"
#include "worker/base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STORE_RETRY_MS = 1000, /* between attempts to store an event that is due */
};

void muster_job_heartbeat(struct muster_job *job, const char *member, uint64_t progress)
{
    muster_membership_heartbeat(job->membership, member, progress, muster_job_now_ms(job));
}

/* The log ------------------------------------------------------------------------------------- */

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
    default: /* its effect is logged */
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
               muster_epoch_shown(generation.number), generation.size, generation.hosts,
               names[muster_membership_phase(job->membership)],
               muster_membership_why(job->membership));
}

/* One event ----------------------------------------------------------------------------------- */

/* When the membership may next have an event that is due. */
static int64_t membership_due_ns(const struct muster_job *job)
{
    int64_t next_ms = muster_membership_next_ms(job->membership);
    if (next_ms > INT64_MAX / MUSTER_NS_PER_MS - job->origin_ms) {
        return MUSTER_NEVER;
    }
    int64_t clock_ms = next_ms < 0 ? job->origin_ms : next_ms + job->origin_ms;
    return clock_ms * MUSTER_NS_PER_MS;
}

/* Values of generations that are over would only accumulate. */
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

/* Where only one member is gone, only its request is looked at: thousands may leave one by one. */
static void respond_as_asked(struct muster_transaction *transaction,
                             const struct muster_actions *actions)
{
    for (size_t i = 0; i < actions->count; i++) {
        if (actions->items[i].kind != MUSTER_ACTION_GONE) {
            muster_transaction_respond_ready(transaction);
            return;
        }
    }
    for (size_t i = 0; i < actions->count; i++) {
        muster_transaction_respond_ready_member(transaction, actions->items[i].member);
    }
}

/* Logs what an event has changed, and does what it asks for: old values go with the generation, an
 * ended job is scheduled to be forgotten, and held requests that became ready are answered. */
static void carry_out(struct muster_transaction *transaction, const struct muster_event *event,
                      const struct muster_actions *actions, enum muster_job_phase phase_before,
                      uint64_t generation_before)
{
    struct muster_job *job = transaction->job;
    enum muster_job_phase phase = muster_membership_phase(job->membership);
    job->changes++;
    log_event(job, event);
    for (size_t i = 0; i < actions->count; i++) {
        if (actions->items[i].kind == MUSTER_ACTION_GONE) {
            log_gone(job, actions->items[i].member);
        }
    }
    bool formed = muster_membership_generation(job->membership).number != generation_before;
    muster_metrics_event(&transaction->service->metrics, job->membership, event, formed);
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
    respond_as_asked(transaction, actions);
    muster_transaction_respond_ready_viewers(transaction);
}

/* Check, store, apply, in this order: a refused event is not stored, and no response is sent for an
 * event that is not. */
static muster_status accept_one(struct muster_transaction *transaction,
                                const struct muster_event *event)
{
    struct muster_job *job = transaction->job;
    struct muster_store *store = transaction->service->store;
    TRY(muster_membership_check(job->membership, event));
    enum muster_job_phase phase = muster_membership_phase(job->membership);
    uint64_t generation = muster_membership_generation(job->membership).number;
    int64_t began_ns = muster_clock_ns();
    muster_status status = muster_journal_append(store, job, event);
    muster_metrics_append(&transaction->service->metrics, muster_clock_ns() - began_ns,
                          status == MUSTER_OK);
    TRY(status);
    muster_transaction_wrote(transaction);
    struct muster_actions actions = {0};
    status = muster_membership_apply(job->membership, event, &actions);
    /* The event is stored and cannot be taken back. Only a restart makes both the same again. */
    assert(status == MUSTER_OK);
    (void)status;
    carry_out(transaction, event, &actions, phase, generation);
    muster_actions_finish(&actions);
    muster_compactor_add_if_due(&transaction->service->compactor, job);
    return MUSTER_OK;
}

/* Time ---------------------------------------------------------------------------------------- */

void muster_job_detect_pause(struct muster_job *job)
{
    int64_t now_ns = muster_clock_ns();
    struct muster_job_settings settings = muster_membership_settings(job->membership);
    if (muster_membership_phase(job->membership) != MUSTER_JOB_ENDED &&
        muster_liveness_check_was_late(job->due_ns / MUSTER_NS_PER_MS, now_ns / MUSTER_NS_PER_MS,
                                       &settings)) {
        muster_log(MUSTER_LOG_WARN,
                   "job=%s runs %" PRId64 " ms late: every member gets a fresh lease", job->name,
                   (now_ns - job->due_ns) / MUSTER_NS_PER_MS);
        job->restart_pending = true;
        job->due_ns = now_ns; /* this pause is reported once */
    }
}

static muster_status restart_if_pending(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    if (!job->restart_pending) {
        return MUSTER_OK;
    }
    if (muster_membership_phase(job->membership) != MUSTER_JOB_ENDED) {
        struct muster_event event = {.kind = MUSTER_EVENT_RESTART,
                                     .epoch = transaction->service->config.epoch,
                                     .now_ms = muster_job_now_ms(job)};
        TRY(accept_one(transaction, &event));
    }
    job->restart_pending = false;
    return MUSTER_OK;
}

static void retry_later(struct muster_transaction *transaction)
{
    muster_log(MUSTER_LOG_ERROR, "job=%s an event that is due cannot be stored: %s",
               transaction->job->name, muster_last_error());
    muster_job_schedule(transaction->service, transaction->job,
                        muster_clock_after_ms(STORE_RETRY_MS));
}

static void schedule_next_check(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    int64_t due_ns = membership_due_ns(job);
    if (due_ns != MUSTER_NEVER) {
        int64_t soon_ns = muster_clock_after_ms(muster_job_check_ms(job));
        muster_job_schedule(transaction->service, job, due_ns < soon_ns ? due_ns : soon_ns);
    }
}

void muster_job_accept_due(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    if (restart_if_pending(transaction) != MUSTER_OK) {
        retry_later(transaction);
        return;
    }
    struct muster_event event;
    /* Each round declares one member dead, forms a generation or settles newcomers. */
    for (int rounds = 0; rounds < 2 * MUSTER_MEMBERS_MAX &&
                         muster_membership_due(job->membership, muster_job_now_ms(job), &event);
         rounds++) {
        event.forms_nothing = muster_membership_forms_nothing(job->membership);
        if (accept_one(transaction, &event) != MUSTER_OK) {
            retry_later(transaction);
            return;
        }
    }
    schedule_next_check(transaction);
}

muster_status muster_job_accept(struct muster_transaction *transaction, struct muster_event *event)
{
    muster_job_detect_pause(transaction->job);
    TRY(restart_if_pending(transaction));
    event->now_ms = muster_job_now_ms(transaction->job);
    event->epoch = transaction->service->config.epoch;
    event->forms_nothing = muster_membership_forms_nothing(transaction->job->membership);
    TRY(accept_one(transaction, event));
    muster_job_accept_due(transaction);
    return MUSTER_OK;
}

/* A server that starts ------------------------------------------------------------------------ */

/* Members may not have heard of this server yet. */
static void begin_grace(struct muster_transaction *transaction, uint32_t grace_ms)
{
    struct muster_job *job = transaction->job;
    struct muster_member_view view;
    for (uint32_t i = 0; muster_membership_member(job->membership, i, &view); i++) {
        if (muster_doubts_dials(view.info)) {
            muster_membership_expect(job->membership, view.info->id);
        } else {
            muster_membership_begin_hold(job->membership, view.info->id);
        }
    }
    job->unheard_until_ns = muster_clock_after_ms(grace_ms);
    muster_job_schedule(transaction->service, job, job->unheard_until_ns);
}

void muster_job_resume(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    if (muster_membership_phase(job->membership) == MUSTER_JOB_ENDED) {
        job->restart_pending = false;
        job->ended_ns = muster_clock_ns();
        muster_job_schedule(transaction->service, job, job->ended_ns);
        return;
    }
    job->restart_pending = true;
    muster_job_accept_due(transaction);
    drop_old_values(transaction);
    uint32_t lease_ms = muster_membership_settings(job->membership).lease_ms;
    begin_grace(transaction, transaction->service->config.watch_ms + lease_ms);
}

void muster_job_end_grace(struct muster_transaction *transaction, int64_t now_ns)
{
    struct muster_job *job = transaction->job;
    struct muster_member_view view;
    if (job->unheard_until_ns == 0) {
        return;
    }
    if (now_ns < job->unheard_until_ns) {
        muster_job_schedule(transaction->service, job, job->unheard_until_ns);
        return;
    }
    job->unheard_until_ns = 0;
    for (uint32_t i = 0; muster_membership_member(job->membership, i, &view); i++) {
        if (muster_held_requests_find_member(&job->held_requests, view.info->id) == NULL) {
            muster_membership_end_hold(job->membership, view.info->id, muster_job_now_ms(job));
        }
    }
}

struct restart_result {
    muster_status status;
    char error[MUSTER_ERROR_MAX];
};

static void restart_job(struct muster_transaction *transaction, void *user)
{
    struct restart_result *result = user;
    struct muster_job *job = transaction->job;
    if (muster_membership_phase(job->membership) == MUSTER_JOB_ENDED) {
        job->ended_ns = muster_clock_ns();
        muster_job_schedule(transaction->service, job, job->ended_ns);
        return;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_RESTART};
    muster_status status = muster_job_accept(transaction, &event);
    if (status != MUSTER_OK) {
        result->status = status;
        (void)snprintf(result->error, sizeof result->error, "%s", muster_last_error());
    }
    drop_old_values(transaction);
    begin_grace(transaction, MUSTER_KEEPALIVE_ENDS_S * 1000);
}

muster_status muster_jobs_restart(struct muster_service *service)
{
    struct restart_result result = {.status = MUSTER_OK};
    (void)muster_transaction_each(service, MUSTER_NEVER, restart_job, &result);
    if (result.status != MUSTER_OK) {
        return muster_error_set(result.status, "%s", result.error);
    }
    return MUSTER_OK;
}
