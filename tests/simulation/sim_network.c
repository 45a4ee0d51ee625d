/*
 * Connections between workers and the server. On one connection messages arrive in the order in
 * which they were sent; on different ones in any order. A message that is lost takes its connection
 * with it, as with TCP: neither end is told, and keepalive finds out at both, later. A request
 * may arrive a second time, much later, as from a proxy that sends it again.
 */
#include "tests/simulation/sim.h"

#include "worker/base/clock.h"
#include "worker/base/keepalive.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { KEEPALIVE_MS = 1000 * MUSTER_KEEPALIVE_ENDS_S, TWIN_CLOSES_MS = 3000 };

struct sim_connection *sim_connection(struct sim *sim, uint64_t number)
{
    return number > 0 ? &sim->connections[number - 1] : NULL;
}

static uint64_t open_connection(struct sim *sim, unsigned worker, unsigned channel, unsigned server)
{
    if (sim->connection_count == sim->connection_capacity) {
        sim->connection_capacity = sim->connection_capacity > 0 ? 2 * sim->connection_capacity : 64;
        sim->connections =
            reallocarray(sim->connections, sim->connection_capacity, sizeof *sim->connections);
        assert(sim->connections != NULL);
    }
    sim->connections[sim->connection_count++] =
        (struct sim_connection){.worker = worker,
                                .channel = channel,
                                .server = server,
                                .life = sim->servers[server].life,
                                .open_here = true};
    return sim->connection_count;
}

static int64_t delay_ns(const struct sim *sim)
{
    const struct sim_network_faults *faults = &sim->plan.network;
    bool slow = !sim->faults_are_over && sim_chance(10);
    return sim_between(SIM_MS / 20, slow ? faults->slow_ns : faults->delay_ns);
}

void sim_network_end_there(struct sim *sim, uint64_t number, int64_t at_ns)
{
    sim_push(sim, at_ns, (struct sim_event){.run = sim_server_closed, .a = number});
}

static void end_here(struct sim *sim, uint64_t number, int64_t at_ns)
{
    sim_push(sim, at_ns, (struct sim_event){.run = sim_worker_reset, .a = number});
}

static void lose(struct sim *sim, uint64_t number)
{
    struct sim_connection *connection = sim_connection(sim, number);
    if (!connection->lost) {
        connection->lost = true;
        sim_network_end_there(sim, number, sim->now_ns + (int64_t)KEEPALIVE_MS * SIM_MS);
        end_here(sim, number, sim->now_ns + (int64_t)KEEPALIVE_MS * SIM_MS);
    }
}

static bool happens(const struct sim *sim, uint32_t per_mille)
{
    return !sim->faults_are_over && per_mille > 0 && sim_chance(per_mille);
}

static void deliver(struct sim *sim, struct sim_message *request, int64_t delay)
{
    struct sim_connection *connection = sim_connection(sim, request->connection);
    int64_t at_ns = muster_clock_ns() + delay;
    connection->up_ns = at_ns > connection->up_ns ? at_ns : connection->up_ns;
    sim_push(sim, connection->up_ns,
             (struct sim_event){.run = sim_server_deliver, .message = request});
}

/* The same request once more, over a connection of its own, which ends without anybody having read
 * the response. */
static void send_twin(struct sim *sim, const struct sim_message *request)
{
    struct sim_message *twin = sim_message_copy(request);
    int64_t delay = sim_between(0, sim->plan.network.twin_ns);
    twin->connection = open_connection(sim, request->worker, request->channel,
                                       sim_connection(sim, request->connection)->server);
    twin->twin = true;
    sim_connection(sim, twin->connection)->open_here = false;
    sim->totals->twins++;
    sim_trace(sim, "w%u twin in %lld ms", request->worker, (long long)delay / SIM_MS);
    sim_network_end_there(sim, twin->connection,
                          sim->now_ns + delay + sim_between(1, (int64_t)TWIN_CLOSES_MS * SIM_MS));
    deliver(sim, twin, delay);
}

void sim_network_send(struct sim *sim, struct sim_message *request)
{
    struct sim_call *call = &sim->workers[request->worker].calls[request->channel];
    if (call->connection == 0) {
        call->connection = open_connection(sim, request->worker, request->channel, call->server);
    }
    request->connection = call->connection;
    sim_trace(sim, "w%u.%u -> %s %.420s", request->worker, request->channel,
              muster_rpc_method_name(request->method), request->body);
    if (happens(sim, sim->plan.network.twin)) {
        send_twin(sim, request);
    }
    if (happens(sim, sim->plan.network.lose)) {
        lose(sim, request->connection);
    }
    if (sim_connection(sim, request->connection)->lost) {
        sim_message_free(request);
        return;
    }
    deliver(sim, request, delay_ns(sim));
}

