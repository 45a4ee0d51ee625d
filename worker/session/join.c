/* Join: makes the member's fabric and asks the service for a place until a generation has formed.
 */
#include "worker/session/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/doubted_members.h"
#include "worker/session/generation_guard.h"
#include "worker/session/lease_thread.h"
#include "worker/session/service_policy.h"
#include "worker/session/slot.h"

enum {
    PAUSE_MAX_MS = 200, /* after failures that the client does not back off from by itself */
};

/* The fabric ----------------------------------------------------------------------------------- */

/* The address that reaches the rendezvous is the likeliest to reach the peers. */
static muster_status make_fabric(struct muster_session *session)
{
    char way[MUSTER_ADDRESS_SIZE];
    TRY(muster_client_local_address(session->caller_client, way, sizeof way));
    const struct muster_fabric_options options = {.member = session->member,
                                                  .link_token = "",
                                                  .transports = session->settings.transports,
                                                  .first_address = way,
                                                  .timeline = session->timeline};
    struct muster_fabric *fabric = NULL;
    TRY(muster_fabric_create(&options, &fabric));
    AUTO_LOCK(&session->mutex);
    session->fabric = fabric;
    return MUSTER_OK;
}

/* Join requests -------------------------------------------------------------------------------- */

/* With the transports by which it can be reached, as its addresses name them: "transports=shm tcp".
 */
static void fill_capabilities(const struct muster_session *session, char *text, size_t size)
{
    char transports[MUSTER_PAIR_VALUE_MAX_BYTES + 1] = "";
    size_t used = 0;
    uint32_t count = muster_fabric_address_count(session->fabric);
    for (uint32_t i = 0; i < count; i++) {
        char scheme[MUSTER_PAIR_VALUE_MAX_BYTES + 1];
        const char *address = muster_fabric_address(session->fabric, i);
        (void)snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(address, ":"), address);
        if (strstr(transports, scheme) == NULL && used + strlen(scheme) + 1 < sizeof transports) {
            used += (size_t)snprintf(transports + used, sizeof transports - used, "%s%s",
                                     used > 0 ? " " : "", scheme);
        }
    }
    (void)snprintf(text, size, MUSTER_CAPABILITY_DIALS "transports=%s\n", transports);
}

static void fill_request(struct muster_session *session, struct muster_join_request *request)
{
    const struct muster_settings *settings = &session->settings;
    struct muster_member_info *info = &request->info;
    *request = (struct muster_join_request){
        .min_size = settings->min_size,
        .max_size = settings->max_size,
        .target_size = settings->target_size,
        .wire_version = MUSTER_WIRE_VERSION,
        .neighbours = true,
        .neighbours_above = settings->neighbours_above,
    };
    (void)snprintf(request->job, sizeof request->job, "%s", settings->job);
    memcpy(info->id, session->member, sizeof info->id);
    (void)snprintf(info->host, sizeof info->host, "%s", settings->host);
    (void)snprintf(info->rack, sizeof info->rack, "%s", settings->rack);
    info->state_version = atomic_load(&session->state.version);
    info->generation = session->generation.number;
    (void)snprintf(info->library, sizeof info->library, "%s", muster_version());
    fill_capabilities(session, info->capabilities, sizeof info->capabilities);
    info->order = settings->order;
    info->done = atomic_load(&session->done);
    muster_session_state_slot(session, info);
    info->pid = (uint32_t)getpid();
    uint32_t count = muster_fabric_address_count(session->fabric);
    for (uint32_t i = 0; i < count && i < MUSTER_MEMBER_ADDRESSES_MAX; i++) {
        (void)snprintf(info->addresses[i], sizeof info->addresses[i], "%s",
                       muster_fabric_address(session->fabric, i));
        info->address_count = i + 1;
    }
}

/* Written with the mutex held, as the flags beside it are: a compiler may access several flags as
 * one word. */
static void set_known_to_service(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    session->known_to_service = true;
}

