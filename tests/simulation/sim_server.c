/* The server: the service as it is, on the simulated disk, with its threads' steps as events. */
#include "tests/simulation/sim.h"

#include "rendezvous/routes/rpc.h"
#include "rendezvous/service/driven.h"
#include "rendezvous/service/jobs.h"
#include "rendezvous/store/store.h"
#include "worker/base/keepalive.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESTART_RETRY_MS = 500, NESTED_MAX = 20 };

/* One request in the service. */
struct sim_request {
    struct muster_held_request held; /* first */
    struct sim *sim;
    uint64_t life;
    struct sim_message *message;
    bool *responded; /* while the service handles it; else NULL */
};

static void plan_steps(struct sim *sim);

static struct muster_job *find_job(struct sim *sim)
{
    struct muster_job *job = NULL;
    if (sim->server.service != NULL) {
        HASH_FIND_STR(sim->server.service->jobs, "j", job);
    }
    return job;
}

struct muster_membership *sim_server_membership(struct sim *sim)
{
    const struct muster_job *job = find_job(sim);
    return job != NULL ? job->membership : NULL;
}

/* Its life --------------------------------------------------------------------------------------
 */

static void start_again(struct sim *sim, struct sim_event *event)
{
    if (event->a == sim->server.life && sim->server.service == NULL && !sim_server_start(sim)) {
        sim_push(sim, sim->now_ns + (int64_t)RESTART_RETRY_MS * SIM_MS,
                 (struct sim_event){.run = start_again, .a = sim->server.life});
    }
}

bool sim_server_start(struct sim *sim)
{
    struct sim_server *server = &sim->server;
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.without_threads = true;
    server->tick_at_ns = SIM_NEVER;
    server->sync_planned = false;
    server->compact_planned = false;
    server->dying = false;
    if (muster_store_sqlite_open(server->path, &server->store) != MUSTER_OK ||
        muster_service_create(&config, server->store, &server->service) != MUSTER_OK) {
        if (!sim_disk_faults()->full && !sim_disk_faults()->sync_fails) {
            sim_fail(sim, "the server does not start: %s", muster_last_error());
        }
        sim_trace(sim, "the server does not start: %s", muster_last_error());
        muster_store_close(server->store);
        server->store = NULL;
        server->service = NULL;
        sim_disk_crash(false);
        return false;
    }
    server->life++;
    sim->server_highest = 0;
    sim->totals->restarts++;
    sim_trace(sim, "the server starts, life %llu", (unsigned long long)server->life);
    plan_steps(sim);
    sim_check_server(sim);
    return true;
}

/* Clients see that their connections have ended; after a power loss only by the keepalive of their
 * own kernels. */
static void reset_clients(struct sim *sim, bool told)
{
    for (uint64_t i = 1; i <= sim->connection_count; i++) {
        struct sim_connection *connection = sim_connection(sim, i);
        if (connection->open_here && !connection->lost && connection->life == sim->server.life) {
            connection->lost = true;
            int64_t most_ms = told ? 3 : INT64_C(1000) * MUSTER_KEEPALIVE_ENDS_S;
            sim_push(sim, sim->now_ns + sim_between(0, most_ms * SIM_MS),
                     (struct sim_event){.run = sim_worker_reset, .a = i});
        }
    }
}

static void end_now(struct sim *sim, struct sim_event *event)
{
    if (event->a == sim->server.life) {
        sim_server_end(sim, (enum sim_server_end)event->b);
    }
}

