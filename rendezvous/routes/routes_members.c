/* Join, Watch, Leave, Report: the methods of members. */
#include "rendezvous/routes/join_responses.h"
#include "rendezvous/routes/routes.h"
#include "rendezvous/routes/watching.h"
#include "rendezvous/service/job_events.h"
#include "worker/base/epoch.h"
#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The error for a member that is not listed: failed_precondition if it must not join again,
 * not_found if it may join again as a new member. */
static struct muster_rpc_response gone_response(const struct muster_job *job, const char *member)
{
    muster_status status = muster_membership_check_member(job->membership, member);
    return muster_rpc_response_error(status == MUSTER_ENDED ? MUSTER_RPC_FAILED_PRECONDITION
                                                            : MUSTER_RPC_NOT_FOUND,
                                     "job %s: %s", job->name, muster_last_error());
}

/* The error for a member whose event was refused with this status. */
static struct muster_rpc_response refusal(const struct muster_job *job, const char *member,
                                          muster_status status)
{
    if (status == MUSTER_ENDED &&
        muster_membership_check_member(job->membership, member) == MUSTER_REJOIN) {
        return gone_response(job, member);
    }
    return muster_rpc_response_status(status);
}

void muster_watch_cancel_older(struct muster_transaction *transaction, const char *member)
{
    struct muster_held_request *older =
        muster_held_requests_find_member(&transaction->job->held_requests, member);
    if (older != NULL) {
        muster_transaction_respond(
            transaction, older,
            muster_rpc_response_error(MUSTER_RPC_CANCELED,
                                      "replaced by a newer request of member %s", member));
    }
}

/* Join ---------------------------------------------------------------------------------------- */

/* True if the member is gone, or in the running generation. */
static bool respond_to_join(struct muster_transaction *transaction, const char *member,
                            uint32_t neighbours_above, struct muster_rpc_response *ret_response)
{
    struct muster_job *job = transaction->job;
    struct muster_member_view view;
    if (!muster_membership_find(job->membership, member, &view)) {
        *ret_response = gone_response(job, member);
        return true;
    }
    if (view.phase != MUSTER_MEMBER_ACTIVE ||
        muster_membership_phase(job->membership) != MUSTER_JOB_RUNNING) {
        return false;
    }
    *ret_response = muster_join_responses_formed(transaction, member, view.rank, neighbours_above);
    return true;
}

/* Also true if the member is to dial others. */
static bool respond_or_ask(struct muster_transaction *transaction, const char *member,
                           uint32_t neighbours_above, struct muster_rpc_response *ret_response)
{
    struct muster_job *job = transaction->job;
    if (respond_to_join(transaction, member, neighbours_above, ret_response)) {
        return true;
    }
    bool asks = muster_doubts_need(&job->doubts, job->membership, member);
    if (asks) {
        *ret_response = muster_join_responses_waiting(transaction, member);
    }
    return asks;
}

static bool join_ready(struct muster_transaction *transaction,
                       const struct muster_held_request *held,
                       struct muster_rpc_response *ret_response)
{
    return respond_or_ask(transaction, held->id.member, held->neighbours_above, ret_response);
}

static struct muster_rpc_response expire_join(struct muster_transaction *transaction,
                                              const struct muster_held_request *held)
{
    struct muster_rpc_response response;
    if (join_ready(transaction, held, &response)) {
        return response;
    }
    /* Perhaps nobody is left of the members for whom the newcomer waits. */
    muster_transaction_ask(transaction);
    return muster_join_responses_waiting(transaction, held->id.member);
}

static const struct muster_held_kind join_kind = {
    .of_member = true, .ready = join_ready, .expire = expire_join};

/* The settings of a Join. Where the request has none, those of the job count, or, for the first
 * Join of a job, those of the server. */
static struct muster_job_settings settings_for(const struct muster_transaction *transaction,
                                               const struct muster_join_request *request)
{
    const struct muster_membership *membership = transaction->job->membership;
    struct muster_job_settings settings = transaction->service->config.settings;
    bool begun = transaction->job->event_count > 0 &&
                 muster_membership_phase(membership) != MUSTER_JOB_ENDED;
    if (begun) {
        settings = muster_membership_settings(membership);
        settings.target_size = 0; /* not compared: a Resize may have changed it */
    } else if (request->target_size != 0) {
        settings.target_size = request->target_size;
    }
    settings.wire_version = request->wire_version;
    settings.min_size = request->min_size != 0 ? request->min_size : settings.min_size;
    settings.max_size = request->max_size != 0 ? request->max_size : settings.max_size;
    return settings;
}

/* True for the same Join as before, sent again because the response was lost or the hold ended: a
 * sign of life, but no event to store. */
static bool joined_already(const struct muster_job *job, const struct muster_join_request *request)
{
    struct muster_member_view view;
    const struct muster_member_info *info = &request->info;
    return muster_membership_find(job->membership, info->id, &view) &&
           view.phase == MUSTER_MEMBER_ARRIVED && strcmp(view.info->host, info->host) == 0 &&
           view.info->state_version == info->state_version &&
           view.info->generation == info->generation &&
           view.info->address_count == info->address_count &&
           memcmp(view.info->addresses, info->addresses, sizeof info->addresses) == 0 &&
           (request->min_size == 0 ||
            request->min_size == muster_membership_settings(job->membership).min_size) &&
           (request->max_size == 0 ||
            request->max_size == muster_membership_settings(job->membership).max_size);
}

