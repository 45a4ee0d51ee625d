/*
 * The servers: the service as it is, with its threads' steps as events. One server has SQLite on
 * the simulated disk; several have the simulated etcd, and forward requests to each other.
 */
#include "tests/simulation/sim.h"

#include "rendezvous/routes/rpc.h"
#include "rendezvous/service/driven.h"
#include "rendezvous/service/jobs.h"
#include "rendezvous/service/ownership.h"
#include "rendezvous/store/store.h"
#include "worker/base/clock.h"
#include "worker/base/keepalive.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESTART_RETRY_MS = 500, NESTED_MAX = 20, SPENT_MAX_MS = 120000 };

/* One request in the service. */
struct sim_request {
    struct muster_held_request held; /* first */
    struct sim_server *server;
    uint64_t life;
    struct sim_message *message;
    bool *responded; /* while the service handles it; else NULL */
    uint64_t told;   /* the highest generation that a worker was told before it came */
};

static struct muster_job *find_job(const struct sim_server *server)
{
    struct muster_job *job = NULL;
    if (server->service != NULL) {
        HASH_FIND_STR(server->service->jobs, "j", job);
    }
    return job;
}

struct sim_server *sim_server_owner(struct sim *sim)
{
    struct sim_server *owner = NULL;
    for (unsigned i = 0; i < sim->plan.servers; i++) {
        struct sim_server *server = &sim->servers[i];
        const struct muster_job *job = find_job(server);
        if (job == NULL || muster_ownership_check(server->store, job->claim) != MUSTER_OK) {
            continue;
        }
        if (owner != NULL) {
            sim_fail(sim, "s%u and s%u have the job at the same time", owner->index, i);
        }
        owner = server;
    }
    return owner;
}

uint64_t sim_server_claim(const struct sim_server *server)
{
    const struct muster_job *job = find_job(server);
    return job != NULL ? job->claim : 0;
}

struct muster_membership *sim_server_membership(struct sim *sim)
{
    const struct sim_server *owner = sim_server_owner(sim);
    return owner != NULL ? find_job(owner)->membership : NULL;
}

/* Its life --------------------------------------------------------------------------------------
 */

static struct sim_server *server_of(struct sim *sim, const struct sim_event *event)
{
    return &sim->servers[event->c];
}

static void push_for(struct sim_server *server, int64_t at_ns, struct sim_event event)
{
    event.a = server->life;
    event.c = server->index;
    sim_push(server->sim, at_ns, event);
}

static void start_again(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = server_of(sim, event);
    if (event->a == server->life && server->service == NULL && !sim_server_start(sim, server)) {
        push_for(server, sim->now_ns + (int64_t)RESTART_RETRY_MS * SIM_MS,
                 (struct sim_event){.run = start_again});
    }
}

/* A disk may be full, and the lease of its life before may still run. */
static bool may_fail_to_start(const struct sim *sim)
{
    return sim->plan.servers > 1 || sim_disk_faults()->full || sim_disk_faults()->sync_fails;
}

static bool create_service(struct sim *sim, struct sim_server *server)
{
    const struct muster_call_files no_files = {.authority = NULL};
    char place[64];
    char url[64];
    struct muster_service_config config;
    muster_service_config_init(&config);
    (void)snprintf(place, sizeof place, "etcd://s%u:1/s", server->index);
    (void)snprintf(url, sizeof url, "http://s%u", server->index);
    config.without_threads = true;
    config.url = url;
    return (sim->plan.servers > 1
                ? muster_store_etcd_open(place, &no_files, &server->store)
                : muster_store_sqlite_open(server->path, &server->store)) == MUSTER_OK &&
           muster_service_create(&config, server->store, &server->service) == MUSTER_OK;
}

