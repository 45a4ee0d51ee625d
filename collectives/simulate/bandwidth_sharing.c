/*
 * The rates of messages that flow at the same time. Each resource that a message uses (a port, a
 * host's memory, an uplink) is divided equally among its messages, as connections over one uplink
 * divide it, and the message gets the smallest of these shares. A share that a message cannot use,
 * because another resource limits it more, is not given to the others.
 */
#include "collectives/simulate/simulate_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/status.h"

/* Resources: each rank's ports, each host's memory and uplink, each rack's uplink. */
enum {
    LOCAL_OUT,
    LOCAL_IN,
    NET_OUT,
    NET_IN,
    RANK_RESOURCES, /* a rank's */
};
enum { HOST_MEMORY, HOST_RESOURCES };
enum { HOST_OUT, HOST_IN, UPLINK_RESOURCES };
enum { RACK_OUT, RACK_IN, RACK_RESOURCES };

static uint32_t of_rank(uint32_t rank, uint32_t which)
{
    return rank * RANK_RESOURCES + which;
}

static uint32_t of_host(const struct muster_simulation *sim, uint32_t host, uint32_t which)
{
    return sim->topology->ranks * RANK_RESOURCES + host * HOST_RESOURCES + which;
}

static uint32_t of_uplink(const struct muster_simulation *sim, uint32_t host, uint32_t which)
{
    return of_host(sim, sim->topology->hosts, 0) + host * UPLINK_RESOURCES + which;
}

static uint32_t of_rack(const struct muster_simulation *sim, uint32_t rack, uint32_t which)
{
    return of_uplink(sim, sim->topology->hosts, 0) + rack * RACK_RESOURCES + which;
}

static double bytes_in_us(double rate_GBps)
{
    return rate_GBps * 1e3;
}

static void place_ranks(struct muster_simulation *sim)
{
    const struct muster_topology *topology = sim->topology;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        uint32_t rack = muster_topology_rack(topology, host);
        for (uint32_t i = 0; i < topology->host_sizes[host]; i++) {
            sim->ranks[topology->host_first[host] + i].host = host;
            sim->ranks[topology->host_first[host] + i].rack = rack;
        }
    }
}

muster_status muster_sim_network_init(struct muster_simulation *sim)
{
    const struct muster_topology *topology = sim->topology;
    size_t count = of_rack(sim, topology->racks, 0);
    sim->resources = calloc(count, sizeof *sim->resources);
    sim->changed = calloc(count, sizeof *sim->changed);
    if (sim->resources == NULL || sim->changed == NULL) {
        return muster_error_set(MUSTER_FATAL,
                                "simulation: no memory for the ports of %" PRIu32 " ranks",
                                topology->ranks);
    }
    for (size_t i = 0; i < count; i++) {
        sim->resources[i].first = MUSTER_NOTHING;
    }
    const struct muster_link_figures *links = sim->model.links;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        struct muster_sim_resource *own = &sim->resources[of_host(sim, host, 0)];
        own[HOST_MEMORY].capacity = bytes_in_us(links[MUSTER_LEVEL_HOST].shared_GBps);
        own = &sim->resources[of_uplink(sim, host, 0)];
        own[HOST_OUT].capacity = bytes_in_us(links[MUSTER_LEVEL_RACK].shared_GBps);
        own[HOST_IN].capacity = own[HOST_OUT].capacity;
    }
    for (uint32_t rack = 0; rack < topology->racks; rack++) {
        struct muster_sim_resource *own = &sim->resources[of_rack(sim, rack, 0)];
        own[RACK_OUT].capacity = bytes_in_us(links[MUSTER_LEVEL_WORLD].shared_GBps);
        own[RACK_IN].capacity = own[RACK_OUT].capacity;
    }
    place_ranks(sim);
    return sim->model.burst_bytes == 0
               ? MUSTER_OK
               : muster_sim_buckets_init(sim, of_uplink(sim, 0, 0),
                                         topology->hosts * UPLINK_RESOURCES);
}

void muster_sim_network_finish(struct muster_simulation *sim)
{
    free(sim->resources);
    free(sim->buckets);
    free(sim->changed);
}

enum muster_link_level muster_sim_level(const struct muster_simulation *sim, uint32_t rank,
                                        uint32_t peer)
{
    const struct muster_sim_rank *one = &sim->ranks[rank];
    const struct muster_sim_rank *other = &sim->ranks[peer];
    if (one->host == other->host) {
        return MUSTER_LEVEL_HOST;
    }
    return one->rack == other->rack ? MUSTER_LEVEL_RACK : MUSTER_LEVEL_WORLD;
}

/* The rate of a message alone, limited by its ports only. Where uplinks let bursts pass, the
 * measured bandwidth of a port is really the uplink's; a burst is as fast as a message within a
 * host. */
static double rate_alone(const struct muster_simulation *sim, const struct muster_sim_node *node)
{
    const struct muster_link_figures *links = sim->model.links;
    double rate_GBps = links[node->level].bandwidth_GBps;
    if (sim->buckets != NULL && links[MUSTER_LEVEL_HOST].bandwidth_GBps > rate_GBps) {
        rate_GBps = links[MUSTER_LEVEL_HOST].bandwidth_GBps;
    }
    return bytes_in_us(rate_GBps) / node->factor;
}

static void note_changed(struct muster_simulation *sim, uint32_t resource)
{
    if (!sim->resources[resource].changed) {
        sim->resources[resource].changed = true;
        sim->changed[sim->changed_count++] = resource;
    }
}

static struct muster_sim_use *use_of(struct muster_simulation *sim, uint32_t number)
{
    return &sim->nodes[number / MUSTER_SIM_USES_MAX].uses[number % MUSTER_SIM_USES_MAX];
}

