/*
 * WatchStream: one call a message. The response says with which cursor the next call is made, so
 * that the stream has no state between two messages but that number.
 *
 *   member  1, pending known, leave known (three bits), and the milliseconds at which it ends
 *   viewer  1, resting (two bits), and the job's changes that the viewer has seen
 */
#include "rendezvous/routes/routes.h"
#include "rendezvous/routes/rpc.h"
#include "rendezvous/routes/watching.h"
#include "rendezvous/service/job_events.h"
#include "worker/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PENDING_KNOWN = 2,
    LEAVE_KNOWN = 4,
    MEMBER_BITS = 3,
    RESTING = 2,
    VIEWER_BITS = 2,
    /* Between two messages to a viewer; longer in a large job, whose picture takes time to draw
     * while the job is locked: 10,000 members make it 1.25 s. */
    REST_MS = 250,
    MEMBERS_A_REST_MS = 10,
    /* A viewer whose time is nearly over gets no more messages. */
    LAST_MS = 500,
};

/* {name: message}, or the error that it is. Takes the message. */
static struct muster_rpc_response part(const char *name, json_t *message, uint64_t next)
{
    json_t *json = json_object();
    if (message == NULL || json_object_set_new(json, name, message) != 0) {
        json_decref(json);
        json = NULL;
    }
    struct muster_rpc_response response = muster_rpc_response_json(json);
    response.next = response.code == MUSTER_RPC_OK ? next : 0;
    return response;
}

/* No message. */
static struct muster_rpc_response silence(uint64_t next)
{
    return (struct muster_rpc_response){.code = MUSTER_RPC_OK, .body = strdup(""), .next = next};
}

/* Members ------------------------------------------------------------------------------------- */

/* Takes the response to a Watch. The stream goes on unless the generation is over. */
static struct muster_rpc_response member_message(const struct muster_held_request *held,
                                                 struct muster_rpc_response watch)
{
    json_t *json = NULL;
    if (watch.code != MUSTER_RPC_OK || watch.body == NULL) {
        return watch;
    }
    muster_status status = muster_json_parse(watch.body, watch.size_bytes, &json);
    muster_rpc_response_finish(&watch);
    if (status != MUSTER_OK) {
        return muster_rpc_response_status(status);
    }
    uint64_t cursor = held->cursor >> MEMBER_BITS << MEMBER_BITS | 1;
    cursor |= json_is_true(json_object_get(json, "pending")) ? PENDING_KNOWN : 0;
    cursor |= json_is_true(json_object_get(json, "leave")) ? LEAVE_KNOWN : 0;
    bool revoked = json_is_true(json_object_get(json, "revoked"));
    return part("watch", json, revoked ? 0 : cursor);
}

static bool member_ready(struct muster_transaction *transaction,
                         const struct muster_held_request *held,
                         struct muster_rpc_response *ret_response)
{
    struct muster_rpc_response watch;
    if (!muster_watch_respond(transaction, held, false, &watch)) {
        return false;
    }
    *ret_response = member_message(held, watch);
    return true;
}

/* The member opens the next stream: that is its sign of life. */
static struct muster_rpc_response expire_member(struct muster_transaction *transaction,
                                                const struct muster_held_request *held)
{
    struct muster_rpc_response response;
    return member_ready(transaction, held, &response) ? response : silence(0);
}

static const struct muster_held_kind member_kind = {
    .of_member = true, .ends_by_ask = true, .ready = member_ready, .expire = expire_member};

/* Only the first call is a sign of life: the others are the server's own. */
static bool watch_as_member(struct muster_transaction *transaction, struct muster_rpc_call *call,
                            const struct muster_watch_request *request)
{
    struct muster_job *job = transaction->job;
    struct muster_held_request *held = call->held;
    struct muster_member_view view;
    uint64_t cursor = call->request->cursor;
    uint64_t now_ms = (uint64_t)(muster_clock_ns() / MUSTER_NS_PER_MS);
    bool first = cursor == 0;
    if (first) {
        uint64_t end_ms = now_ms + muster_transaction_watch_ms(transaction, request->member);
        cursor = end_ms << MEMBER_BITS | 1 | (request->pending_known ? PENDING_KNOWN : 0) |
                 (request->leave_known ? LEAVE_KNOWN : 0);
    }
    if (first && muster_membership_find(job->membership, request->member, &view)) {
        muster_job_heartbeat(job, request->member, request->progress);
    }
    (void)snprintf(held->id.member, sizeof held->id.member, "%s", request->member);
    held->generation = request->generation;
    held->pending_known = (cursor & PENDING_KNOWN) != 0;
    held->leave_known = (cursor & LEAVE_KNOWN) != 0;
    held->cursor = cursor;
    if (first) {
        muster_watch_cancel_older(transaction, request->member);
    } else if (muster_held_requests_find_member(&job->held_requests, request->member) != NULL) {
        call->response = silence(0); /* the member has sent a newer request */
        return true;
    }
    uint64_t end_ms = cursor >> MEMBER_BITS;
    if (member_ready(transaction, held, &call->response)) {
        return true;
    }
    if (end_ms <= now_ms) {
        call->response = silence(0);
        return true;
    }
    return muster_transaction_hold(transaction, call, &member_kind, (uint32_t)(end_ms - now_ms));
}

