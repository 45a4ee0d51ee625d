/*
 * A worker's calls of the service, as its two threads make them: the caller's (Join, Report, Leave)
 * and the lease thread's (Watch). The decisions are those of session/service_policy.h and
 * session/stall_report.h; this file does what the threads do around them.
 */
#include "tests/simulation/sim.h"

#include "worker/base/keepalive.h"
#include "worker/base/random.h"
#include "worker/session/service_policy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAUSE_MAX_MS = 200, REFUSED_PAUSE_MS = 1000, LOOK_MIN_MS = 500, LOOK_MAX_MS = 1000 };

static void ask_to_join(struct sim *sim, struct sim_worker *worker);

/* A worker that is stopped does nothing; what happens to it waits. */
bool sim_worker_postpones(struct sim *sim, struct sim_worker *worker, struct sim_event *event)
{
    if (!worker->frozen || worker->thaw_ns <= sim->now_ns) {
        worker->frozen = false;
        return false;
    }
    struct sim_event later = *event;
    event->message = NULL;
    sim_push(sim, worker->thaw_ns, later);
    return true;
}

void sim_worker_push(struct sim *sim, const struct sim_worker *worker, int64_t after_ms,
                     void (*run)(struct sim *sim, struct sim_event *event), uint64_t c)
{
    sim_push(sim, sim->now_ns + after_ms * SIM_MS,
             (struct sim_event){.run = run, .a = worker->index, .b = worker->life, .c = c});
}

/* The worker that an event of sim_worker_push() is for; NULL: it is not the same process any more,
 * or the event comes again. */
struct sim_worker *sim_worker_of(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = &sim->workers[event->a];
    return !worker->alive || worker->life != event->b || sim_worker_postpones(sim, worker, event)
               ? NULL
               : worker;
}

/* As muster_session_apply_service_error(). */
static void apply_error(struct sim *sim, struct sim_worker *worker, enum muster_rpc_code code)
{
    enum muster_policy_place place = muster_policy_place(code);
    if (place == MUSTER_PLACE_KEPT || worker->finished) {
        return;
    }
    worker->declared_dead = worker->declared_dead || place == MUSTER_PLACE_LOST;
    worker->ended = worker->ended || place == MUSTER_PLACE_ENDED;
    sim_member_revoked(sim, worker);
}

/* A dial is refused if the process does not live, and its host does. */
static void dial_doubted(struct sim *sim, struct sim_call *call,
                         const struct muster_wire_peer *doubted, uint32_t count)
{
    call->refused_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        unsigned index = 0;
        (void)sscanf(doubted[i].addresses[0], "tcp://10.0.0.%u:", &index);
        const struct sim_worker *peer = &sim->workers[index];
        bool lives = peer->alive && strcmp(peer->member, doubted[i].member) == 0;
        if (!lives && !peer->host_lost && call->refused_count < MUSTER_PROBED_MAX) {
            memcpy(call->refused[call->refused_count++], doubted[i].member, MUSTER_UUID_SIZE);
        }
    }
}

/* False: none is left to report. */
static bool report_refusal(struct sim *sim, struct sim_worker *worker, unsigned channel)
{
    struct sim_call *call = &worker->calls[channel];
    struct muster_report_request request = {.job = "j", .kind = MUSTER_REPORT_RESET};
    if (call->refused_count == 0) {
        return false;
    }
    memcpy(request.member, worker->member, sizeof request.member);
    memcpy(request.suspect_member, call->refused[--call->refused_count], MUSTER_UUID_SIZE);
    sim_call_start(sim, worker, channel, MUSTER_RPC_REPORT, muster_report_request_encode(&request),
                   MUSTER_REPORT_ATTEMPT_MS, MUSTER_REPORT_ATTEMPTS, MUSTER_REPORT_TOTAL_MS);
    call->refusal = true;
    sim->totals->refusals++;
    return true;
}

/* The lease thread ------------------------------------------------------------------------------
 */

static bool nothing_to_watch(const struct sim_worker *worker)
{
    return worker->stage != SIM_RUNNING || worker->finished || worker->declared_dead ||
           worker->ended;
}

static void watch_after_pause(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    if (worker != NULL) {
        worker->pausing = false;
        sim_worker_watch(sim, worker);
    }
}

static void pause_watch(struct sim *sim, struct sim_worker *worker, uint32_t pause_ms)
{
    worker->pausing = true;
    sim_worker_push(sim, worker, pause_ms, watch_after_pause, 0);
}

