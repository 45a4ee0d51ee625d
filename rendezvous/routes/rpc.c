/* The table of methods, and what happens to a call before and after its route. */
#include "rendezvous/routes/rpc.h"

#include "rendezvous/routes/routes.h"
#include "rendezvous/service/job_events.h"
#include "rendezvous/service/ownership.h"
#include "worker/base/log.h"

#include <string.h>

enum {
    SEE_OR_WORK = MUSTER_RIGHT_SEE | MUSTER_RIGHT_WORK,
    SEE_OR_RULE = MUSTER_RIGHT_SEE | MUSTER_RIGHT_RULE,
};

/* The methods by number; README.md has what a new one needs. */
static const struct {
    bool (*route)(struct muster_rpc_call *call);
    bool safe;       /* NO_SIDE_EFFECTS in the .proto */
    unsigned needs;  /* one of these rights */
    unsigned waives; /* any of these rights stands for the job's token */
} routes[MUSTER_RPC_METHOD_COUNT] = {
    [MUSTER_RPC_JOIN] = {muster_route_join, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_WATCH] = {muster_route_watch, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_LEAVE] = {muster_route_leave, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_REPORT] = {muster_route_report, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_RESIZE] = {muster_route_resize, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_PUT] = {muster_route_put, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_GET] = {muster_route_get, true, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_WAIT] = {muster_route_wait, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_GET_JOB] = {muster_route_get_job, true, SEE_OR_WORK, SEE_OR_RULE},
    [MUSTER_RPC_LIST_JOBS] = {muster_route_list_jobs, true, MUSTER_RIGHT_LIST, 0},
    [MUSTER_RPC_END_JOB] = {muster_route_end_job, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_PEERS] = {muster_route_peers, true, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_ADD] = {muster_route_add, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_COMPARE_AND_SWAP] = {muster_route_compare_and_swap, false, MUSTER_RIGHT_WORK,
                                     MUSTER_RIGHT_RULE},
    [MUSTER_RPC_DELETE] = {muster_route_delete, false, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_COUNT_KEYS] = {muster_route_count_keys, true, MUSTER_RIGHT_WORK, MUSTER_RIGHT_RULE},
    [MUSTER_RPC_WATCH_STREAM] = {muster_route_watch_stream, false, SEE_OR_WORK, SEE_OR_RULE},
};

bool muster_rpc_find_method(const char *name, enum muster_rpc_method *ret_method)
{
    for (int i = 0; i < MUSTER_RPC_METHOD_COUNT; i++) {
        if (strcmp(muster_rpc_method_name((enum muster_rpc_method)i), name) == 0) {
            *ret_method = (enum muster_rpc_method)i;
            return true;
        }
    }
    return false;
}

bool muster_rpc_allows(enum muster_rpc_method method, unsigned rights)
{
    return (routes[method].needs & rights) != 0;
}

bool muster_rpc_is_safe(enum muster_rpc_method method)
{
    return routes[method].safe;
}

bool muster_rpc_changes_values(enum muster_rpc_method method)
{
    return method == MUSTER_RPC_PUT || method == MUSTER_RPC_ADD ||
           method == MUSTER_RPC_COMPARE_AND_SWAP || method == MUSTER_RPC_DELETE;
}

static bool token_valid(const char *token)
{
    size_t length = strlen(token);
    for (size_t i = 0; i < length; i++) {
        if (token[i] <= ' ' || token[i] > '~') {
            return false;
        }
    }
    return length > 0 && length <= MUSTER_TOKEN_MAX_BYTES;
}

/* A response that depends on what is not synced yet is sent like that of a held request. */
static bool defer(struct muster_rpc_call *call)
{
    struct muster_service *service = call->service;
    if (!muster_commits_pending(&service->commits, call->written)) {
        return false;
    }
    struct muster_ready_responses responses = {0};
    call->held->id = (struct muster_held_id){.serial = atomic_fetch_add(&service->serials, 1) + 1};
    call->held->claim = call->claim;
    muster_metrics_response(&service->metrics, call->request->method, call->response.code);
    muster_ready_responses_add(&responses, call->held, call->response);
    muster_commits_send(&service->commits, &responses, call->written);
    return true;
}

/* The response goes by way of another server, and may be lost with it. */
static void expect_member(struct muster_service *service, const char *job, const char *member)
{
    struct muster_transaction transaction;
    if (muster_transaction_begin_internal(service, job, &transaction)) {
        muster_transaction_expect_forwarded(&transaction, member);
        muster_transaction_end(&transaction);
    }
}

