/* Opens and closes a session, and returns its ranks, sizes and generation at any time. */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/session/engine_list.h"
#include "worker/session/generation.h"
#include "worker/session/generation_guard.h"
#include "worker/session/lease_thread.h"
#include "worker/session/open_with.h"
#include "worker/session/operations.h"
#include "worker/session/rejoin.h"
#include "worker/session/session_sets.h"
#include "worker/session/sigterm.h"
#include "worker/session/slot.h"
#include "worker/session/spill.h"
#include "worker/trace/timeline.h"

/* Together below the two seconds that muster_close() may take. */
enum {
    CLOSE_OPERATIONS_MS = 300, /* for operations in flight */
    CLOSE_LEAVE_MS = 700,
    CLOSE_LINGER_MS = 1000, /* for the GOODBYE frames of the peers */
};

static struct muster_session *create(void)
{
    struct muster_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return NULL;
    }
    muster_mutex_init(&session->rejoin_mutex);
    muster_mutex_init(&session->client_mutex);
    muster_session_clients_init(&session->clients);
    muster_mutex_init(&session->mutex);
    muster_condition_init(&session->changed);
    muster_state_init(&session->state);
    muster_session_sets_init(session);
    muster_session_engines_init(session);
    muster_figures_init(&session->figures);
    muster_random_uuid(session->member);
    session->forks = muster_fork_guard_forks();
    session->slot_fd = -1;
    return session;
}

static void destroy(struct muster_session *session, uint32_t linger_ms)
{
    muster_session_stop_spill(session);
    muster_session_stop_lease_thread(session);
    muster_session_end_generation(session);
    muster_session_drop_operations(session);
    muster_session_engines_finish(session);
    muster_fabric_destroy(session->fabric, linger_ms);
    muster_timeline_destroy(session->timeline);
    if (session->sigterm_held) {
        muster_sigterm_release();
    }
    muster_client_destroy(session->caller_client);
    muster_client_destroy(session->lease_client);
    muster_session_clients_finish(&session->clients);
    muster_settings_finish(&session->settings);
    muster_state_finish(&session->state);
    muster_session_sets_finish(session);
    muster_session_release_slot(session);
    (void)pthread_cond_destroy(&session->changed);
    (void)pthread_mutex_destroy(&session->mutex);
    (void)pthread_mutex_destroy(&session->client_mutex);
    (void)pthread_mutex_destroy(&session->rejoin_mutex);
    free(session);
}

/* So that the others do not wait for a member that could not join. */
static void leave_unjoined(struct muster_session *session, muster_status status, const char *text)
{
    char why[MUSTER_WHY_SIZE];
    if (status == MUSTER_ENDED) {
        muster_session_send_leave(session, MUSTER_LEAVE_PLANNED, text, CLOSE_LEAVE_MS);
        return;
    }
    (void)snprintf(why, sizeof why, "could not join: %.160s", text);
    muster_session_send_leave(session, MUSTER_LEAVE_FAILED, why, CLOSE_LEAVE_MS);
}

/* The lease thread starts first and waits for a generation. If joining fails after the service has
 * seen this member, Leave is sent. */
static muster_status start(struct muster_session *session)
{
    const struct muster_settings *settings = &session->settings;
    TRY(muster_session_create_client(settings, &session->caller_client));
    TRY(muster_session_create_client(settings, &session->lease_client));
    if (settings->leave_on_sigterm) {
        session->sigterm_count_at_open = muster_sigterm_count();
        session->sigterm_held = muster_sigterm_hold();
    }
    session->timeline = muster_timeline_create(
        &(struct muster_timeline_options){.prefix = settings->timeline,
                                          .startable = true,
                                          .print_algorithm = muster_algorithm_print});
    TRY(muster_session_start_lease_thread(session));
    AUTO_LOCK(&session->rejoin_mutex);
    TRY(muster_session_take_slot(session));
    TRY(muster_session_start_spill(session));
    muster_status status = muster_session_join(session);
    if (status != MUSTER_OK && session->known_to_service) {
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        leave_unjoined(session, status, text);
        return muster_error_set(status, "%s", text);
    }
    return status;
}

