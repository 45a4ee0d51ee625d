#include "worker/session/session_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/trace/timeline.h"

enum {
    CLOSE_LEAVE_MS = 700,   /* with the linger less than the two seconds of muster_close() */
    CLOSE_LINGER_MS = 1000, /* for the peers' goodbyes */
    REJOIN_LEAVE_MS = 2000,
};

/* Leaving ------------------------------------------------------------------------------------- */

void muster_session_send_leave(struct muster_session *session, enum muster_leave_reason reason,
                               const char *why, uint32_t timeout_ms)
{
    struct muster_leave_request leave = {.generation = session->generation.number,
                                         .reason = reason};
    struct muster_retry_policy retry_policy = {.attempt_ms = timeout_ms,
                                               .deadline_ns = muster_clock_after_ms(timeout_ms)};
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    (void)snprintf(leave.job, sizeof leave.job, "%s", session->settings.job);
    (void)snprintf(leave.member, sizeof leave.member, "%s", session->member);
    (void)snprintf(leave.why, sizeof leave.why, "%s", why);
    AUTO_LOCK(&session->calling);
    muster_status status =
        muster_client_call(session->caller, MUSTER_RPC_LEAVE, muster_leave_request_encode(&leave),
                           &retry_policy, &answer, &code);
    if (status == MUSTER_OK) {
        json_decref(answer);
    } else if (status != MUSTER_ENDED && code != MUSTER_RPC_NOT_FOUND) {
        muster_log(MUSTER_LOG_WARN, "could not say goodbye: %s", muster_last_error());
    }
}

void muster_session_finish(struct muster_session *session)
{
    AUTO_LOCK(&session->moving);
    muster_mutex_lock(&session->mutex);
    bool first = !session->finished;
    session->finished = true; /* first, so that the answers to others' Leave do not revoke us */
    (void)pthread_cond_broadcast(&session->changed);
    muster_mutex_unlock(&session->mutex);
    if (first) {
        muster_session_send_leave(session, MUSTER_LEAVE_FINISHED, "finished", REJOIN_LEAVE_MS);
    }
}

static void become_left(struct muster_session *session, const char *why)
{
    AUTO_LOCK(&session->mutex);
    session->stage = MUSTER_STAGE_LEFT;
    if (why != NULL) {
        (void)snprintf(session->why, sizeof session->why, "%s", why);
    }
    (void)pthread_cond_broadcast(&session->changed);
}

/* Moving over --------------------------------------------------------------------------------- */

/* False if nothing calls for a move. Else nobody can enter any more, and those inside come out. */
static bool stop_generation(struct muster_session *session, bool force)
{
    AUTO_LOCK(&session->mutex);
    if (session->stage == MUSTER_STAGE_RUNNING) {
        if (!force && !session->rejoin_due && !muster_session_leaving(session)) {
            return false;
        }
        session->stage = MUSTER_STAGE_JOINING;
        muster_session_revoke_locked(session, "this member moves over to the next generation");
    }
    return true;
}

/* A member that the service has given up gets a new name, and links under that name. */
static void shed_incarnation(struct muster_session *session)
{
    muster_mutex_lock(&session->mutex);
    muster_log(MUSTER_LOG_WARN, "member=%s was given up (%s): joining again as a new one",
               session->member, session->why);
    struct muster_fabric *fabric = session->fabric;
    session->fabric = NULL;
    session->lost = false;
    session->known = false;
    session->generation.number = 0;
    muster_random_uuid(session->member);
    muster_mutex_unlock(&session->mutex);
    muster_fabric_destroy(fabric, 0);
}

static bool is_lost(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    return session->lost;
}

/* Joins, if need be under a new name. */
static muster_status join_as_somebody(struct muster_session *session)
{
    int64_t deadline_ns = muster_clock_after_ms(session->settings.join_timeout_ms);
    for (;;) {
        if (is_lost(session)) {
            shed_incarnation(session);
        }
        muster_status status = muster_session_join(session, deadline_ns);
        if (status == MUSTER_OK || !is_lost(session)) {
            return status;
        }
    }
}

/* MUSTER_OK: this member may go on to the next generation. */
static muster_status may_go_on(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    if (session->finished) {
        return muster_error_set(MUSTER_ENDED, "finished");
    }
    if (session->ended) {
        return muster_error_set(MUSTER_ENDED, "%s", session->why);
    }
    return MUSTER_OK;
}

static muster_status move_over(struct muster_session *session)
{
    TRY(may_go_on(session));
    if (muster_session_leaving(session)) {
        muster_session_send_leave(session, MUSTER_LEAVE_PLANNED, "left as asked", REJOIN_LEAVE_MS);
        return muster_error_set(MUSTER_ENDED, "left as asked");
    }
    return join_as_somebody(session);
}

static bool has_left(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    return session->stage == MUSTER_STAGE_LEFT;
}