/* This server must have the job before the call, and still when it responds. */
static bool run_route(struct muster_rpc_call *call)
{
    struct muster_service *service = call->service;
    const char *job = json_string_value(json_object_get(call->json, "job"));
    if (job != NULL &&
        !muster_ownership_ensure(call, job, call->request->method == MUSTER_RPC_JOIN)) {
        return true;
    }
    uint64_t claimed = call->claim;
    bool answered = routes[call->request->method].route(call);
    if (answered && call->request->forwarded && call->held->id.member[0] != '\0') {
        expect_member(service, job, call->held->id.member);
    }
    muster_ownership_conclude(service, claimed);
    if (answered && !defer(call)) {
        muster_status status = muster_ownership_check(service->store, call->claim);
        if (status != MUSTER_OK) {
            muster_rpc_response_finish(&call->response);
            call->response = muster_rpc_response_status(status);
        }
        return true;
    }
    return false;
}

/* What is the same for all methods, then the route. */
static bool handle(struct muster_service *service, const struct muster_rpc_request *request,
                   struct muster_held_request *held, struct muster_rpc_response *ret_response)
{
    if (request->token != NULL && !token_valid(request->token)) {
        *ret_response =
            muster_rpc_response_error(MUSTER_RPC_UNAUTHENTICATED,
                                      "token: must be 1 to %d printable characters without "
                                      "spaces",
                                      MUSTER_TOKEN_MAX_BYTES);
        return true;
    }
    json_t *json = NULL;
    muster_status status = muster_json_parse(request->body, request->size_bytes, &json);
    if (status != MUSTER_OK) {
        *ret_response = muster_rpc_response_status(status);
        return true;
    }
    struct muster_rpc_call call = {.service = service,
                                   .request = request,
                                   .json = json,
                                   .held = held,
                                   .needs_no_token =
                                       (routes[request->method].waives & request->rights) != 0};
    bool answered = run_route(&call);
    json_decref(json);
    if (answered) {
        *ret_response = call.response;
    }
    return answered;
}

bool muster_rpc_handle(struct muster_service *service, const struct muster_rpc_request *request,
                       struct muster_held_request *held, struct muster_rpc_response *ret_response)
{
    bool answered = handle(service, request, held, ret_response);
    if (answered) { /* else it is counted when its response is ready, or was when deferred */
        muster_metrics_response(&service->metrics, request->method, ret_response->code);
    }
    return answered;
}

/* A closed connection says something of this member only if it has not connected anew. */
static bool is_sign_of_death(const struct muster_transaction *transaction, const char *member,
                             struct muster_member_view *ret_view)
{
    return !atomic_load(&transaction->service->quiesced) && member[0] != '\0' &&
           muster_held_requests_find_member(&transaction->job->held_requests, member) == NULL &&
           muster_membership_find(transaction->job->membership, member, ret_view);
}

/* If a request was held, it is evidence, unless another server had forwarded the request, which may
 * be what has gone. Else it may have closed for many reasons, so it counts only if the member is
 * suspected already. In all cases others dial the member. */
static void doubt(struct muster_transaction *transaction, const char *member, bool is_evidence)
{
    struct muster_event event = {.kind = MUSTER_EVENT_DISCONNECT};
    memcpy(event.member, member, sizeof event.member);
    if (!is_evidence) {
        muster_membership_doubt(transaction->job->membership, member);
    } else if (muster_job_accept(transaction, &event) != MUSTER_OK) {
        /* Not lost: if the member is dead, its lease ends. */
        muster_log(MUSTER_LOG_DEBUG, "job=%s member=%s disconnected: %s", transaction->job->name,
                   member, muster_last_error());
        return;
    }
    if (muster_doubts_add(&transaction->job->doubts, transaction->job->membership, member)) {
        muster_doubts_ask_held(transaction);
    }
}

/* The held request ends first: it must not count as a newer one of its member. */
void muster_rpc_disconnected(struct muster_service *service, const struct muster_held_id *id)
{
    struct muster_transaction transaction;
    if (!muster_transaction_begin_internal(service, id->job, &transaction)) {
        return;
    }
    struct muster_held_request *held =
        muster_held_requests_find(&transaction.job->held_requests, id);
    if (held != NULL) {
        muster_transaction_expect_crowd(&transaction); /* perhaps a proxy has ended */
        muster_transaction_respond(
            &transaction, held,
            muster_rpc_response_error(MUSTER_RPC_CANCELED, "the connection closed"));
    }
    struct muster_member_view view;
    if (is_sign_of_death(&transaction, id->member, &view)) {
        bool is_evidence = !id->forwarded && (held != NULL || view.suspected);
        if (is_evidence || muster_doubts_dials(view.info)) {
            doubt(&transaction, id->member, is_evidence);
        }
    }
    muster_transaction_end(&transaction);
}
