/* Join, Watch, Leave, Report: what members ask. */
#include "rendezvous/service/jobs.h"

#include "worker/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those that are gone ------------------------------------------------------------------------- */

/* failed_precondition: the member must not come back. not_found: it may, as a new one. */
static struct muster_rpc_response gone_response(const struct muster_job *job, const char *member)
{
    muster_status standing = muster_membership_check_member(job->membership, member);
    return muster_rpc_response_error(standing == MUSTER_ENDED ? MUSTER_RPC_FAILED_PRECONDITION
                                                              : MUSTER_RPC_NOT_FOUND,
                                     "job %s: %s", job->name, muster_last_error());
}

/* What an event of the member was refused with. */
static struct muster_rpc_response refused(const struct muster_job *job, const char *member,
                                          muster_status status)
{
    if (status == MUSTER_ENDED &&
        muster_membership_check_member(job->membership, member) == MUSTER_REJOIN) {
        return gone_response(job, member);
    }
    return muster_rpc_response_status(status);
}

/* Join: waiting ------------------------------------------------------------------------------- */

static struct muster_rpc_response waiting_response(const struct muster_job *job)
{
    struct muster_job_settings settings = muster_membership_settings(job->membership);
    struct muster_join_response response = {.min_size = settings.min_size,
                                            .target_size = settings.target_size};
    struct muster_member_view view;
    for (uint32_t i = 0; muster_membership_member(job->membership, i, &view); i++) {
        response.members += view.phase == MUSTER_MEMBER_ARRIVED;
        if (view.phase == MUSTER_MEMBER_AWAITED && response.missing_count < MUSTER_MISSING_MAX) {
            (void)snprintf(response.missing[response.missing_count++], MUSTER_MISSING_SIZE,
                           "rank %u (host %s, pid %u)", view.rank, view.info->host, view.info->pid);
        }
    }
    return muster_rpc_response_json(muster_join_response_encode(&response));
}

/* Join: formed -------------------------------------------------------------------------------- */

static void fill_hosts(const struct muster_job *job,
                       const struct muster_generation_view *generation,
                       struct muster_join_response *response)
{
    struct muster_member_view view;
    uint32_t first = 0;
    for (uint32_t i = 0; i < generation->hosts; i++) {
        struct muster_wire_host *host = &response->hosts[i];
        bool there = muster_membership_find(job->membership, generation->members[first], &view);
        (void)snprintf(host->name, sizeof host->name, "%s", there ? view.info->host : "gone");
        (void)snprintf(host->rack, sizeof host->rack, "%s", there ? view.info->rack : "");
        host->size = generation->host_sizes[i];
        first += host->size;
    }
}

static void fill_peers(const struct muster_job *job,
                       const struct muster_generation_view *generation,
                       struct muster_join_response *response)
{
    struct muster_member_view view;
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        struct muster_wire_peer *peer = &response->peers[rank];
        (void)snprintf(peer->member, sizeof peer->member, "%s", generation->members[rank]);
        if (muster_membership_find(job->membership, peer->member, &view)) {
            peer->order = view.info->order;
            peer->address_count = view.info->address_count;
            memcpy(peer->addresses, view.info->addresses, sizeof peer->addresses);
        }
        if (generation->stale[rank] != 0) {
            response->stale[response->stale_count++] = rank;
        }
    }
}

/* What is the same for all members of the generation: made once. NULL: memory is out. */
static json_t *generation_response(struct muster_transaction *transaction)
{
    struct muster_job *job = transaction->job;
    struct muster_generation_view generation = muster_membership_generation(job->membership);
    if (job->formed != NULL && job->formed_generation == generation.number) {
        return job->formed;
    }
    json_decref(job->formed);
    job->formed = NULL;
    struct muster_join_response response = {
        .formed = true,
        .generation = generation.number,
        .size = generation.size,
        .host_count = generation.hosts,
        .state_version = generation.state_version,
        .state_source = generation.state_source,
        .hold_ms = transaction->service->config.hold_ms,
        .lease_ms = muster_membership_settings(job->membership).lease_ms,
        .hosts = calloc(generation.hosts, sizeof *response.hosts),
        .peers = calloc(generation.size, sizeof *response.peers),
        .stale = calloc(generation.size, sizeof *response.stale),
    };
    (void)snprintf(response.link_token, sizeof response.link_token, "%s", job->link_token);
    if (response.hosts != NULL && response.peers != NULL && response.stale != NULL) {
        fill_hosts(job, &generation, &response);
        fill_peers(job, &generation, &response);
        job->formed = muster_join_response_encode(&response);
        job->formed_generation = generation.number;
    }
    muster_join_response_finish(&response);
    return job->formed;
}

struct place {
    uint32_t local_rank, local_size, cross_rank, cross_size;
};