void sim_worker_watch(struct sim *sim, struct sim_worker *worker)
{
    struct sim_call *call = &worker->calls[SIM_LEASE];
    if (call->request != NULL || worker->pausing || nothing_to_watch(worker)) {
        return;
    }
    if (worker->revoked == worker->generation && worker->revoked != 0) {
        if (worker->sign_sent) {
            worker->sign_sent = false;
            pause_watch(sim, worker, muster_policy_revoked_pause_ms(worker->hold_ms));
            return;
        }
        worker->sign_sent = true;
    }
    struct muster_watch_request request = {.job = "j",
                                           .generation = worker->generation,
                                           .pending_known = worker->pending,
                                           .leave_known = worker->leave_requested,
                                           .progress = worker->progress};
    memcpy(request.member, worker->member, sizeof request.member);
    sim_call_start(sim, worker, SIM_LEASE, MUSTER_RPC_WATCH, muster_watch_request_encode(&request),
                   muster_policy_watch_attempt_ms(worker->hold_ms, worker->lease_ms),
                   worker->unreachable ? MUSTER_WATCH_ATTEMPTS : 1, 0);
    call->request->timeout_ms = (uint32_t)worker->generation;
}

static void revoke(struct sim *sim, struct sim_worker *worker)
{
    if (worker->revoked != worker->generation) {
        worker->revoked = worker->generation;
        worker->sign_sent = false;
        sim_member_revoked(sim, worker);
    }
}

static void conclude_watch(struct sim *sim, struct sim_worker *worker, muster_status status,
                           enum muster_rpc_code code, const json_t *json)
{
    struct muster_watch_response response = {0};
    if (status == MUSTER_OK) {
        if (muster_watch_response_decode(json, &response) != MUSTER_OK) {
            sim_fail(sim, "a response to Watch: %s", muster_last_error());
        }
        muster_stall_watch_asked(&worker->stall, worker->hold_ms, sim->now_ns);
        worker->unreachable = false;
        if (worker->stage == SIM_RUNNING) {
            worker->pending = response.pending;
            worker->leave_requested = response.leave;
            if (response.revoked) {
                revoke(sim, worker);
            }
        }
        dial_doubted(sim, &worker->calls[SIM_LEASE], response.doubted, response.doubted_count);
        muster_watch_response_finish(&response);
        if (!report_refusal(sim, worker, SIM_LEASE)) {
            sim_worker_watch(sim, worker);
        }
        return;
    }
    enum muster_policy_watch meaning = muster_policy_watch(status, code);
    if (meaning != MUSTER_WATCH_REPLACED && worker->stage == SIM_RUNNING) {
        apply_error(sim, worker, code);
    }
    worker->unreachable = worker->unreachable || meaning == MUSTER_WATCH_UNREACHABLE;
    if (meaning == MUSTER_WATCH_REFUSED && !nothing_to_watch(worker)) {
        pause_watch(sim, worker, REFUSED_PAUSE_MS);
        return;
    }
    sim_worker_watch(sim, worker);
}

/* As the lease thread looks while a Watch is held. */
static void look(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    if (worker == NULL) {
        return;
    }
    bool calls_wait = worker->stage == SIM_RUNNING && !worker->rejoin_due && worker->waits;
    bool free_to_call = worker->calls[SIM_CALLER].request == NULL;
    if (free_to_call && worker->lease_ms > 0 &&
        muster_stall_watch_look(&worker->stall, calls_wait, worker->progress, worker->lease_ms,
                                worker->hold_ms, sim->now_ns)) {
        sim_worker_report(sim, worker, worker->rank, MUSTER_REPORT_WAITING);
    }
    sim_worker_push(sim, worker, sim_between(LOOK_MIN_MS, LOOK_MAX_MS), look, 0);
}

/* The caller's thread ---------------------------------------------------------------------------
 */

void sim_worker_report(struct sim *sim, struct sim_worker *worker, uint32_t suspect,
                       enum muster_report_kind kind)
{
    struct muster_report_request request = {
        .job = "j", .generation = worker->generation, .suspect = suspect, .kind = kind};
    memcpy(request.member, worker->member, sizeof request.member);
    worker->reporting_stall = kind == MUSTER_REPORT_WAITING;
    sim_call_start(sim, worker, SIM_CALLER, MUSTER_RPC_REPORT,
                   muster_report_request_encode(&request), MUSTER_REPORT_ATTEMPT_MS,
                   worker->reporting_stall ? 1 : MUSTER_REPORT_ATTEMPTS,
                   worker->reporting_stall ? MUSTER_REPORT_ATTEMPT_MS : MUSTER_REPORT_TOTAL_MS);
}

