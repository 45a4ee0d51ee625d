/*
 * The etcd cluster that several servers share, under the names of etcd_client.h: the linker takes
 * these in place of those that call it by HTTP. An answer may be lost after the call was carried
 * out; then the next attempt carries it out again. A server that is cut off waits for each call
 * until its deadline, and does nothing else meanwhile.
 */
#include "tests/simulation/sim.h"

#include "rendezvous/store/etcd/store_etcd_parts.h"
#include "tests/support/pretended_etcd.h"
#include "worker/base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MAX_MS = 300,
    LATE_MAX_MS = 3000,
    ON_ITS_WAY_MAX_MS = 9000,
    ATTEMPT_MAX_MS = 500,
    HTTP_OK = 200
};

struct muster_etcd_client {
    unsigned server;
};

/* Clients are made deep inside of a service, which knows no simulation. */
static struct sim *current;
static struct pretended_etcd *etcd;

void sim_etcd_begin(struct sim *sim)
{
    current = sim;
    etcd = pretended_etcd_create();
    pretended_etcd_late_by(etcd, SIM_MS * (sim_chance(500) ? 0 : sim_between(0, LATE_MAX_MS)));
}

void sim_etcd_end(void)
{
    pretended_etcd_destroy(etcd);
    etcd = NULL;
}

bool sim_etcd_has_job(void)
{
    return pretended_etcd_value(etcd, "s/job/j") != NULL;
}

/* Leases that end, and what the servers hear of that --------------------------------------------
 */

static void look(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = &sim->servers[event->c];
    if (server->service == NULL || event->a != server->life) {
        return;
    }
    int64_t free_ns = sim_server_busy_until(server);
    if (free_ns > sim->now_ns) {
        sim_push(sim, free_ns, *event);
        return;
    }
    struct etcd_store *store = (struct etcd_store *)server->store;
    if (muster_etcd_session_check(&store->session, 0) != MUSTER_OK ||
        muster_etcd_watch_look(store) != MUSTER_OK) {
        sim_etcd_look(sim, server); /* as the thread of the watch does */
    }
    sim_server_plan(sim, server);
    sim_check_server(sim);
}

void sim_etcd_look(struct sim *sim, struct sim_server *server)
{
    sim_push(sim, sim->now_ns + sim_between(SIM_MS, (int64_t)LOOK_MAX_MS * SIM_MS),
             (struct sim_event){.run = look, .a = server->life, .c = server->index});
}

static void end_leases(struct sim *sim, struct sim_event *event);

/* After whatever was done to the keys: watches hear of owners that have gone. */
static void tell(struct sim *sim, uint64_t deleted_before)
{
    for (unsigned i = 0; pretended_etcd_deleted(etcd) > deleted_before && i < sim->plan.servers;
         i++) {
        sim_etcd_look(sim, &sim->servers[i]);
    }
    int64_t next_ns = pretended_etcd_next_ns(etcd);
    if (next_ns != INT64_MAX && next_ns != sim->lease_ends_ns) {
        sim->lease_ends_ns = next_ns;
        sim_push(sim, next_ns, (struct sim_event){.run = end_leases});
    }
}

static void end_leases(struct sim *sim, struct sim_event *event)
{
    uint64_t before = pretended_etcd_deleted(etcd);
    (void)event;
    pretended_etcd_tick(etcd, sim->now_ns);
    tell(sim, before);
}

static void renew(struct sim *sim, struct sim_event *event)
{
    struct sim_server *server = &sim->servers[event->c];
    if (server->service == NULL || event->a != server->life) {
        return;
    }
    int64_t at_ns = sim_server_busy_until(server);
    int64_t awake_ns = server->paused_until_ns + server->renew_ns;
    at_ns = awake_ns > at_ns ? awake_ns : at_ns;
    if (at_ns <= sim->now_ns) {
        uint32_t wait_ms = muster_etcd_session_step(&((struct etcd_store *)server->store)->session);
        at_ns = muster_clock_ns() + (int64_t)wait_ms * SIM_MS;
        sim_server_plan(sim, server);
        sim_check_server(sim);
    }
    sim_push(sim, at_ns, *event);
}

void sim_etcd_start(struct sim *sim, struct sim_server *server)
{
    sim_push(sim, sim->now_ns + SIM_MS,
             (struct sim_event){.run = renew, .a = server->life, .c = server->index});
    sim_etcd_look(sim, server);
}

