/* Resize, EndJob, GetJob, ListJobs: the methods of people and launchers. */
#include "rendezvous/routes/routes.h"
#include "rendezvous/routes/watching.h"
#include "rendezvous/service/damaged_jobs.h"
#include "rendezvous/service/job_events.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lets the job accept the event; the response is empty. To end a job that has ended already is no
 * error, as a retry of EndJob does it. */
static bool accept_event(struct muster_rpc_call *call, const char *job, struct muster_event *event)
{
    struct muster_transaction transaction;
    if (event->kind == MUSTER_EVENT_END && muster_damaged_jobs_end(call, job)) {
        return true;
    }
    if (!muster_transaction_begin(call, job, &transaction)) {
        return true;
    }
    bool ended = muster_membership_phase(transaction.job->membership) == MUSTER_JOB_ENDED;
    bool done = ended && event->kind == MUSTER_EVENT_END;
    if (done || !muster_rpc_call_failed(call, muster_job_accept(&transaction, event))) {
        call->response = muster_rpc_response_json(json_object());
    }
    muster_transaction_end(&transaction);
    return true;
}

bool muster_route_resize(struct muster_rpc_call *call)
{
    struct muster_resize_request request;
    if (muster_rpc_call_failed(call, muster_resize_request_decode(call->json, &request))) {
        return true;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_RESIZE, .target_size = request.target_size};
    return accept_event(call, request.job, &event);
}

bool muster_route_end_job(struct muster_rpc_call *call)
{
    struct muster_job_request request;
    if (muster_rpc_call_failed(call, muster_job_request_decode(call->json, &request))) {
        return true;
    }
    struct muster_event event = {.kind = MUSTER_EVENT_END};
    (void)snprintf(event.why, sizeof event.why, "%s",
                   request.why[0] != '\0' ? request.why : "ended on request");
    return accept_event(call, request.job, &event);
}

/* GetJob -------------------------------------------------------------------------------------- */

struct job_member_ranks {
    int32_t local, cross;
};

/* Local and cross rank by rank. The cross rank is the number of earlier hosts with that local rank.
 * A host's local ranks are seen in order, so one counter a local rank is enough. */
static void fill_ranks(const struct muster_generation_view *generation,
                       struct job_member_ranks *ranks, uint32_t *counters)
{
    uint32_t rank = 0;
    for (uint32_t host = 0; host < generation->hosts; host++) {
        for (uint32_t local = 0; local < generation->host_sizes[host]; local++) {
            ranks[rank++] = (struct job_member_ranks){(int32_t)local, (int32_t)counters[local]++};
        }
    }
}

static void fill_members(const struct muster_job *job, const struct job_member_ranks *ranks,
                         struct muster_job_response *response)
{
    int64_t now_ms = response->now_ms;
    struct muster_member_view view;
    for (uint32_t i = 0; i < response->member_count; i++) {
        if (!muster_membership_member(job->membership, i, &view)) {
            response->member_count = i;
            return;
        }
        struct muster_job_member *member = &response->members[i];
        member->info = *view.info;
        member->phase = view.phase;
        member->rank = view.rank == UINT32_MAX ? -1 : (int32_t)view.rank;
        member->local_rank = view.rank == UINT32_MAX ? -1 : ranks[view.rank].local;
        member->cross_rank = view.rank == UINT32_MAX ? -1 : ranks[view.rank].cross;
        member->joined_ms = view.joined_ms;
        member->progress = view.progress;
        member->silent_ms =
            now_ms > view.last_seen_ms && !view.held ? (uint64_t)(now_ms - view.last_seen_ms) : 0;
        member->suspected = view.suspected;
        member->leave_asked = view.leave_asked;
        response->pending = response->pending || view.leave_asked;
    }
}

static void fill_records(const struct muster_job *job, struct muster_job_response *response)
{
    while (
        response->generation_count < MUSTER_HISTORY_MAX &&
        muster_membership_generation_record(job->membership, response->generation_count,
                                            &response->generations[response->generation_count])) {
        response->generation_count++;
    }
    while (response->departure_count < MUSTER_HISTORY_MAX &&
           muster_membership_departure_record(job->membership, response->departure_count,
                                              &response->departures[response->departure_count])) {
        response->departure_count++;
    }
}

json_t *muster_watch_describe(const struct muster_job *job)
{
    const struct muster_membership *membership = job->membership;
    struct muster_job_settings settings = muster_membership_settings(membership);
    uint32_t count = muster_membership_count(membership);
    struct muster_generation_view generation = muster_membership_generation(membership);
    AUTO_FREE struct job_member_ranks *ranks = calloc((size_t)generation.size + 1, sizeof *ranks);
    AUTO_FREE uint32_t *counters = calloc((size_t)generation.size + 1, sizeof *counters);
    struct muster_job_response response = {
        .phase = muster_membership_phase(membership),
        .generation = generation.number,
        .now_ms = muster_job_now_ms(job),
        .min_size = settings.min_size,
        .max_size = settings.max_size,
        .target_size = settings.target_size,
        .wire_version = settings.wire_version,
        .resizes = muster_membership_resizes(membership),
        .pending = muster_membership_pending(membership),
        .member_count = count,
        .members = calloc((size_t)count + 1, sizeof *response.members),
        .generations = calloc(MUSTER_HISTORY_MAX, sizeof *response.generations),
        .departures = calloc(MUSTER_HISTORY_MAX, sizeof *response.departures),
    };
    json_t *json = NULL;
    (void)snprintf(response.name, sizeof response.name, "%s", job->name);
    (void)snprintf(response.why, sizeof response.why, "%s", muster_membership_why(membership));
    if (response.members != NULL && response.generations != NULL && response.departures != NULL &&
        ranks != NULL && counters != NULL) {
        fill_ranks(&generation, ranks, counters);
        fill_members(job, ranks, &response);
        fill_records(job, &response);
        json = muster_job_response_encode(&response);
    }
    muster_job_response_finish(&response);
    return json;
}

bool muster_route_get_job(struct muster_rpc_call *call)
{
    struct muster_job_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, muster_job_request_decode(call->json, &request)) ||
        !muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    call->response = muster_rpc_response_json(muster_watch_describe(transaction.job));
    muster_transaction_end(&transaction);
    return true;
}

/* ListJobs ------------------------------------------------------------------------------------ */

static void summarize(struct muster_transaction *transaction, void *user)
{
    struct muster_jobs_response *response = user;
    const struct muster_membership *membership = transaction->job->membership;
    struct muster_generation_view generation = muster_membership_generation(membership);
    if (response->count >= MUSTER_JOBS_MAX || transaction->job->event_count == 0) {
        return;
    }
    struct muster_job_summary *summary = &response->jobs[response->count++];
    (void)snprintf(summary->name, sizeof summary->name, "%s", transaction->job->name);
    summary->phase = muster_membership_phase(membership);
    summary->generation = generation.number;
    summary->size = generation.size;
    summary->members = muster_membership_count(membership);
}

bool muster_route_list_jobs(struct muster_rpc_call *call)
{
    struct muster_jobs_response response = {
        .jobs = calloc(MUSTER_JOBS_MAX, sizeof *response.jobs),
    };
    json_t *json = NULL;
    if (response.jobs != NULL) {
        (void)muster_transaction_each(call->service, MUSTER_NEVER, summarize, &response);
        json = muster_jobs_response_encode(&response);
    }
    muster_jobs_response_finish(&response);
    call->response = muster_rpc_response_json(json);
    return true;
}