muster_status muster_session_rejoin(struct muster_session *session, bool force)
{
    AUTO_LOCK(&session->moving);
    if (has_left(session)) {
        return muster_session_enter(session); /* says why */
    }
    char why[MUSTER_ERROR_MAX];
    (void)snprintf(why, sizeof why, "%s", muster_last_error());
    if (!stop_generation(session, force)) {
        return MUSTER_OK;
    }
    TRY(muster_session_count_fruitless(session, why));
    muster_session_take_down(session);
    muster_session_pause_if_fruitless(session);
    muster_status status = move_over(session);
    if (status == MUSTER_ENDED) {
        become_left(session, muster_last_error());
        return muster_error_prefix(MUSTER_ENDED, "job %s", session->settings.job);
    }
    return status;
}

muster_status muster_rejoin(muster_session *session)
{
    return muster_session_rejoin(session, false);
}

/* Opening and closing ------------------------------------------------------------------------- */

static struct muster_session *create(void)
{
    struct muster_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return NULL;
    }
    muster_mutex_init(&session->moving);
    muster_mutex_init(&session->calling);
    muster_mutex_init(&session->mutex);
    muster_condition_init(&session->changed);
    muster_state_init(&session->state);
    muster_figures_init(&session->figures);
    muster_random_uuid(session->member);
    return session;
}

static void destroy(struct muster_session *session, uint32_t linger_ms)
{
    muster_session_unfollow(session);
    muster_session_take_down(session);
    muster_fabric_destroy(session->fabric, linger_ms);
    muster_timeline_destroy(session->timeline);
    if (session->sigterm_held) {
        muster_sigterm_release();
    }
    muster_client_destroy(session->caller);
    muster_client_destroy(session->follower);
    muster_settings_finish(&session->settings);
    muster_state_finish(&session->state);
    (void)pthread_cond_destroy(&session->changed);
    (void)pthread_mutex_destroy(&session->mutex);
    (void)pthread_mutex_destroy(&session->calling);
    (void)pthread_mutex_destroy(&session->moving);
    free(session);
}

static muster_status begin(struct muster_session *session)
{
    const struct muster_settings *settings = &session->settings;
    TRY(muster_client_create(settings->rendezvous, settings->token, &session->caller));
    TRY(muster_client_create(settings->rendezvous, settings->token, &session->follower));
    if (settings->leave_on_sigterm) {
        session->sigterm_seen = muster_sigterm_count();
        session->sigterm_held = muster_sigterm_hold();
    }
    session->timeline = muster_timeline_create(&(struct muster_timeline_options){
        .prefix = settings->timeline, .print_algorithm = muster_algorithm_print});
    TRY(muster_session_follow(session));
    AUTO_LOCK(&session->moving);
    muster_status status = join_as_somebody(session);
    if (status != MUSTER_OK && session->known) {
        char why[MUSTER_WHY_SIZE];
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        (void)snprintf(why, sizeof why, "gave up joining: %.160s", text);
        muster_session_send_leave(session, MUSTER_LEAVE_PLANNED, why, CLOSE_LEAVE_MS);
        return muster_error_set(status, "%s", text);
    }
    return status;
}

muster_status muster_open(const muster_options *options, muster_session **ret_session)
{
    struct muster_settings settings;
    TRY(muster_settings_init(options, &settings));
    struct muster_session *session = create();
    if (session == NULL) {
        muster_settings_finish(&settings);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    session->settings = settings;
    muster_status status = begin(session);
    if (status != MUSTER_OK) {
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        destroy(session, 0);
        return muster_error_set(status, "%s", text);
    }
    *ret_session = session;
    return MUSTER_OK;
}

/* How the last call ended says how to leave. */
static enum muster_leave_reason closing_reason(struct muster_session *session, const char **ret_why)
{
    switch (atomic_load(&session->last_status)) {
    case MUSTER_OK:
        if (muster_session_leaving(session)) {
            break;
        }
        *ret_why = "finished";
        return MUSTER_LEAVE_FINISHED;
    case MUSTER_INVALID:
    case MUSTER_FATAL:
        *ret_why = muster_last_error();
        return MUSTER_LEAVE_FAILED;
    default:
        break;
    }
    *ret_why = "closed";
    return MUSTER_LEAVE_PLANNED;
}

void muster_close(muster_session *session)
{
    if (session == NULL) {
        return;
    }
    muster_mutex_lock(&session->mutex);
    bool in_job = session->stage != MUSTER_STAGE_LEFT && !session->finished && !session->ended;
    session->finished = true; /* what the service says of us from now on is no news */
    muster_mutex_unlock(&session->mutex);
    if (in_job) {
        const char *why = "";
        enum muster_leave_reason reason = closing_reason(session, &why);
        muster_session_send_leave(session, reason, why, CLOSE_LEAVE_MS);
    }
    become_left(session, "closed");
    destroy(session, CLOSE_LINGER_MS);
}

void muster_leave(muster_session *session)
{
    atomic_store(&session->leave_wished, true);
}

/* Scopes -------------------------------------------------------------------------------------- */

uint32_t muster_rank(const muster_session *session, muster_scope scope)
{
    return (unsigned)scope < MUSTER_SCOPE_COUNT ? atomic_load(&session->ranks[scope]) : UINT32_MAX;
}

uint32_t muster_size(const muster_session *session, muster_scope scope)
{
    return (unsigned)scope < MUSTER_SCOPE_COUNT ? atomic_load(&session->sizes[scope]) : 0;
}

uint64_t muster_generation(const muster_session *session)
{
    return atomic_load(&session->number);
}