bool sim_server_start(struct sim *sim, struct sim_server *server)
{
    server->tick_at_ns = SIM_NEVER;
    server->sync_planned = false;
    server->compact_planned = false;
    server->dying = false;
    server->spent_until_ns = server->paused_until_ns = 0;
    if (!create_service(sim, server)) {
        if (!may_fail_to_start(sim)) {
            sim_fail(sim, "the server does not start: %s", muster_last_error());
        }
        sim_trace(sim, "s%u does not start: %s", server->index, muster_last_error());
        muster_store_close(server->store);
        server->store = NULL;
        server->service = NULL;
        sim_disk_crash(false);
        return false;
    }
    server->life++;
    sim->server_highest = 0;
    sim->totals->restarts++;
    sim_trace(sim, "s%u starts, life %llu", server->index, (unsigned long long)server->life);
    if (sim->plan.servers > 1) {
        sim_etcd_start(sim, server);
    }
    sim_server_plan(sim, server);
    sim_check_server(sim);
    return true;
}

/* Clients see that their connections have ended; after a power loss only by the keepalive of their
 * own kernels. So do the servers to which it has forwarded requests. */
static void reset_clients(struct sim *sim, const struct sim_server *server, bool told)
{
    int64_t most_ms = told ? 3 : INT64_C(1000) * MUSTER_KEEPALIVE_ENDS_S;
    for (uint64_t i = 1; i <= sim->connection_count; i++) {
        struct sim_connection *connection = sim_connection(sim, i);
        bool to = connection->server == server->index && connection->life == server->life;
        bool from = connection->client != 0 && connection->from == server->index &&
                    connection->from_life == server->life;
        if (!connection->open_here || connection->lost || (!to && !from)) {
            continue;
        }
        connection->lost = true;
        int64_t at_ns = sim->now_ns + sim_between(0, most_ms * SIM_MS);
        if (to) {
            sim_push(sim, at_ns, (struct sim_event){.run = sim_worker_reset, .a = i});
        } else {
            sim_network_end_there(sim, i, at_ns);
        }
    }
}

static void end_now(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = server_of(sim, event);
    if (event->a == server->life) {
        sim_server_end(sim, server, (enum sim_server_end)event->b);
    }
}

static void end_service(struct sim *sim, struct sim_server *server)
{
    muster_service_quiesce(server->service);
    while (muster_driven_sync(server->service)) {
    }
    if (server->requests != 0) {
        sim_fail(sim, "%u requests have no response", server->requests);
    }
    muster_service_destroy(server->service);
    muster_store_close(server->store);
    server->service = NULL;
    server->store = NULL;
}

void sim_server_end(struct sim *sim, struct sim_server *server, enum sim_server_end how)
{
    static const char *const names[] = {"is stopped", "is killed", "loses power"};
    if (server->service == NULL) {
        return;
    }
    if (sim->nested == server) { /* the compaction that is on the stack has to return first */
        server->ending = true;
        push_for(server, sim->now_ns, (struct sim_event){.run = end_now, .b = how});
        return;
    }
    server->ending = false;
    sim_trace(sim, "s%u %s", server->index, names[how]);
    sim->totals->power_losses += how == SIM_POWER_LOSS;
    server->dying = how != SIM_STOP;
    if (server->dying) {
        sim_disk_crash(how == SIM_POWER_LOSS);
    }
    end_service(sim, server);
    if (!server->dying) {
        sim_disk_crash(false);
    }
    reset_clients(sim, server, how != SIM_POWER_LOSS);
    push_for(server,
             sim->now_ns +
                 sim_between(0, SIM_MS * (sim_chance(800) ? INT64_C(500) : INT64_C(12000))),
             (struct sim_event){.run = start_again});
}

/* Its threads -----------------------------------------------------------------------------------
 */

void sim_server_spend(struct sim_server *server, int64_t for_ns)
{
    sim_clock_advance(for_ns);
    server->spent_until_ns = muster_clock_ns();
    if (server->spent_until_ns > server->sim->now_ns + (int64_t)SPENT_MAX_MS * SIM_MS) {
        sim_fail(server->sim, "s%u waits for its store and does not end", server->index);
    }
}

int64_t sim_server_busy_until(const struct sim_server *server)
{
    return server->paused_until_ns > server->spent_until_ns ? server->paused_until_ns
                                                            : server->spent_until_ns;
}

/* A stopped process does nothing, and neither does one that waits for its store; its events come
 * when it goes on, and its sockets may be read when its clock has run already. */