/* Viewers ------------------------------------------------------------------------------------- */

/* An ended job has no more changes. */
static struct muster_rpc_response picture(const struct muster_job *job)
{
    bool ended = muster_membership_phase(job->membership) == MUSTER_JOB_ENDED;
    json_t *whole = muster_watch_describe(job);
    json_t *described = json_incref(json_object_get(whole, "job"));
    json_decref(whole);
    return part("job", described, ended ? 0 : job->changes << VIEWER_BITS | RESTING | 1);
}

static bool has_news(const struct muster_job *job, const struct muster_held_request *held)
{
    return job->changes != held->cursor >> VIEWER_BITS;
}

static bool viewer_ready(struct muster_transaction *transaction,
                         const struct muster_held_request *held,
                         struct muster_rpc_response *ret_response)
{
    if (!has_news(transaction->job, held)) {
        return false;
    }
    *ret_response = picture(transaction->job);
    return true;
}

static struct muster_rpc_response expire_viewer(struct muster_transaction *transaction,
                                                const struct muster_held_request *held)
{
    (void)held;
    return picture(transaction->job);
}

static const struct muster_held_kind viewer_kind = {
    .of_viewer = true, .ready = viewer_ready, .expire = expire_viewer};

/* The end of a job does not wait. */
static bool resting_ready(struct muster_transaction *transaction,
                          const struct muster_held_request *held,
                          struct muster_rpc_response *ret_response)
{
    return muster_membership_phase(transaction->job->membership) == MUSTER_JOB_ENDED &&
           viewer_ready(transaction, held, ret_response);
}

static struct muster_rpc_response expire_resting(struct muster_transaction *transaction,
                                                 const struct muster_held_request *held)
{
    return has_news(transaction->job, held) ? picture(transaction->job)
                                            : silence(held->cursor & ~(uint64_t)RESTING);
}

static const struct muster_held_kind resting_kind = {
    .of_viewer = true, .ready = resting_ready, .expire = expire_resting};

static bool watch_as_viewer(struct muster_transaction *transaction, struct muster_rpc_call *call)
{
    struct muster_job *job = transaction->job;
    uint64_t cursor = call->request->cursor;
    bool resting = (cursor & RESTING) != 0;
    call->held->cursor = cursor;
    if (cursor == 0 || (!resting && has_news(job, call->held))) {
        call->response = picture(job);
        return true;
    }
    if (call->request->timeout_ms < LAST_MS) {
        call->response = muster_rpc_response_error(MUSTER_RPC_DEADLINE_EXCEEDED,
                                                   "job %s: the client's time is over", job->name);
        return true;
    }
    if (job->held_requests.viewer_count >= MUSTER_VIEWERS_MAX) {
        call->response = muster_rpc_response_error(MUSTER_RPC_RESOURCE_EXHAUSTED,
                                                   "job %s: has %d viewers already", job->name,
                                                   MUSTER_VIEWERS_MAX);
        return true;
    }
    uint32_t rest_ms = REST_MS + muster_membership_count(job->membership) / MEMBERS_A_REST_MS;
    return muster_transaction_hold(transaction, call, resting ? &resting_kind : &viewer_kind,
                                   resting ? rest_ms : transaction->service->config.hold_ms);
}

/* Who may only see jobs is no member. The table in rpc.c has the rights of viewers. */
static bool forbidden(struct muster_rpc_call *call, const struct muster_watch_request *request)
{
    unsigned rights = call->request->rights;
    if (request->member[0] == '\0') {
        return false;
    }
    call->needs_no_token = (rights & MUSTER_RIGHT_RULE) != 0;
    if (!muster_rpc_allows(MUSTER_RPC_WATCH, rights)) {
        call->response = muster_rpc_response_error(
            MUSTER_RPC_PERMISSION_DENIED,
            "member: to watch as one needs a token of the role worker or admin");
        return true;
    }
    return false;
}

bool muster_route_watch_stream(struct muster_rpc_call *call)
{
    struct muster_watch_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, muster_stream_request_decode(call->json, &request)) ||
        forbidden(call, &request) || !muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    bool answered = request.member[0] != '\0' ? watch_as_member(&transaction, call, &request)
                                              : watch_as_viewer(&transaction, call);
    muster_transaction_end(&transaction);
    return answered;
}