/* The most members of a job of which this one gets all. */
static uint32_t neighbours_above(const struct muster_join_request *request)
{
    if (!request->neighbours) {
        return UINT32_MAX;
    }
    return request->neighbours_above > 0 ? request->neighbours_above : MUSTER_PEERS_INLINE_MAX;
}

/* The event first, because it may answer the Join itself; then the older request ends, and the new
 * one is answered or held. */
static bool join(struct muster_transaction *transaction, struct muster_rpc_call *call,
                 const struct muster_join_request *request)
{
    const char *member = request->info.id;
    if (joined_already(transaction->job, request)) {
        muster_job_heartbeat(transaction->job, member, 0);
        muster_job_accept_due(transaction); /* perhaps it was doubted, and others wait for it */
    } else {
        struct muster_event event = {.kind = MUSTER_EVENT_JOIN,
                                     .generation = request->info.generation,
                                     .info = request->info,
                                     .settings = settings_for(transaction, request)};
        (void)snprintf(event.member, sizeof event.member, "%s", member);
        muster_status status = muster_job_accept(transaction, &event);
        if (status != MUSTER_OK) { /* if it could not be stored: a sign of life nevertheless */
            muster_job_heartbeat(transaction->job, member, 0);
            call->response = refusal(transaction->job, member, status);
            return true;
        }
    }
    muster_watch_cancel_older(transaction, member);
    if (transaction->job->unheard_until_ns != 0) {
        muster_doubts_add_unheard(&transaction->job->doubts, transaction->job->membership);
    }
    (void)snprintf(call->held->id.member, sizeof call->held->id.member, "%s", member);
    if (respond_or_ask(transaction, member, neighbours_above(request), &call->response)) {
        return true;
    }
    call->held->neighbours_above = neighbours_above(request);
    return muster_transaction_hold(transaction, call, &join_kind,
                                   transaction->service->config.hold_ms);
}

bool muster_route_join(struct muster_rpc_call *call)
{
    struct muster_join_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, muster_join_request_decode(call->json, &request)) ||
        !muster_transaction_begin_or_create(call, request.job, &transaction)) {
        return true;
    }
    bool answered = join(&transaction, call, &request);
    muster_transaction_end(&transaction);
    return answered;
}

/* Watch --------------------------------------------------------------------------------------- */

static struct muster_watch_response watch_state(const struct muster_job *job,
                                                const struct muster_held_request *held,
                                                const struct muster_member_view *view)
{
    const struct muster_membership *membership = job->membership;
    struct muster_generation_view generation = muster_membership_generation(membership);
    struct muster_watch_response response = {
        .revoked = muster_membership_phase(membership) != MUSTER_JOB_RUNNING ||
                   generation.number != held->generation || view->phase != MUSTER_MEMBER_ACTIVE,
        .pending = muster_membership_pending(membership),
        .leave = view->leave_asked,
    };
    (void)snprintf(response.reason, sizeof response.reason, "%s",
                   muster_membership_why(membership));
    return response;
}

static const struct muster_held_kind watch_kind;

/* A stream is not asked to dial others: it may be one of a client that cannot. */
bool muster_watch_respond(struct muster_transaction *transaction,
                          const struct muster_held_request *held, bool expired,
                          struct muster_rpc_response *ret_response)
{
    struct muster_job *job = transaction->job;
    struct muster_member_view view;
    if (!muster_membership_find(job->membership, held->id.member, &view)) {
        *ret_response = gone_response(job, held->id.member);
        return true;
    }
    struct muster_watch_response response = watch_state(job, held, &view);
    bool asks = held->kind == &watch_kind &&
                muster_doubts_need(&job->doubts, job->membership, held->id.member);
    bool responds = expired || asks || response.revoked ||
                    response.pending != held->pending_known || response.leave != held->leave_known;
    if (responds && held->kind == &watch_kind) {
        response.doubted_count =
            muster_join_responses_doubted(transaction, held->id.member, &response.doubted);
    }
    if (responds) {
        *ret_response = muster_rpc_response_json(muster_watch_response_encode(&response));
    }
    free(response.doubted);
    return responds;
}

static bool watch_ready(struct muster_transaction *transaction,
                        const struct muster_held_request *held,
                        struct muster_rpc_response *ret_response)
{
    return muster_watch_respond(transaction, held, false, ret_response);
}

static struct muster_rpc_response expire_watch(struct muster_transaction *transaction,
                                               const struct muster_held_request *held)
{
    struct muster_rpc_response response;
    (void)muster_watch_respond(transaction, held, true, &response);
    return response;
}

static const struct muster_held_kind watch_kind = {
    .of_member = true, .ends_by_ask = true, .ready = watch_ready, .expire = expire_watch};