/* The session is the caller's, or is destroyed. */
static muster_status hand_over(struct muster_session *session, muster_status status,
                               uint32_t linger_ms, muster_session **ret_session)
{
    if (status != MUSTER_OK) {
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        destroy(session, linger_ms);
        return muster_error_set(status, "%s", text);
    }
    *ret_session = session;
    return MUSTER_OK;
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
    return hand_over(session, start(session), 0, ret_session);
}

/* The exchange needs to know the members, so a rank that does not exist cannot take part in it.
 * Peers of a member that fails later are told by its links. */
muster_status muster_open_with(const muster_options *options, uint32_t rank, uint32_t size,
                               muster_exchange_function exchange, void *user_data,
                               muster_session **ret_session)
{
    const struct muster_exchange_call with = {
        .rank = rank, .size = size, .function = exchange, .user_data = user_data};
    if (size == 0 || size > MUSTER_MEMBERS_MAX || rank >= size || exchange == NULL) {
        return muster_error_set(
            MUSTER_INVALID, "open_with: rank %u of size %u%s: sizes are 1 to %d", rank, size,
            exchange == NULL ? ", without exchange function" : "", MUSTER_MEMBERS_MAX);
    }
    struct muster_session *session = create();
    if (session == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    session->without_service = true;
    muster_status status = muster_settings_init_without_service(options, &session->settings);
    status = muster_session_start_with(session, &with, status);
    return hand_over(session, status, CLOSE_LINGER_MS, ret_session);
}

/* The reason for the Leave follows from how the last call ended. */
static enum muster_leave_reason closing_reason(struct muster_session *session, const char **ret_why)
{
    switch (atomic_load(&session->last_status)) {
    case MUSTER_OK:
        if (muster_session_is_leaving(session)) {
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

/* Operations in flight, detached ones too, may finish before the others learn that this member
 * leaves; those that do not in this time end with the generation. */
static void finish_operations(struct muster_session *session)
{
    const struct muster_generation *generation = &session->generation;
    int64_t until_ns = muster_clock_after_ms(CLOSE_OPERATIONS_MS);
    if (generation->communicator == NULL) {
        return;
    }
    bool all = muster_session_wait_for_engines(session, until_ns);
    if (!muster_communicator_wait_all(generation->communicator, until_ns) || !all) {
        muster_fabric_revoke(session->fabric, generation->number, "the session is closed");
    }
}

void muster_close(muster_session *session)
{
    if (session == NULL || muster_session_is_inherited(session)) {
        return; /* a child's copy is freed with the process */
    }
    finish_operations(session);
    muster_mutex_lock(&session->mutex);
    bool in_job = !session->without_service && session->stage != MUSTER_STAGE_LEFT &&
                  !session->finished && !session->ended;
    session->finished = true; /* the lease thread ignores the service from now on */
    muster_mutex_unlock(&session->mutex);
    if (in_job) {
        muster_session_flush_figures(session);
        const char *why = "";
        enum muster_leave_reason reason = closing_reason(session, &why);
        muster_session_send_leave(session, reason, why, CLOSE_LEAVE_MS);
    }
    muster_session_set_left(session, "closed");
    destroy(session, CLOSE_LINGER_MS);
}

void muster_leave(muster_session *session)
{
    atomic_store(&session->leave_called, true);
}

uint64_t muster_generation(const muster_session *session)
{
    return atomic_load(&session->generation_number);
}

/* The timeline is missing if there was no memory for it. */
static muster_status find_timeline(const struct muster_session *session,
                                   struct muster_timeline **ret_timeline)
{
    TRY(muster_session_check_process(session));
    if (session->timeline == NULL) {
        return muster_error_set(MUSTER_FATAL, "there is no timeline");
    }
    *ret_timeline = session->timeline;
    return MUSTER_OK;
}

muster_status muster_trace_start(muster_session *session, const char *prefix)
{
    struct muster_timeline *timeline = NULL;
    if (prefix == NULL || prefix[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "trace_start: the prefix is empty");
    }
    TRY(find_timeline(session, &timeline));
    return muster_error_prefix(muster_timeline_start(timeline, prefix), "trace_start");
}

muster_status muster_trace_stop(muster_session *session)
{
    struct muster_timeline *timeline = NULL;
    TRY(find_timeline(session, &timeline));
    return muster_error_prefix(muster_timeline_stop(timeline), "trace_stop");
}