void sim_server_end(struct sim *sim, enum sim_server_end how)
{
    struct sim_server *server = &sim->server;
    if (server->service == NULL) {
        return;
    }
    if (sim->nested) { /* the compaction that is on the stack has to return first */
        server->ending = true;
        sim_push(sim, sim->now_ns, (struct sim_event){.run = end_now, .a = server->life, .b = how});
        return;
    }
    server->ending = false;
    sim_trace(sim, "the server %s",
              how == SIM_STOP   ? "is stopped"
              : how == SIM_KILL ? "is killed"
                                : "loses power");
    sim->totals->power_losses += how == SIM_POWER_LOSS;
    server->dying = how != SIM_STOP;
    if (server->dying) {
        sim_disk_crash(how == SIM_POWER_LOSS);
    }
    muster_service_quiesce(server->service);
    while (muster_driven_sync(server->service)) {
    }
    if (server->requests != 0) {
        sim_fail(sim, "%u requests have no response", server->requests);
    }
    muster_service_destroy(server->service);
    muster_store_close(server->store);
    if (!server->dying) {
        sim_disk_crash(false);
    }
    server->service = NULL;
    server->store = NULL;
    reset_clients(sim, how != SIM_POWER_LOSS);
    sim_push(sim,
             sim->now_ns +
                 sim_between(0, SIM_MS * (sim_chance(800) ? INT64_C(500) : INT64_C(12000))),
             (struct sim_event){.run = start_again, .a = server->life});
}

/* Its threads -----------------------------------------------------------------------------------
 */

static bool is_current(const struct sim *sim, const struct sim_event *event)
{
    return sim->server.service != NULL && event->a == sim->server.life;
}

/* A stopped process does nothing; its events come when it goes on. */
static bool postpone(struct sim *sim, struct sim_event *event)
{
    if (sim->server.paused_until_ns <= sim->now_ns) {
        return false;
    }
    struct sim_event later = *event;
    event->message = NULL;
    sim_push(sim, sim->server.paused_until_ns, later);
    return true;
}

static void run_tick(struct sim *sim, struct sim_event *event)
{
    if (!is_current(sim, event) || postpone(sim, event) ||
        (int64_t)event->b != sim->server.tick_at_ns) {
        return;
    }
    sim->server.tick_at_ns = SIM_NEVER;
    muster_driven_tick(sim->server.service);
    plan_steps(sim);
    sim_check_server(sim);
}

static void run_sync(struct sim *sim, struct sim_event *event)
{
    if (!is_current(sim, event) || postpone(sim, event)) {
        return;
    }
    sim->server.sync_planned = false;
    (void)muster_driven_sync(sim->server.service);
    plan_steps(sim);
    if (sim_disk_faults()->sync_fails) {
        sim_server_end(sim, SIM_KILL); /* as its supervisor does when it is not ready */
    }
}

/* Between two steps of a compaction other things happen, but the end of the server ends it. */
static bool between_steps(void *user)
{
    struct sim *sim = user;
    for (int64_t i = sim_between(0, NESTED_MAX); i > 0 && !sim->server.ending; i--) {
        if (sim->count == 0 || sim->heap[0].at_ns > sim->now_ns + 5 * SIM_MS) {
            break;
        }
        (void)sim_step(sim);
    }
    return !sim->server.ending;
}

static void run_compaction(struct sim *sim, struct sim_event *event)
{
    if (!is_current(sim, event) || postpone(sim, event) || sim->nested) {
        return;
    }
    sim->server.compact_planned = false;
    sim->nested = true;
    sim->totals->compactions++;
    (void)muster_driven_compact(sim->server.service, between_steps, sim);
    sim->nested = false;
    plan_steps(sim);
}

/* After whatever the service did: when its threads run next. */
static void plan_steps(struct sim *sim)
{
    struct sim_server *server = &sim->server;
    int64_t tick_ns = muster_driven_next_tick_ns(server->service);
    if (tick_ns < server->tick_at_ns) {
        server->tick_at_ns = tick_ns;
        sim_push(sim, tick_ns,
                 (struct sim_event){.run = run_tick, .a = server->life, .b = (uint64_t)tick_ns});
    }
    if (server->service->commits.waiting != NULL && !server->sync_planned) {
        server->sync_planned = true;
        sim_push(sim, sim->now_ns + sim_between(SIM_MS / 10, 20 * SIM_MS),
                 (struct sim_event){.run = run_sync, .a = server->life});
    }
    struct muster_job *job = find_job(sim);
    if (job != NULL && job->compaction == 0 && sim_chance(server->compacts)) {
        job->compact_at = job->event_count;
    }
    if (server->service->compactor.queue != NULL && !server->compact_planned) {
        server->compact_planned = true;
        sim_push(sim, sim->now_ns + sim_between(0, 10 * SIM_MS),
                 (struct sim_event){.run = run_compaction, .a = server->life});
    }
}