static void ask_to_join(struct sim *sim, struct sim_worker *worker)
{
    struct muster_join_request request = {.job = "j",
                                          .min_size = sim->plan.min,
                                          .max_size = sim->plan.max,
                                          .target_size = sim->plan.target,
                                          .wire_version = 1};
    if (worker->leave_called || worker->leave_requested) {
        sim_worker_leave(sim, worker, MUSTER_LEAVE_PLANNED);
        return;
    }
    memcpy(request.info.id, worker->member, sizeof request.info.id);
    memcpy(request.info.host, worker->host, sizeof request.info.host);
    (void)snprintf(request.info.capabilities, sizeof request.info.capabilities,
                   MUSTER_CAPABILITY_DIALS);
    request.info.state_version = worker->version;
    request.info.generation = worker->generation;
    request.info.order = worker->index;
    request.info.pid = worker->index;
    request.info.address_count = 1;
    (void)snprintf(request.info.addresses[0], sizeof request.info.addresses[0],
                   "tcp://10.0.0.%u:1000", worker->index);
    sim_call_start(sim, worker, SIM_CALLER, MUSTER_RPC_JOIN, muster_join_request_encode(&request),
                   muster_policy_join_attempt_ms(worker->hold_ms), MUSTER_JOIN_ATTEMPTS, 0);
}

static void join_after_pause(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    if (worker != NULL && worker->stage == SIM_JOINING &&
        worker->calls[SIM_CALLER].request == NULL) {
        ask_to_join(sim, worker);
    }
}

/* As change_identity() of rejoin.c. */
static void change_identity(struct sim_worker *worker)
{
    worker->declared_dead = false;
    worker->known_to_service = false;
    worker->generation = 0;
    muster_random_uuid(worker->member);
}

static void depart(struct sim *sim, struct sim_worker *worker)
{
    sim_member_end(sim, worker, false);
    worker->stage = SIM_LEFT;
    for (unsigned channel = 0; channel < SIM_CHANNELS; channel++) {
        sim_call_drop(&worker->calls[channel]);
        sim_network_close(sim, worker->index, channel);
    }
    worker->alive = false;
    sim_trace(sim, "w%u has left", worker->index);
}

static void conclude_join(struct sim *sim, struct sim_worker *worker, muster_status status,
                          enum muster_rpc_code code, const json_t *json)
{
    struct muster_join_response response = {0};
    if (status == MUSTER_OK) {
        if (muster_join_response_decode(json, &response) != MUSTER_OK) {
            sim_fail(sim, "a response to Join: %s", muster_last_error());
        }
        worker->known_to_service = true;
        if (response.formed) {
            sim_check_formed(sim, worker, &response);
            worker->stage = SIM_RUNNING;
            worker->pending = false;
            worker->leave_requested = false;
            worker->rejoin_due = false;
            worker->hold_ms = response.hold_ms;
            worker->lease_ms = response.lease_ms;
            sim_member_begin(sim, worker, &response);
            sim_worker_watch(sim, worker);
        } else {
            dial_doubted(sim, &worker->calls[SIM_CALLER], response.doubted, response.doubted_count);
            if (!report_refusal(sim, worker, SIM_CALLER)) {
                ask_to_join(sim, worker);
            }
        }
        muster_join_response_finish(&response);
        return;
    }
    if (muster_policy_join_place(code, worker->known_to_service) != MUSTER_PLACE_KEPT) {
        apply_error(sim, worker, code);
    }
    if (worker->declared_dead) {
        change_identity(worker);
        ask_to_join(sim, worker);
    } else if (worker->ended || status == MUSTER_ENDED) {
        depart(sim, worker);
    } else if (muster_policy_joins_again(status)) {
        sim_worker_push(sim, worker, status == MUSTER_REJOIN ? sim_between(1, PAUSE_MAX_MS) : 0,
                        join_after_pause, 0);
    } else {
        sim_fail(sim, "w%u cannot join: %s", worker->index, muster_rpc_code_name(code));
    }
}

static void join_now(struct sim *sim, struct sim_worker *worker)
{
    if (worker->declared_dead) {
        change_identity(worker);
    }
    ask_to_join(sim, worker);
}

static void rejoin_after_pause(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    if (worker != NULL && worker->stage == SIM_JOINING &&
        worker->calls[SIM_CALLER].request == NULL) {
        join_now(sim, worker);
    }
}

/* The caller's client may be in use by a report: then this comes again. */
static void rejoin_later(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    if (worker != NULL && worker->stage == SIM_RUNNING) {
        sim_worker_rejoin(sim, worker);
    }
}

