/*
 * Uplinks that let a burst pass after a pause: token buckets, as in traffic shapers (J. Turner: New
 * directions in communications, IEEE Communications 24, 1986). Tokens are added at the uplink's
 * rate, up to burst_bytes, and the flow consumes them; as long as there are tokens the uplink does
 * not limit any message. At the start there are none, because calls follow each other.
 */
#include "collectives/simulate/simulate_parts.h"

#include <stdlib.h>

#include "worker/base/status.h"

/* Fewer tokens than one packet needs count as none; else a busy uplink would open again and again.
 */
static const double packet_bytes = 1500;

muster_status muster_sim_buckets_init(struct muster_simulation *sim, uint32_t first, uint32_t count)
{
    sim->buckets = calloc(count, sizeof *sim->buckets);
    if (sim->buckets == NULL) {
        return muster_error_set(MUSTER_FATAL, "simulation: no memory for %u uplinks", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = muster_sim_node_allocate(sim);
        if (node == MUSTER_NOTHING) {
            return sim->status;
        }
        sim->nodes[node].rank = 0;
        sim->nodes[node].peer = first + i;
        sim->buckets[i].node = node;
        sim->resources[first + i].bucket = &sim->buckets[i];
    }
    return MUSTER_OK;
}

static void fill(const struct muster_simulation *sim, struct muster_sim_resource *resource)
{
    struct muster_sim_bucket *bucket = resource->bucket;
    double most = (double)sim->model.burst_bytes;
    double tokens =
        bucket->tokens + (resource->capacity - bucket->outflow) * (sim->now_us - bucket->filled_us);
    tokens = tokens < most ? tokens : most;
    bucket->tokens = tokens > 0 ? tokens : 0;
    bucket->filled_us = sim->now_us;
}

void muster_sim_bucket_update(struct muster_simulation *sim, struct muster_sim_resource *resource)
{
    if (resource->bucket != NULL) {
        fill(sim, resource);
        resource->bucket->open = resource->bucket->tokens > packet_bytes;
    }
}

void muster_sim_bucket_flow(struct muster_simulation *sim, struct muster_sim_resource *resource,
                            double change)
{
    struct muster_sim_bucket *bucket = resource->bucket;
    if (bucket == NULL) {
        return;
    }
    fill(sim, resource);
    bucket->outflow += change;
    double excess = bucket->outflow - resource->capacity;
    if (bucket->open && excess > 0) {
        muster_sim_schedule(sim, bucket->node, MUSTER_SIM_BUCKET_EMPTY,
                            sim->now_us + bucket->tokens / excess);
    } else {
        muster_sim_cancel(sim, bucket->node);
    }
}

void muster_sim_bucket_empty(struct muster_simulation *sim, struct muster_sim_resource *resource)
{
    fill(sim, resource);
    resource->bucket->tokens = 0;
    resource->bucket->open = false;
}