/* Requests --------------------------------------------------------------------------------------
 */

static void copy_body(const struct muster_rpc_response *response, struct sim_message *message)
{
    size_t rest_bytes = response->rest != NULL ? response->rest->size_bytes : 0;
    free(message->body);
    message->code = response->code;
    message->size_bytes = response->size_bytes + rest_bytes;
    message->body = malloc(message->size_bytes + 1);
    assert(message->body != NULL && response->body != NULL);
    memcpy(message->body, response->body, response->size_bytes);
    if (rest_bytes > 0) {
        memcpy(message->body + response->size_bytes, response->rest->text, rest_bytes);
    }
    message->body[message->size_bytes] = '\0';
}

static void respond(struct muster_held_request *held, struct muster_rpc_response response)
{
    struct sim_request *request = (struct sim_request *)held;
    struct sim *sim = request->sim;
    sim->server.requests--;
    if (request->responded != NULL) {
        *request->responded = true;
    }
    if (sim->server.dying || request->life != sim->server.life) {
        sim_message_free(request->message);
    } else {
        copy_body(&response, request->message);
        sim_network_respond(sim, request->message);
    }
    muster_rpc_response_finish(&response);
    free(request);
}

static void handle(struct sim *sim, struct sim_message *message)
{
    struct sim_request *request = calloc(1, sizeof *request);
    const struct muster_rpc_request rpc = {
        .method = message->method,
        .rights = MUSTER_RIGHT_WORK,
        .body = message->body,
        .size_bytes = message->size_bytes,
        .timeout_ms = message->timeout_ms,
    };
    struct muster_rpc_response response;
    bool responded = false;
    assert(request != NULL);
    request->held.respond = respond;
    request->sim = sim;
    request->life = sim->server.life;
    request->message = message;
    request->responded = &responded;
    sim->server.requests++;
    sim->totals->requests++;
    uint64_t number = message->connection;
    if (muster_rpc_handle(sim->server.service, &rpc, &request->held, &response)) {
        respond(&request->held, response);
    } else if (!responded) {
        request->responded = NULL;
        if (request->held.id.job[0] != '\0') {
            sim_connection(sim, number)->held = request->held.id;
        }
    }
    plan_steps(sim);
    sim_check_server(sim);
}

/* True: the event comes again, when the server gets that far. */
static bool read_later(struct sim *sim, struct sim_event *event)
{
    if (postpone(sim, event)) {
        return true;
    }
    if (sim->server.behind_ns == 0 || event->c != 0) {
        return false;
    }
    struct sim_event later = *event;
    later.c = 1;
    event->message = NULL;
    sim_push(sim, sim->now_ns + sim->server.behind_ns, later);
    return true;
}

void sim_server_deliver(struct sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = sim_connection(sim, event->message->connection);
    if (sim->server.service == NULL || connection->life != sim->server.life) {
        if (connection->open_here && sim->server.service == NULL) { /* refused, or reset */
            sim_push(sim, sim->now_ns + sim_between(0, 2 * SIM_MS),
                     (struct sim_event){.run = sim_worker_reset, .a = event->message->connection});
            return;
        }
        if (connection->open_there || !connection->open_here || connection->lost) {
            return; /* of an earlier life */
        }
        connection->life = sim->server.life;
    }
    if (read_later(sim, event)) {
        return;
    }
    connection->open_there = true;
    struct sim_message *message = event->message;
    event->message = NULL;
    handle(sim, message);
}

void sim_server_closed(struct sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = sim_connection(sim, event->a);
    if (sim->server.service == NULL || connection->life != sim->server.life) {
        return;
    }
    if (sim->server.sees_ends_at_once ? postpone(sim, event) : read_later(sim, event)) {
        return;
    }
    connection->open_there = false;
    connection->lost = true;
    if (connection->held.serial != 0) {
        struct muster_held_id held = connection->held;
        connection->held.serial = 0;
        muster_rpc_disconnected(sim->server.service, &held);
        plan_steps(sim);
        sim_check_server(sim);
    }
}