static void add_use(struct muster_simulation *sim, uint32_t node, uint32_t resource)
{
    struct muster_sim_resource *used = &sim->resources[resource];
    uint32_t index = sim->nodes[node].use_count++;
    uint32_t number = node * MUSTER_SIM_USES_MAX + index;
    sim->nodes[node].uses[index] = (struct muster_sim_use){
        .resource = resource, .previous = MUSTER_NOTHING, .next = used->first};
    if (used->first != MUSTER_NOTHING) {
        use_of(sim, used->first)->previous = number;
    }
    used->first = number;
    used->count++;
    double rate = rate_alone(sim, &sim->nodes[node]);
    used->largest = rate > used->largest ? rate : used->largest;
    note_changed(sim, resource);
}

static void drop_use(struct muster_simulation *sim, const struct muster_sim_use *use, double rate)
{
    struct muster_sim_resource *used = &sim->resources[use->resource];
    if (use->previous != MUSTER_NOTHING) {
        use_of(sim, use->previous)->next = use->next;
    } else {
        used->first = use->next;
    }
    if (use->next != MUSTER_NOTHING) {
        use_of(sim, use->next)->previous = use->previous;
    }
    used->count--;
    muster_sim_bucket_flow(sim, used, -rate);
    note_changed(sim, use->resource);
}

/* Adds the message to all resources that it uses. */
void muster_sim_flow_begin(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    uint32_t from = message->rank;
    uint32_t to = message->peer;
    uint32_t from_host = sim->ranks[from].host;
    uint32_t to_host = sim->ranks[to].host;
    message->rate = 0;
    message->rated_us = message->flow_us = sim->now_us;
    if (message->level == MUSTER_LEVEL_HOST) {
        add_use(sim, node, of_rank(from, LOCAL_OUT));
        add_use(sim, node, of_rank(to, LOCAL_IN));
        add_use(sim, node, of_host(sim, from_host, HOST_MEMORY));
        return;
    }
    add_use(sim, node, of_rank(from, NET_OUT));
    add_use(sim, node, of_rank(to, NET_IN));
    add_use(sim, node, of_uplink(sim, from_host, HOST_OUT));
    add_use(sim, node, of_uplink(sim, to_host, HOST_IN));
    if (message->level == MUSTER_LEVEL_WORLD) {
        add_use(sim, node, of_rack(sim, sim->ranks[from].rack, RACK_OUT));
        add_use(sim, node, of_rack(sim, sim->ranks[to].rack, RACK_IN));
    }
}

void muster_sim_flow_end(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    for (uint32_t i = 0; i < message->use_count; i++) {
        drop_use(sim, &message->uses[i], message->rate);
    }
    message->use_count = 0;
}

static double rate_of(const struct muster_simulation *sim, const struct muster_sim_node *message)
{
    double own = rate_alone(sim, message);
    double rate = own;
    for (uint32_t i = 0; i < message->use_count; i++) {
        const struct muster_sim_resource *used = &sim->resources[message->uses[i].resource];
        if (used->bucket != NULL && used->bucket->open) {
            continue;
        }
        double all = used->capacity > 0 ? used->capacity : own;
        double share = all / used->count;
        rate = share < rate ? share : rate;
    }
    return rate;
}

/* Gives the message a new rate, and schedules the end of its flow accordingly. */
static void update_rate(struct muster_simulation *sim, uint32_t node)
{
    struct muster_sim_node *message = &sim->nodes[node];
    if (message->rated == sim->sharing) {
        return;
    }
    message->rated = sim->sharing;
    double rate = rate_of(sim, message);
    if (rate == message->rate) {
        return;
    }
    message->left_bytes -= message->rate * (sim->now_us - message->rated_us);
    message->left_bytes = message->left_bytes > 0 ? message->left_bytes : 0;
    message->rated_us = sim->now_us;
    for (uint32_t i = 0; i < message->use_count; i++) {
        muster_sim_bucket_flow(sim, &sim->resources[message->uses[i].resource],
                               rate - message->rate);
    }
    message->rate = rate;
    muster_sim_schedule(sim, node, MUSTER_SIM_FLOW_END, sim->now_us + message->left_bytes / rate);
}

void muster_sim_close_uplink(struct muster_simulation *sim, uint32_t resource)
{
    muster_sim_bucket_empty(sim, &sim->resources[resource]);
    note_changed(sim, resource);
}

/* True if it limits none of so many messages. */
static bool is_ample(const struct muster_sim_resource *resource, uint32_t count)
{
    return resource->capacity > 0 && count * resource->largest <= resource->capacity;
}

/* Recomputes the rates of the messages of all changed resources, except where a resource limits
 * none of them before and after the change. */
bool muster_sim_share(struct muster_simulation *sim)
{
    if (sim->changed_count == 0) {
        return false;
    }
    sim->sharing++;
    for (uint32_t i = 0; i < sim->changed_count; i++) {
        muster_sim_bucket_update(sim, &sim->resources[sim->changed[i]]);
    }
    for (uint32_t i = 0; i < sim->changed_count; i++) {
        struct muster_sim_resource *resource = &sim->resources[sim->changed[i]];
        resource->changed = false;
        /* A new message gets its rate at its ports, which are never ample. */
        bool same = resource->bucket == NULL && is_ample(resource, resource->shared) &&
                    is_ample(resource, resource->count);
        resource->shared = resource->count;
        uint32_t next = MUSTER_NOTHING;
        for (uint32_t use = same ? MUSTER_NOTHING : resource->first; use != MUSTER_NOTHING;
             use = next) {
            next = use_of(sim, use)->next;
            update_rate(sim, use / MUSTER_SIM_USES_MAX);
        }
    }
    sim->changed_count = 0;
    return true;
}
