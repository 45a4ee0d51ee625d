/* Counters of a service, for GET /metrics. Any thread counts, without a lock; each counter is
 * exact, and two counters may be read a moment apart. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_METRICS_H
#define MUSTER_RENDEZVOUS_SERVICE_METRICS_H

#include "elastic/membership/liveness.h"
#include "elastic/messages/messages.h"

#include <stdatomic.h>

enum {
    MUSTER_METRICS_BOUNDS = 12, /* of a histogram; one more bucket has what is above all of them */
    MUSTER_METRICS_CODES = MUSTER_RPC_UNAUTHENTICATED + 1,
    MUSTER_METRICS_REASONS = MUSTER_LEAVE_FAILED + 1, /* 0: it died */
};

struct muster_histogram {
    const int64_t *bounds_us; /* [MUSTER_METRICS_BOUNDS], increasing */
    _Atomic uint64_t buckets[MUSTER_METRICS_BOUNDS + 1];
    _Atomic int64_t sum_us;
};

struct muster_metrics {
    _Atomic uint64_t responses[MUSTER_RPC_METHOD_COUNT][MUSTER_METRICS_CODES];
    _Atomic uint64_t refusals[MUSTER_METRICS_CODES]; /* by HTTP, before a method was called */
    _Atomic uint64_t limited[2]; /* of these, by rate: all requests, those without a good token */
    _Atomic int64_t held;        /* requests that are held now */
    _Atomic uint64_t generations;
    _Atomic uint64_t departures[MUSTER_METRICS_REASONS];
    _Atomic uint64_t deaths[MUSTER_LIVENESS_VERDICTS];
    struct muster_histogram recovery; /* from a revocation to the next generation */
    struct muster_histogram appends;  /* to the store, also those that failed */
    _Atomic uint64_t append_failures;
    struct muster_histogram syncs; /* of the store, also those that failed */
    _Atomic uint64_t sync_failures;
    int64_t started_s; /* since 1970 */
};

/* Prepares zeroed storage. */
void muster_metrics_init(struct muster_metrics *metrics);

/* A method was answered. */
void muster_metrics_response(struct muster_metrics *metrics, enum muster_rpc_method method,
                             enum muster_rpc_code code);
/* An event was appended to the store, or could not be; it took so long. */
void muster_metrics_append(struct muster_metrics *metrics, int64_t took_ns, bool stored);
/* The store was synced, or could not be; it took so long. */
void muster_metrics_sync(struct muster_metrics *metrics, int64_t took_ns, bool synced);
/* An event was applied to this membership. formed: a generation formed by it. */
void muster_metrics_event(struct muster_metrics *metrics,
                          const struct muster_membership *membership,
                          const struct muster_event *event, bool formed);

#endif