void sim_network_ask(struct sim *sim, unsigned server, struct sim_message *request)
{
    request->twin = true;
    request->connection = open_connection(sim, 0, SIM_CALLER, server);
    sim_connection(sim, request->connection)->open_here = false;
    sim_network_end_there(sim, request->connection, sim->now_ns + (int64_t)TWIN_CLOSES_MS * SIM_MS);
    deliver(sim, request, delay_ns(sim));
}

/* Forwarding -----------------------------------------------------------------------------------
 */

void sim_network_forward(struct sim *sim, const struct sim_server *from, unsigned to,
                         struct sim_message *request)
{
    uint64_t client = request->connection;
    uint64_t number = open_connection(sim, request->worker, request->channel, to);
    struct sim_connection *connection = sim_connection(sim, number);
    connection->client = client;
    connection->from = from->index;
    connection->from_life = from->life;
    connection->asked = *request;
    connection->asked.body = NULL;
    sim_connection(sim, client)->forward = number;
    sim->totals->forwards++;
    sim_trace(sim, "s%u forwards w%u.%u to s%u", from->index, request->worker, request->channel,
              to);
    request->connection = number;
    request->forwarded = true;
    if (happens(sim, sim->plan.network.lose)) {
        lose(sim, number);
        sim_message_free(request);
        return;
    }
    deliver(sim, request, delay_ns(sim));
}

/* A response reaches the server that has forwarded its request, and goes on to the client. */
static void pass_back(struct sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = sim_connection(sim, event->message->connection);
    const struct sim_server *server = &sim->servers[connection->from];
    if (server->service == NULL || server->life != connection->from_life) {
        return;
    }
    if (sim_server_busy_until(server) > sim->now_ns) {
        struct sim_event later = *event;
        event->message = NULL;
        sim_push(sim, sim_server_busy_until(server), later);
        return;
    }
    struct sim_message *response = event->message;
    event->message = NULL;
    connection->open_here = false;
    connection->asked.call = 0;
    response->owner = connection->server + 1;
    response->connection = connection->client;
    sim_network_respond(sim, response);
}

void sim_network_forward_failed(struct sim *sim, uint64_t number)
{
    struct sim_connection *connection = sim_connection(sim, number);
    const struct sim_server *server = &sim->servers[connection->from];
    connection->open_here = false;
    connection->lost = true;
    if (connection->asked.call == 0 || server->service == NULL ||
        server->life != connection->from_life) {
        return;
    }
    struct sim_message answer = connection->asked;
    char body[] = "{}";
    answer.connection = connection->client;
    answer.code = MUSTER_RPC_UNAVAILABLE;
    answer.body = body;
    answer.size_bytes = strlen(body);
    connection->asked.call = 0;
    sim_network_respond(sim, sim_message_copy(&answer));
}

/* Takes the response. */
void sim_network_respond(struct sim *sim, struct sim_message *response)
{
    struct sim_connection *connection = sim_connection(sim, response->connection);
    if (happens(sim, sim->plan.network.lose)) {
        lose(sim, response->connection);
    } else if (happens(sim, sim->plan.network.reset)) {
        end_here(sim, response->connection, sim->now_ns + delay_ns(sim));
        sim_network_end_there(sim, response->connection, sim->now_ns + delay_ns(sim));
        connection->lost = true;
    }
    if (connection->lost || !connection->open_here) {
        sim_message_free(response);
        return;
    }
    int64_t at_ns = muster_clock_ns() + delay_ns(sim);
    connection->down_ns = at_ns > connection->down_ns ? at_ns : connection->down_ns;
    sim_push(sim, connection->down_ns,
             (struct sim_event){.run = connection->client != 0 ? pass_back : sim_worker_response,
                                .message = response});
}

void sim_network_close(struct sim *sim, unsigned worker, unsigned channel)
{
    struct sim_call *call = &sim->workers[worker].calls[channel];
    struct sim_connection *connection = sim_connection(sim, call->connection);
    if (connection != NULL) {
        connection->open_here = false;
        if (!connection->lost) {
            int64_t at_ns = sim->now_ns + delay_ns(sim);
            sim_network_end_there(sim, call->connection,
                                  at_ns > connection->up_ns ? at_ns : connection->up_ns);
        }
    }
    call->connection = 0;
}

void sim_network_reset_all(struct sim *sim)
{
    for (uint64_t i = 1; i <= sim->connection_count; i++) {
        struct sim_connection *connection = sim_connection(sim, i);
        if (connection->open_here && !connection->lost && connection->client == 0) {
            connection->lost = true;
            end_here(sim, i, sim->now_ns + delay_ns(sim));
            sim_network_end_there(sim, i, sim->now_ns + delay_ns(sim));
        }
    }
}