/* The client ------------------------------------------------------------------------------------
 */

muster_status muster_etcd_client_create(const char *place, const struct muster_call_files *files,
                                        struct muster_etcd_client **ret_client)
{
    (void)files;
    struct muster_etcd_client *client = calloc(1, sizeof *client);
    assert(client != NULL);
    (void)sscanf(place, "etcd://s%u", &client->server);
    *ret_client = client;
    return MUSTER_OK;
}

void muster_etcd_client_destroy(struct muster_etcd_client *client)
{
    free(client);
}

const char *muster_etcd_client_name(const struct muster_etcd_client *client)
{
    (void)client;
    return "etcd://simulated";
}

const char *muster_etcd_client_prefix(const struct muster_etcd_client *client)
{
    (void)client;
    return "s/";
}

static muster_status no_answer(void)
{
    return muster_error_set(MUSTER_RETRY, "store etcd://simulated: no answer");
}

/* Does it. *ret_answer NULL: the answer is not wanted. */
static muster_status carry_out(const char *method, const json_t *request, json_t **ret_answer)
{
    int http = 0;
    uint64_t before = pretended_etcd_deleted(etcd);
    json_t *answer = pretended_etcd_call(etcd, method, request, current->now_ns, &http);
    assert(answer != NULL);
    tell(current, before);
    if (http != HTTP_OK) {
        json_decref(answer);
        return muster_error_set(MUSTER_ENDED, "store etcd://simulated: no such lease");
    }
    if (ret_answer == NULL) {
        json_decref(answer);
    } else {
        *ret_answer = answer;
    }
    return MUSTER_OK;
}

static void arrive_late(struct sim *sim, struct sim_event *event)
{
    json_t *request = json_loads(event->message->body, 0, NULL);
    (void)sim;
    (void)carry_out((const char *)(uintptr_t)event->a, request, NULL);
    json_decref(request);
}

/* The request is on its way for so long that its sender has given it up when it arrives. */
static void send_late(const char *method, const json_t *request)
{
    struct sim_message message = {.body = json_dumps(request, JSON_COMPACT)};
    message.size_bytes = strlen(message.body);
    sim_push(current, current->now_ns + sim_between(0, (int64_t)ON_ITS_WAY_MAX_MS * SIM_MS),
             (struct sim_event){.run = arrive_late,
                                .a = (uint64_t)(uintptr_t)method,
                                .message = sim_message_copy(&message)});
    free(message.body);
}

/* An attempt without an answer: carried out at once, later, or never. */
static void lose_attempt(const char *method, const json_t *request)
{
    current->totals->lost_calls++;
    if (sim_chance(400)) {
        (void)carry_out(method, request, NULL);
    } else if (sim_chance(500)) {
        send_late(method, request);
    }
}

muster_status muster_etcd_call(struct muster_etcd_client *client, const char *method,
                               json_t *request, int64_t deadline_ns, json_t **ret_answer)
{
    struct sim_server *server = &current->servers[client->server];
    muster_status status = MUSTER_FATAL;
    int64_t now_ns = muster_clock_ns();
    if (server->dying) {
        (void)muster_error_set(MUSTER_FATAL, "the process is gone");
    } else if (server->cut_until_ns > current->now_ns) {
        if (sim_chance(200)) {
            send_late(method, request);
        }
        sim_server_spend(server, deadline_ns > now_ns ? deadline_ns - now_ns : 1);
        status = no_answer();
    } else {
        if (!current->faults_are_over && sim_chance(current->plan.lost_calls)) {
            lose_attempt(method, request);
            sim_server_spend(server, sim_between(1, (int64_t)ATTEMPT_MAX_MS * SIM_MS));
        }
        status =
            muster_clock_ns() < deadline_ns ? carry_out(method, request, ret_answer) : no_answer();
        if (!current->faults_are_over && sim_chance(current->plan.lost_calls)) {
            sim_server_spend(server, sim_between(1, (int64_t)ATTEMPT_MAX_MS * SIM_MS));
        }
    }
    json_decref(request);
    return status;
}

muster_status muster_etcd_stream(struct muster_etcd_client *client, const char *method,
                                 json_t *request, muster_etcd_line line,
                                 muster_etcd_goes_on goes_on, void *user)
{
    (void)client, (void)method, (void)line, (void)goes_on, (void)user;
    json_decref(request);
    return muster_error_set(MUSTER_RETRY, "the watch is simulated");
}