static struct place place_of(const struct muster_generation_view *generation, uint32_t rank)
{
    struct place place = {0};
    uint32_t first = 0;
    uint32_t host = 0;
    while (rank - first >= generation->host_sizes[host]) {
        first += generation->host_sizes[host++];
    }
    place.local_rank = rank - first;
    place.local_size = generation->host_sizes[host];
    for (uint32_t i = 0; i < generation->hosts; i++) {
        bool has_it = generation->host_sizes[i] > place.local_rank;
        place.cross_rank += has_it && i < host;
        place.cross_size += has_it;
    }
    return place;
}

static struct muster_rpc_response formed_response(struct muster_transaction *transaction,
                                                  uint32_t rank)
{
    struct muster_generation_view generation =
        muster_membership_generation(transaction->job->membership);
    struct place place = place_of(&generation, rank);
    json_t *formed = json_copy(json_object_get(generation_response(transaction), "formed"));
    json_t *own = json_pack("{sIsIsIsIsI}", "rank", (json_int_t)rank, "localRank",
                            (json_int_t)place.local_rank, "localSize", (json_int_t)place.local_size,
                            "crossRank", (json_int_t)place.cross_rank, "crossSize",
                            (json_int_t)place.cross_size);
    if (formed == NULL || own == NULL || json_object_update(formed, own) != 0) {
        json_decref(formed);
        json_decref(own);
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    json_decref(own);
    return muster_rpc_response_json(json_pack("{so}", "formed", formed));
}

/* Which of the held can be answered ----------------------------------------------------------- */

static bool join_ready(struct muster_transaction *transaction, const char *member,
                       struct muster_rpc_response *ret_response)
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
    *ret_response = formed_response(transaction, view.rank);
    return true;
}

static struct muster_watch_response look(const struct muster_job *job,
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

/* Also when its time is over: then nothing may have changed. */
static bool watch_ready(struct muster_transaction *transaction,
                        const struct muster_held_request *held, bool expired,
                        struct muster_rpc_response *ret_response)
{
    struct muster_job *job = transaction->job;
    struct muster_member_view view;
    if (!muster_membership_find(job->membership, held->member, &view)) {
        *ret_response = gone_response(job, held->member);
        return true;
    }
    struct muster_watch_response response = look(job, held, &view);
    bool news = response.revoked || response.pending != held->pending_known ||
                response.leave != held->leave_known;
    if (news || expired) {
        *ret_response = muster_rpc_response_json(muster_watch_response_encode(&response));
    }
    return news || expired;
}

void muster_members_respond_ready(struct muster_transaction *transaction)
{
    struct muster_held_request *next;
    for (struct muster_held_request *held = transaction->job->held_requests.members; held != NULL;
         held = next) {
        next = held->next;
        struct muster_rpc_response response;
        bool ready = held->method == MUSTER_RPC_JOIN
                         ? join_ready(transaction, held->member, &response)
                         : watch_ready(transaction, held, false, &response);
        if (ready) {
            muster_job_respond(transaction, held, response);
        }
    }
}

struct muster_rpc_response muster_members_expire(struct muster_transaction *transaction,
                                                 const struct muster_held_request *held)
{
    struct muster_rpc_response response;
    bool ready = held->method == MUSTER_RPC_JOIN ? join_ready(transaction, held->member, &response)
                                                 : watch_ready(transaction, held, true, &response);
    return ready ? response : waiting_response(transaction->job);
}

/* A member has one request at a time; the newer one counts. */
static void replace_held(struct muster_transaction *transaction, const char *member)
{
    struct muster_held_request *older =
        muster_held_requests_find_member(&transaction->job->held_requests, member);
    if (older != NULL) {
        muster_job_respond(
            transaction, older,
            muster_rpc_response_error(MUSTER_RPC_CANCELED, "member %s has asked anew", member));
    }
}

/* Join ---------------------------------------------------------------------------------------- */

/* Of a job that has begun, what the first Join said counts where this one says nothing. */
static struct muster_job_settings settings_for(const struct muster_transaction *transaction,
                                               const struct muster_join_request *request)
{
    const struct muster_membership *membership = transaction->job->membership;
    struct muster_job_settings settings = transaction->service->config.settings;
    bool begun = transaction->job->event_count > 0 &&
                 muster_membership_phase(membership) != MUSTER_JOB_ENDED;
    if (begun) {
        settings = muster_membership_settings(membership);
        settings.target_size = 0; /* Resize changes it: it is not compared */
    } else if (request->target_size != 0) {
        settings.target_size = request->target_size;
    }
    settings.min_size = request->min_size != 0 ? request->min_size : settings.min_size;
    settings.max_size = request->max_size != 0 ? request->max_size : settings.max_size;
    return settings;
}

/* The same Join as before, because an answer was lost or its time was over: a sign of life, but
 * nothing to store. */
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

static bool join(struct muster_transaction *transaction, struct muster_rpc_call *call,
                 const struct muster_join_request *request)
{
    const char *member = request->info.id;
    if (joined_already(transaction->job, request)) {
        muster_job_heartbeat(transaction->job, member, 0);
    } else {
        struct muster_event event = {.kind = MUSTER_EVENT_JOIN,
                                     .generation = request->info.generation,
                                     .info = request->info,
                                     .settings = settings_for(transaction, request)};
        (void)snprintf(event.member, sizeof event.member, "%s", member);
        muster_status status = muster_job_accept(transaction, &event);
        if (status != MUSTER_OK) {
            call->response = refused(transaction->job, member, status);
            return true;
        }
    }
    replace_held(transaction, member);
    if (join_ready(transaction, member, &call->response)) {
        return true;
    }
    (void)snprintf(call->held->member, sizeof call->held->member, "%s", member);
    return muster_job_hold(transaction, call, transaction->service->config.hold_ms);
}

bool muster_route_join(struct muster_rpc_call *call)
{
    struct muster_join_request request;
    muster_status status = muster_join_request_decode(call->json, &request);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return true;
    }
    struct muster_transaction transaction;
    if (!muster_transaction_begin_or_create(call, request.job, &transaction)) {
        return true;
    }
    bool answered = join(&transaction, call, &request);
    muster_transaction_end(&transaction);
    return answered;
}

