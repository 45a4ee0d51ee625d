/* Counts what happens in a service: responses, events, appends to the store. */
#include "rendezvous/service/metrics.h"

#include <time.h>

enum { NS_PER_US = 1000, US_PER_MS = 1000 };

/* An append is a write to the system, or a disk's flush. */
static const int64_t append_bounds_us[MUSTER_METRICS_BOUNDS] = {
    10, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 50000, 250000, 1000000};
/* A recovery takes a few round trips, or as long as new workers take to start. */
static const int64_t recovery_bounds_us[MUSTER_METRICS_BOUNDS] = {
    10000,   50000,   100000,   250000,   500000,   1000000,
    2500000, 5000000, 10000000, 30000000, 60000000, 300000000};

void muster_metrics_init(struct muster_metrics *metrics)
{
    metrics->appends.bounds_us = append_bounds_us;
    metrics->syncs.bounds_us = append_bounds_us;
    metrics->recovery.bounds_us = recovery_bounds_us;
    metrics->started_s = (int64_t)time(NULL);
}

static void observe(struct muster_histogram *histogram, int64_t us)
{
    int bucket = 0;
    while (bucket < MUSTER_METRICS_BOUNDS && us > histogram->bounds_us[bucket]) {
        bucket++;
    }
    (void)atomic_fetch_add(&histogram->buckets[bucket], 1);
    (void)atomic_fetch_add(&histogram->sum_us, us);
}

void muster_metrics_response(struct muster_metrics *metrics, enum muster_rpc_method method,
                             enum muster_rpc_code code)
{
    (void)atomic_fetch_add(&metrics->responses[method][code], 1);
}

void muster_metrics_append(struct muster_metrics *metrics, int64_t took_ns, bool stored)
{
    observe(&metrics->appends, took_ns / NS_PER_US);
    if (!stored) {
        (void)atomic_fetch_add(&metrics->append_failures, 1);
    }
}

void muster_metrics_sync(struct muster_metrics *metrics, int64_t took_ns, bool synced)
{
    observe(&metrics->syncs, took_ns / NS_PER_US);
    if (!synced) {
        (void)atomic_fetch_add(&metrics->sync_failures, 1);
    }
}

/* The time between the last generation and the one before; -1: there was none before. */
static int64_t recovery_ms(const struct muster_membership *membership)
{
    struct muster_generation_record before = {0};
    struct muster_generation_record last = {0};
    struct muster_generation_record record;
    for (uint32_t i = 0; muster_membership_generation_record(membership, i, &record); i++) {
        before = last;
        last = record;
    }
    return before.revoked_ms > 0 ? last.formed_ms - before.revoked_ms : -1;
}

void muster_metrics_event(struct muster_metrics *metrics,
                          const struct muster_membership *membership,
                          const struct muster_event *event, bool formed)
{
    if (event->kind == MUSTER_EVENT_DEATH) {
        (void)atomic_fetch_add(&metrics->departures[0], 1);
        (void)atomic_fetch_add(&metrics->deaths[muster_liveness_verdict_of(event->why)], 1);
    }
    if (event->kind == MUSTER_EVENT_LEAVE) {
        (void)atomic_fetch_add(&metrics->departures[event->leave_reason], 1);
    }
    if (formed) {
        int64_t ms = recovery_ms(membership);
        (void)atomic_fetch_add(&metrics->generations, 1);
        if (ms >= 0) {
            observe(&metrics->recovery, ms * US_PER_MS);
        }
    }
}
