/*
 * A worker's calls: attempts of one request after the other, at one server after the other, as
 * those of session/rendezvous_client.c.
 */
#include "tests/simulation/sim.h"

#include "worker/base/random.h"
#include "worker/session/service_policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void sim_call_drop(struct sim_call *call)
{
    sim_message_free(call->request);
    call->request = NULL;
    call->number = 0;
}

static void fail_attempt(struct sim *sim, struct sim_worker *worker, unsigned channel,
                         enum muster_rpc_code code);

static void time_out(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    for (unsigned channel = 0; channel < SIM_CHANNELS && worker != NULL; channel++) {
        if (worker->calls[channel].number == event->c) {
            sim_network_close(sim, worker->index, channel);
            fail_attempt(sim, worker, channel, MUSTER_RPC_UNAVAILABLE);
            return;
        }
    }
}

static void attempt(struct sim *sim, struct sim_worker *worker, unsigned channel)
{
    struct sim_call *call = &worker->calls[channel];
    int64_t left_ms =
        call->deadline_ns == SIM_NEVER ? INT32_MAX : (call->deadline_ns - sim->now_ns) / SIM_MS;
    int64_t timeout_ms = left_ms < call->attempt_ms ? left_ms : call->attempt_ms;
    timeout_ms = timeout_ms > 0 ? timeout_ms : 1;
    call->number = ++sim->calls;
    struct sim_message *request = sim_message_copy(call->request);
    request->call = call->number;
    request->timeout_ms = (uint32_t)timeout_ms;
    sim_network_send(sim, request);
    sim_worker_push(sim, worker, timeout_ms, time_out, call->number);
}

static void attempt_again(struct sim *sim, struct sim_event *event)
{
    struct sim_worker *worker = sim_worker_of(sim, event);
    for (unsigned channel = 0; channel < SIM_CHANNELS && worker != NULL; channel++) {
        struct sim_call *call = &worker->calls[channel];
        if (call->request != NULL && call->request->call == event->c) {
            attempt(sim, worker, channel);
            return;
        }
    }
}

/* To another server, over a new connection. */
static void go_to(struct sim *sim, struct sim_worker *worker, unsigned channel, unsigned server)
{
    if (worker->calls[channel].server != server) {
        sim_network_close(sim, worker->index, channel);
        worker->calls[channel].server = server;
    }
}

/* As attempt_until_deadline() of rendezvous_client.c. */
static void fail_attempt(struct sim *sim, struct sim_worker *worker, unsigned channel,
                         enum muster_rpc_code code)
{
    struct sim_call *call = &worker->calls[channel];
    muster_status status = muster_rpc_code_status(code);
    uint32_t others = sim->plan.servers - 1; /* one attempt at each server counts as one */
    uint32_t made = call->made++;
    call->number = 0;
    int64_t wait_ms =
        made >= others ? muster_random_below(muster_policy_back_off_ms(made - others) + 1) : 0;
    bool in_time =
        call->deadline_ns == SIM_NEVER || sim->now_ns + wait_ms * SIM_MS < call->deadline_ns;
    bool last = call->attempts != 0 && made + 1 >= call->attempts + others;
    if (status == MUSTER_RETRY) {
        call->at = (call->at + 1) % sim->plan.servers;
        go_to(sim, worker, channel, call->at);
    }
    if (status != MUSTER_RETRY || last || !in_time) {
        sim_call_drop(call);
        sim_worker_conclude(sim, worker, channel, status, code, NULL);
        return;
    }
    sim_worker_push(sim, worker, wait_ms, attempt_again, call->request->call);
}

/* Takes the JSON. limit_ms 0: as long as attempts are left. */
void sim_call_start(struct sim *sim, struct sim_worker *worker, unsigned channel,
                    enum muster_rpc_method method, json_t *json, uint32_t attempt_ms,
                    uint32_t attempts, uint32_t limit_ms)
{
    struct sim_call *call = &worker->calls[channel];
    assert(json != NULL);
    if (call->request != NULL) { /* a report that the caller does not wait for */
        sim_call_drop(call);
        sim_network_close(sim, worker->index, channel);
    }
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    const struct sim_message request = {.worker = worker->index,
                                        .channel = channel,
                                        .method = method,
                                        .call = ++sim->calls,
                                        .body = text,
                                        .size_bytes = strlen(text)};
    call->request = sim_message_copy(&request);
    free(text);
    call->refusal = false;
    call->made = 0;
    call->attempts = attempts;
    call->attempt_ms = attempt_ms;
    call->deadline_ns = limit_ms > 0 ? sim->now_ns + (int64_t)limit_ms * SIM_MS : SIM_NEVER;
    attempt(sim, worker, channel);
}

void sim_worker_reset(struct sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = sim_connection(sim, event->a);
    if (connection->client != 0) {
        sim_network_forward_failed(sim, event->a);
        return;
    }
    struct sim_worker *worker = &sim->workers[connection->worker];
    struct sim_call *call = &worker->calls[connection->channel];
    if (!worker->alive || call->connection != event->a ||
        sim_worker_postpones(sim, worker, event)) {
        return;
    }
    connection = sim_connection(sim, event->a);
    connection->open_here = false;
    call->connection = 0;
    if (call->number != 0) {
        fail_attempt(sim, worker, connection->channel, MUSTER_RPC_UNAVAILABLE);
    }
}

void sim_worker_response(struct sim *sim, struct sim_event *event)
{
    const struct sim_message *message = event->message;
    struct sim_worker *worker = &sim->workers[message->worker];
    struct sim_call *call = &worker->calls[message->channel];
    json_t *json = NULL;
    if (!worker->alive || message->twin || call->number != message->call ||
        sim_worker_postpones(sim, worker, event)) {
        return;
    }
    if (muster_json_parse(message->body, message->size_bytes, &json) != MUSTER_OK) {
        sim_fail(sim, "a response is no JSON: %s", message->body);
    }
    sim_trace(sim, "w%u.%u <- %s %s %.300s", worker->index, message->channel,
              muster_rpc_method_name(message->method), muster_rpc_code_name(message->code),
              message->body);
    if (muster_rpc_code_status(message->code) == MUSTER_RETRY) {
        json_decref(json);
        fail_attempt(sim, worker, message->channel, message->code);
        return;
    }
    sim_call_drop(call);
    if (message->owner != 0) {
        go_to(sim, worker, message->channel, message->owner - 1);
    }
    sim_worker_conclude(sim, worker, message->channel, muster_rpc_code_status(message->code),
                        message->code, json);
    json_decref(json);
}