/* One Join. The answer may be that the generation has not formed yet. */
static muster_status join_once(struct muster_session *session, int64_t deadline_ns,
                               struct muster_join_response *ret_response)
{
    struct muster_join_request *request = malloc(sizeof *request);
    if (request == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    fill_request(session, request);
    struct muster_retry_policy retry_policy = {
        .attempt_ms = muster_policy_join_attempt_ms(session->hold_ms),
        .deadline_ns = deadline_ns,
        .attempts = MUSTER_JOIN_ATTEMPTS,
    };
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    muster_mutex_lock(&session->client_mutex);
    muster_status status =
        muster_client_call(session->caller_client, MUSTER_RPC_JOIN,
                           muster_join_request_encode(request), &retry_policy, &answer, &code);
    muster_mutex_unlock(&session->client_mutex);
    free(request);
    if (status == MUSTER_OK) {
        set_known_to_service(session);
        status = muster_join_response_decode(answer, ret_response);
        json_decref(answer);
        return status == MUSTER_OK ? MUSTER_OK
                                   : muster_error_prefix(MUSTER_FATAL, "the answer to Join");
    }
    if (muster_policy_join_place(code, session->known_to_service) != MUSTER_PLACE_KEPT) {
        muster_session_apply_service_error(session, session->generation.number, code,
                                           muster_last_error());
    }
    return status;
}

/* "job x: 2 of at least 4 members after 10 s; missing rank 3 (host b, pid 12)". */
static muster_status too_few_error(const struct muster_session *session,
                                   const struct muster_join_response *waiting)
{
    char missing[MUSTER_ERROR_MAX] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < waiting->missing_count && used < sizeof missing; i++) {
        int added = snprintf(missing + used, sizeof missing - used, "%s%s",
                             i == 0 ? "; missing " : ", ", waiting->missing[i]);
        used += added > 0 ? (size_t)added : 0;
    }
    uint32_t timeout_ms = session->settings.join_timeout_ms;
    char target[48] = "";
    if (waiting->target_size > 0) {
        (void)snprintf(target, sizeof target, " (target %u)", waiting->target_size);
    }
    return muster_error_set(MUSTER_RETRY, "job %s: %u of at least %u members%s after %u.%u s%s",
                            session->settings.job, waiting->members, waiting->min_size, target,
                            timeout_ms / 1000, timeout_ms % 1000 / 100, missing);
}

/* A random pause, so that the members do not all retry at the same time. */
static void pause_briefly(void)
{
    uint32_t wait_ms = 1 + muster_random_below(PAUSE_MAX_MS);
    struct timespec wait = {.tv_nsec = (long)wait_ms * 1000 * 1000};
    (void)nanosleep(&wait, NULL);
}

/* After a failed attempt. MUSTER_OK: try again, after a pause if the client has not backed off. */
static muster_status check_retry(struct muster_session *session, muster_status status, bool *warned)
{
    if (!muster_policy_joins_again(status)) {
        return status;
    }
    if (!*warned) {
        muster_log(MUSTER_LOG_WARN, "still trying to join: %s", muster_last_error());
        *warned = true;
    }
    if (session->fabric == NULL || status == MUSTER_REJOIN) {
        pause_briefly();
    }
    return MUSTER_OK;
}

static void dial_doubted(struct muster_session *session, const struct muster_join_response *waiting)
{
    if (waiting->doubted_count > 0) {
        muster_mutex_lock(&session->client_mutex);
        muster_session_dial_doubted(session, session->caller_client, waiting->doubted,
                                    waiting->doubted_count);
        muster_mutex_unlock(&session->client_mutex);
    }
}

/* The service holds each Join for a while, and answers that the generation is still waiting if it
 * has not formed by then. So the function repeats Join until the generation has formed, the member
 * is to leave, or the deadline passes. Between two calls it makes the fabric, if that failed
 * before. */
muster_status muster_session_ask_to_join(struct muster_session *session, int64_t deadline_ns,
                                         struct muster_join_response *ret_response)
{
    bool warned = false;
    struct muster_join_response last = {0}; /* what it owned is freed */
    muster_status status = MUSTER_RETRY;
    bool waiting = false;
    do {
        if (muster_session_is_leaving(session)) {
            return muster_error_set(MUSTER_ENDED, "asked to leave while joining");
        }
        status = session->fabric != NULL ? MUSTER_OK : make_fabric(session);
        if (status == MUSTER_OK) {
            struct muster_join_response next = {0};
            status = join_once(session, deadline_ns, &next);
            if (status == MUSTER_OK && next.formed) {
                *ret_response = next;
                return MUSTER_OK;
            }
            if (status == MUSTER_OK) {
                waiting = true;
                dial_doubted(session, &next);
                muster_join_response_finish(&next);
                last = next;
                continue;
            }
        }
        TRY(check_retry(session, status, &warned));
    } while (muster_clock_left_ms(deadline_ns) > 0);
    return waiting ? too_few_error(session, &last) : status;
}
