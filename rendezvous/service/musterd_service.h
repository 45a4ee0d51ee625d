/*
 * The service without a network: jobs, held requests, a clock. Requests come through rpc.h, which
 * http.h calls for those from sockets.
 *
 * Threads: those that call rpc.h, and the clock thread. worker/base/thread.h has the order of
 * locks; responses to held requests are sent with no lock held.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_MUSTERD_SERVICE_H
#define MUSTER_RENDEZVOUS_SERVICE_MUSTERD_SERVICE_H

#include "elastic/messages/messages.h"
#include "rendezvous/store/store.h"

enum {
    MUSTER_JOBS_MAX = 1024,
    MUSTER_JOBS_PER_ADDRESS = 256,
    MUSTER_HOLD_MAX_MS = 30000, /* proxies may close a connection that is idle for longer */
};

struct muster_service_config {
    uint32_t hold_ms;                    /* how long a Join is held at most */
    uint32_t watch_ms;                   /* how long a Watch is */
    uint32_t jobs_max;                   /* at most MUSTER_JOBS_MAX */
    uint32_t jobs_per_address;           /* of strangers */
    uint32_t keep_ended_ms;              /* how long after its end a job is forgotten */
    struct muster_job_settings settings; /* of new jobs; the sizes are for Joins without sizes */
};

/* The limits above, hold 1000 ms, ended jobs 1 hour, settings as muster_job_settings_init() has
 * them. */
void muster_service_config_init(struct muster_service_config *config);

struct muster_service;

/* Reads the store, which is borrowed until destroy, and starts the clock thread. MUSTER_INVALID:
 * the store is damaged as a whole; MUSTER_RETRY: it cannot be written. */
MUSTER_CHECKED muster_status muster_service_create(const struct muster_service_config *config,
                                                   struct muster_store *store,
                                                   struct muster_service **ret_service);

/* Ends every hold with `unavailable`; from now on no request is held. */
void muster_service_quiesce(struct muster_service *service);

/* Nothing is held and no call is running. Accepts NULL. */
void muster_service_destroy(struct muster_service *service);

#endif