static bool postpone(const struct sim_server *server, struct sim_event *event, bool of_socket)
{
    int64_t until_ns = sim_server_busy_until(server);
    if (of_socket && server->paused_until_ns + server->wake_ns > until_ns) {
        until_ns = server->paused_until_ns + server->wake_ns;
    }
    if (until_ns <= server->sim->now_ns) {
        return false;
    }
    struct sim_event later = *event;
    event->message = NULL;
    sim_push(server->sim, until_ns, later);
    return true;
}

/* The server, if the event is of this life of it, and it runs; else NULL. */
static struct sim_server *running(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = server_of(sim, event);
    return server->service == NULL || event->a != server->life || postpone(server, event, false)
               ? NULL
               : server;
}

static void run_tick(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = running(sim, event);
    if (server == NULL || (int64_t)event->b != server->tick_at_ns) {
        return;
    }
    server->tick_at_ns = SIM_NEVER;
    muster_driven_tick(server->service);
    sim_server_plan(sim, server);
    sim_check_server(sim);
}

static void run_sync(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = running(sim, event);
    if (server == NULL) {
        return;
    }
    server->sync_planned = false;
    (void)muster_driven_sync(server->service);
    sim_server_plan(sim, server);
    if (sim_disk_faults()->sync_fails) {
        sim_server_end(sim, server, SIM_KILL); /* as its supervisor does when it is not ready */
    }
}

/* Between two steps of a compaction other things happen, but the end of the server ends it. */
static bool between_steps(void *user)
{
    struct sim_server *server = user;
    struct sim *sim = server->sim;
    for (int64_t i = sim_between(0, NESTED_MAX); i > 0 && !server->ending; i--) {
        if (sim->count == 0 || sim->heap[0].at_ns > sim->now_ns + 5 * SIM_MS) {
            break;
        }
        (void)sim_step(sim);
    }
    return !server->ending;
}

static void run_compaction(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = running(sim, event);
    if (server == NULL) {
        return;
    }
    server->compact_planned = false;
    if (sim->nested != NULL) {
        return; /* it is planned again */
    }
    sim->nested = server;
    sim->totals->compactions++;
    (void)muster_driven_compact(server->service, between_steps, server);
    sim->nested = NULL;
    sim_server_plan(sim, server);
}