void sim_worker_rejoin(struct sim *sim, struct sim_worker *worker)
{
    if (worker->calls[SIM_CALLER].request != NULL) {
        sim_worker_push(sim, worker, 1, rejoin_later, 0);
        return;
    }
    worker->failed_generations = worker->progress > 0 ? 0 : worker->failed_generations + 1;
    sim_member_end(sim, worker, false);
    worker->stage = SIM_JOINING;
    if (worker->ended) {
        depart(sim, worker);
        return;
    }
    sim_worker_push(sim, worker, muster_policy_rejoin_pause_ms(worker->failed_generations),
                    rejoin_after_pause, 0);
}

void sim_worker_leave(struct sim *sim, struct sim_worker *worker, enum muster_leave_reason reason)
{
    struct muster_leave_request request = {
        .job = "j", .generation = worker->generation, .reason = reason};
    memcpy(request.member, worker->member, sizeof request.member);
    worker->stage = SIM_LEAVING;
    worker->finished = worker->finished || reason == MUSTER_LEAVE_FINISHED;
    sim->totals->finishes += reason == MUSTER_LEAVE_FINISHED;
    sim_call_start(sim, worker, SIM_CALLER, MUSTER_RPC_LEAVE, muster_leave_request_encode(&request),
                   MUSTER_LEAVE_TOTAL_MS, 0, MUSTER_LEAVE_TOTAL_MS);
}

void sim_worker_conclude(struct sim *sim, struct sim_worker *worker, unsigned channel,
                         muster_status status, enum muster_rpc_code code, const json_t *json)
{
    if (worker->calls[channel].refusal) {
        if (report_refusal(sim, worker, channel)) {
            return;
        }
        if (channel == SIM_LEASE) {
            sim_worker_watch(sim, worker);
        } else if (worker->stage == SIM_JOINING) {
            ask_to_join(sim, worker);
        }
    } else if (channel == SIM_LEASE) {
        conclude_watch(sim, worker, status, code, json);
    } else if (worker->stage == SIM_LEAVING) {
        depart(sim, worker);
    } else if (worker->stage == SIM_JOINING) {
        conclude_join(sim, worker, status, code, json);
    } else if (worker->stage == SIM_RUNNING) { /* a Report */
        if (status != MUSTER_OK && !worker->reporting_stall) {
            apply_error(sim, worker, code);
        }
        if (!worker->reporting_stall) {
            sim_worker_rejoin(sim, worker);
        }
    }
}

/* Its life --------------------------------------------------------------------------------------
 */

void sim_worker_start(struct sim *sim, unsigned index)
{
    struct sim_worker *worker = &sim->workers[index];
    uint64_t life = worker->life + 1;
    uint64_t highest = worker->highest;
    *worker = (struct sim_worker){.index = index,
                                  .alive = true,
                                  .life = life,
                                  .stage = SIM_JOINING,
                                  .suspect = UINT32_MAX,
                                  .highest = highest};
    (void)snprintf(worker->host, sizeof worker->host, "h%u", index % sim->plan.hosts);
    muster_random_uuid(worker->member);
    for (unsigned channel = 0; channel < SIM_CHANNELS; channel++) {
        struct sim_call *call = &worker->calls[channel];
        call->at = call->server = (unsigned)sim_between(0, sim->plan.servers - 1);
    }
    sim_trace(sim, "w%u starts", index);
    ask_to_join(sim, worker);
    sim_worker_push(sim, worker, sim_between(LOOK_MIN_MS, LOOK_MAX_MS), look, 0);
}

/* with_host: nothing resets its connections. */
void sim_worker_kill(struct sim *sim, unsigned index, bool with_host)
{
    struct sim_worker *worker = &sim->workers[index];
    sim_trace(sim, "w%u is killed%s", index, with_host ? " with its host" : "");
    sim_member_end(sim, worker, !with_host);
    for (unsigned channel = 0; channel < SIM_CHANNELS; channel++) {
        struct sim_call *call = &worker->calls[channel];
        struct sim_connection *connection = sim_connection(sim, call->connection);
        sim_call_drop(call);
        if (connection != NULL && with_host) { /* the server's keepalive finds out */
            sim_push(sim, sim->now_ns + 1000 * MUSTER_KEEPALIVE_ENDS_S * (int64_t)SIM_MS,
                     (struct sim_event){.run = sim_server_closed, .a = call->connection});
            connection->lost = true;
        }
        sim_network_close(sim, index, channel);
    }
    worker->alive = false;
    worker->host_lost = with_host;
    worker->stage = SIM_OFF;
}

void sim_worker_freeze(struct sim *sim, unsigned index, int64_t until_ns)
{
    sim->workers[index].frozen = true;
    sim->workers[index].thaw_ns = until_ns;
    sim_trace(sim, "w%u is stopped", index);
}