/* Watch --------------------------------------------------------------------------------------- */

static bool watch(struct muster_transaction *transaction, struct muster_rpc_call *call,
                  const struct muster_watch_request *request)
{
    struct muster_job *job = transaction->job;
    struct muster_held_request *held = call->held;
    struct muster_member_view view;
    if (muster_membership_find(job->membership, request->member, &view)) {
        muster_job_heartbeat(job, request->member, request->progress);
    }
    (void)snprintf(held->member, sizeof held->member, "%s", request->member);
    held->generation = request->generation;
    held->pending_known = request->pending_known;
    held->leave_known = request->leave_known;
    replace_held(transaction, request->member);
    if (watch_ready(transaction, held, false, &call->response)) {
        return true;
    }
    return muster_job_hold(transaction, call, transaction->service->config.hold_ms);
}

bool muster_route_watch(struct muster_rpc_call *call)
{
    struct muster_watch_request request;
    muster_status status = muster_watch_request_decode(call->json, &request);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return true;
    }
    struct muster_transaction transaction;
    if (!muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    bool answered = watch(&transaction, call, &request);
    muster_transaction_end(&transaction);
    return answered;
}

/* Leave, Report ------------------------------------------------------------------------------- */

bool muster_route_leave(struct muster_rpc_call *call)
{
    struct muster_leave_request request;
    struct muster_transaction transaction;
    muster_status status = muster_leave_request_decode(call->json, &request);
    if (status == MUSTER_OK && request.reason == 0) {
        status = muster_error_set(MUSTER_INVALID, "reason: missing");
    }
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return true;
    }
    if (!muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_LEAVE,
                                 .generation = request.generation,
                                 .leave_reason = request.reason};
    (void)snprintf(event.member, sizeof event.member, "%s", request.member);
    (void)snprintf(event.why, sizeof event.why, "%s", request.why);
    status = muster_job_accept(&transaction, &event);
    /* ENDED: it has left already, and the answer was lost; or there is nothing left to leave. */
    call->response = status == MUSTER_OK || status == MUSTER_ENDED
                         ? muster_rpc_response_json(json_object())
                         : muster_rpc_response_status(status);
    muster_transaction_end(&transaction);
    return true;
}

/* The member that had this rank in the generation that runs. */
static muster_status find_suspect(const struct muster_job *job,
                                  const struct muster_report_request *request,
                                  char ret_suspect[MUSTER_UUID_SIZE])
{
    struct muster_generation_view generation = muster_membership_generation(job->membership);
    if (request->generation != generation.number) {
        return muster_error_set(MUSTER_REJOIN,
                                "generation %" PRIu64 " is not %" PRIu64 ", the last",
                                request->generation, generation.number);
    }
    if (request->suspect >= generation.size) {
        return muster_error_set(MUSTER_INVALID, "suspect: rank %u of %u", request->suspect,
                                generation.size);
    }
    (void)snprintf(ret_suspect, MUSTER_UUID_SIZE, "%s", generation.members[request->suspect]);
    return MUSTER_OK;
}

bool muster_route_report(struct muster_rpc_call *call)
{
    struct muster_report_request request;
    struct muster_transaction transaction;
    muster_status status = muster_report_request_decode(call->json, &request);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return true;
    }
    if (!muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_REPORT, .generation = request.generation};
    struct muster_member_view view;
    (void)snprintf(event.member, sizeof event.member, "%s", request.member);
    (void)snprintf(event.why, sizeof event.why, "%s", request.why);
    if (!muster_membership_find(transaction.job->membership, request.member, &view)) {
        call->response = gone_response(transaction.job, request.member);
    } else {
        muster_job_heartbeat(transaction.job, request.member, view.progress);
        status = find_suspect(transaction.job, &request, event.suspect);
        if (status == MUSTER_OK) {
            status = muster_job_accept(&transaction, &event);
        }
        call->response = status == MUSTER_OK ? muster_rpc_response_json(json_object())
                                             : refused(transaction.job, request.member, status);
    }
    muster_transaction_end(&transaction);
    return true;
}