static bool watch(struct muster_transaction *transaction, struct muster_rpc_call *call,
                  const struct muster_watch_request *request)
{
    struct muster_job *job = transaction->job;
    struct muster_held_request *held = call->held;
    struct muster_member_view view;
    if (muster_membership_find(job->membership, request->member, &view)) {
        muster_job_heartbeat(job, request->member, request->progress);
    }
    (void)snprintf(held->id.member, sizeof held->id.member, "%s", request->member);
    held->generation = request->generation;
    held->pending_known = request->pending_known;
    held->leave_known = request->leave_known;
    held->kind = &watch_kind;
    muster_watch_cancel_older(transaction, request->member);
    return watch_ready(transaction, held, &call->response) ||
           muster_transaction_hold(transaction, call, &watch_kind,
                                   muster_transaction_watch_ms(transaction, request->member));
}

bool muster_route_watch(struct muster_rpc_call *call)
{
    struct muster_watch_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, muster_watch_request_decode(call->json, &request)) ||
        !muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    bool answered = watch(&transaction, call, &request);
    muster_transaction_end(&transaction);
    return answered;
}

/* Leave, Report ------------------------------------------------------------------------------- */

static muster_status decode_leave(const json_t *json, struct muster_leave_request *ret_request)
{
    TRY(muster_leave_request_decode(json, ret_request));
    return ret_request->reason != 0 ? MUSTER_OK
                                    : muster_error_set(MUSTER_INVALID, "reason: missing");
}

bool muster_route_leave(struct muster_rpc_call *call)
{
    struct muster_leave_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, decode_leave(call->json, &request)) ||
        !muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_LEAVE,
                                 .generation = request.generation,
                                 .leave_reason = request.reason};
    (void)snprintf(event.member, sizeof event.member, "%s", request.member);
    (void)snprintf(event.why, sizeof event.why, "%s", request.why);
    muster_status status = muster_job_accept(&transaction, &event);
    /* ENDED: the member has left already and the response was lost, or the job has ended. */
    call->response = status == MUSTER_OK || status == MUSTER_ENDED
                         ? muster_rpc_response_json(json_object())
                         : muster_rpc_response_status(status);
    muster_transaction_end(&transaction);
    return true;
}

/* The member of the reported rank in the last generation. */
static muster_status find_suspect(const struct muster_job *job,
                                  const struct muster_report_request *request,
                                  char ret_suspect[MUSTER_UUID_SIZE])
{
    struct muster_generation_view generation = muster_membership_generation(job->membership);
    if (request->generation != generation.number) {
        return muster_error_set(
            MUSTER_REJOIN, "generation %" PRIu64 " is not the last, which is %" PRIu64,
            muster_epoch_shown(request->generation), muster_epoch_shown(generation.number));
    }
    if (request->suspect >= generation.size) {
        return muster_error_set(MUSTER_INVALID, "suspect: rank %u of %u", request->suspect,
                                generation.size);
    }
    (void)snprintf(ret_suspect, MUSTER_UUID_SIZE, "%s", generation.members[request->suspect]);
    return MUSTER_OK;
}

/* The member has dialled one that is doubted, and was refused. If that has come back meanwhile it
 * does not count. */
static void report_refused(struct muster_transaction *transaction,
                           const struct muster_report_request *request)
{
    struct muster_job *job = transaction->job;
    muster_log(MUSTER_LOG_INFO, "job=%s member=%s was refused by member %s", job->name,
               request->member, request->suspect_member);
    muster_membership_refused(job->membership, request->suspect_member, request->member,
                              muster_job_now_ms(job));
    muster_job_accept_due(transaction);
}

static muster_status report(struct muster_transaction *transaction,
                            const struct muster_report_request *request)
{
    if (request->suspect_member[0] != '\0') {
        if (request->kind != MUSTER_REPORT_RESET) {
            return muster_error_set(MUSTER_INVALID,
                                    "kind: suspectMember goes with REPORT_KIND_RESET only");
        }
        report_refused(transaction, request);
        return MUSTER_OK;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_REPORT, .generation = request->generation};
    (void)snprintf(event.member, sizeof event.member, "%s", request->member);
    (void)snprintf(event.why, sizeof event.why, "%s", request->why);
    TRY(find_suspect(transaction->job, request, event.suspect));
    if (request->kind == MUSTER_REPORT_WAITING) {
        muster_transaction_ask(transaction); /* no evidence against anybody */
        return MUSTER_OK;
    }
    return muster_job_accept(transaction, &event);
}

bool muster_route_report(struct muster_rpc_call *call)
{
    struct muster_report_request request;
    struct muster_transaction transaction;
    struct muster_member_view view;
    if (muster_rpc_call_failed(call, muster_report_request_decode(call->json, &request)) ||
        !muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    struct muster_job *job = transaction.job;
    if (!muster_membership_find(job->membership, request.member, &view)) {
        call->response = gone_response(job, request.member);
    } else {
        muster_job_heartbeat(job, request.member, view.progress);
        muster_status status = report(&transaction, &request);
        call->response = status == MUSTER_OK ? muster_rpc_response_json(json_object())
                                             : refusal(job, request.member, status);
    }
    muster_transaction_end(&transaction);
    return true;
}