void sim_server_plan(struct sim *sim, struct sim_server *server)
{
    int64_t tick_ns = muster_driven_next_tick_ns(server->service);
    if (tick_ns < server->tick_at_ns) {
        server->tick_at_ns = tick_ns;
        push_for(server, tick_ns, (struct sim_event){.run = run_tick, .b = (uint64_t)tick_ns});
    }
    if (muster_driven_sync_is_due(server->service) && !server->sync_planned) {
        server->sync_planned = true;
        push_for(server, sim->now_ns + sim_between(SIM_MS / 10, 20 * SIM_MS),
                 (struct sim_event){.run = run_sync});
    }
    struct muster_job *job = find_job(server);
    if (job != NULL && job->compaction == 0 && sim_chance(server->compacts)) {
        job->compact_at = job->event_count;
    }
    if (server->service->compactor.queue != NULL && !server->compact_planned) {
        server->compact_planned = true;
        push_for(server, sim->now_ns + sim_between(0, 10 * SIM_MS),
                 (struct sim_event){.run = run_compaction});
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

/* Who asks for the job hears of no generation that is older than what others were told before. */
static void check_reader(const struct sim_request *request)
{
    const struct sim_message *message = request->message;
    const char *member = strstr(message->body, "\"generation\":\"");
    if (message->method != MUSTER_RPC_GET_JOB || message->code != MUSTER_RPC_OK || member == NULL) {
        return;
    }
    uint64_t number = strtoull(member + strlen("\"generation\":\""), NULL, 10);
    if (number < request->told) {
        sim_fail(request->server->sim, "s%u shows generation %llu after %llu was told",
                 request->server->index, (unsigned long long)number,
                 (unsigned long long)request->told);
    }
}

static void respond(struct muster_held_request *held, struct muster_rpc_response response)
{
    struct sim_request *request = (struct sim_request *)held;
    struct sim_server *server = request->server;
    server->requests--;
    if (request->responded != NULL) {
        *request->responded = true;
    }
    if (server->dying || request->life != server->life) {
        sim_message_free(request->message);
    } else {
        copy_body(&response, request->message);
        check_reader(request);
        sim_network_respond(server->sim, request->message);
    }
    muster_rpc_response_finish(&response);
    free(request);
}

/* As forward() of http.c. True: it goes to the server that has the job. */
static bool forward(struct sim_request *request, struct muster_rpc_response *response)
{
    struct sim_server *server = request->server;
    unsigned owner = 0;
    if (response->owner == NULL || request->message->forwarded || server->dying ||
        sscanf(response->owner, "http://s%u", &owner) != 1) {
        return false;
    }
    server->requests--;
    sim_network_forward(server->sim, server, owner, request->message);
    muster_rpc_response_finish(response);
    free(request);
    return true;
}

static void handle(struct sim *sim, struct sim_server *server, struct sim_message *message)
{
    struct sim_request *request = calloc(1, sizeof *request);
    const struct muster_rpc_request rpc = {
        .method = message->method,
        .rights = MUSTER_RIGHT_WORK,
        .body = message->body,
        .size_bytes = message->size_bytes,
        .timeout_ms = message->timeout_ms,
        .forwarded = message->forwarded,
    };
    struct muster_rpc_response response;
    bool responded = false;
    assert(request != NULL);
    request->held.respond = respond;
    request->server = server;
    request->life = server->life;
    request->message = message;
    request->responded = &responded;
    request->told = sim->answered;
    server->requests++;
    sim->totals->requests++;
    uint64_t number = message->connection;
    if (muster_rpc_handle(server->service, &rpc, &request->held, &response)) {
        if (!forward(request, &response)) {
            respond(&request->held, response);
        }
    } else if (!responded) {
        request->responded = NULL;
        if (request->held.id.job[0] != '\0') {
            sim_connection(sim, number)->held = request->held.id;
        }
    }
    sim_server_plan(sim, server);
    sim_check_server(sim);
}

/* True: the event comes again, when the server gets that far. */
static bool read_later(struct sim_server *server, struct sim_event *event)
{
    if (postpone(server, event, true)) {
        return true;
    }
    if (server->behind_ns == 0 || event->c != 0) {
        return false;
    }
    struct sim_event later = *event;
    later.c = 1;
    event->message = NULL;
    sim_push(server->sim, server->sim->now_ns + server->behind_ns, later);
    return true;
}

void sim_server_deliver(struct sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = sim_connection(sim, event->message->connection);
    struct sim_server *server = &sim->servers[connection->server];
    if (server->service == NULL || connection->life != server->life) {
        if (connection->open_here && server->service == NULL) { /* refused, or reset */
            sim_push(sim, sim->now_ns + sim_between(0, 2 * SIM_MS),
                     (struct sim_event){.run = sim_worker_reset, .a = event->message->connection});
            return;
        }
        if (connection->open_there || !connection->open_here || connection->lost) {
            return; /* of an earlier life */
        }
        connection->life = server->life;
    }
    if (read_later(server, event)) {
        return;
    }
    connection->open_there = true;
    struct sim_message *message = event->message;
    event->message = NULL;
    handle(sim, server, message);
}

void sim_server_closed(struct sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = sim_connection(sim, event->a);
    struct sim_server *server = &sim->servers[connection->server];
    if (server->service == NULL || connection->life != server->life) {
        return;
    }
    if (server->sees_ends_at_once ? postpone(server, event, true) : read_later(server, event)) {
        return;
    }
    connection->open_there = false;
    connection->lost = true;
    struct sim_connection *forwarded = sim_connection(sim, connection->forward);
    if (forwarded != NULL && forwarded->asked.call != 0) { /* nobody waits for it any more */
        forwarded->open_here = false;
        forwarded->asked.call = 0;
        sim_network_end_there(sim, connection->forward, sim->now_ns + SIM_MS);
    }
    if (connection->held.serial != 0) {
        struct muster_held_id held = connection->held;
        connection->held.serial = 0;
        muster_rpc_disconnected(server->service, &held);
        sim_server_plan(sim, server);
        sim_check_server(sim);
    }
}
