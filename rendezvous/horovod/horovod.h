/*
 * What Horovod's workers ask a rendezvous server for, static and elastic, for many jobs, from
 * memory. It is independent of Muster's own jobs and of sockets: http/ calls it, and so do the
 * tests. README.md says how a launcher uses it.
 *
 * Locks: one for all jobs (worker/base/thread.h); responses to held requests are sent without it.
 */
#ifndef MUSTER_RENDEZVOUS_HOROVOD_HOROVOD_H
#define MUSTER_RENDEZVOUS_HOROVOD_HOROVOD_H

#include "rendezvous/horovod/horovod_path.h"
#include "rendezvous/service/held_requests.h"

enum {
    MUSTER_HOROVOD_JOBS_MAX = 256,
    MUSTER_HOROVOD_WORKERS_MAX = 8192,              /* names of workers of a job */
    MUSTER_HOROVOD_MAX_BYTES = 256 * 1024 * 1024,   /* values of all jobs */
    MUSTER_HOROVOD_ASK_MS = 600 * 1000,             /* Horovod's own HOROVOD_ELASTIC_TIMEOUT */
    MUSTER_HOROVOD_IDLE_MS = 600 * 1000,            /* then a job without a plan is forgotten */
    MUSTER_HOROVOD_PLAN_IDLE_MS = 24 * 3600 * 1000, /* then one with a plan gives way to others */
};

struct muster_horovod_config {
    uint32_t ask_ms;  /* how long rank_and_size is held; then the worker is answered "removed" */
    uint32_t idle_ms; /* as MUSTER_HOROVOD_IDLE_MS */
};

enum muster_horovod_method { MUSTER_HOROVOD_GET, MUSTER_HOROVOD_PUT, MUSTER_HOROVOD_DELETE };

struct muster_horovod_request {
    enum muster_horovod_method method;
    const char *path; /* muster_horovod_path_is() */
    const void *body;
    size_t size_bytes;
    bool creates; /* the sender may make a job; otherwise it needs the secret of one */
};

struct muster_horovod;

/* config: NULL for the constants above. Starts a thread for the deadlines. */
MUSTER_CHECKED muster_status muster_horovod_create(const struct muster_horovod_config *config,
                                                   struct muster_horovod **ret_horovod);
/* Nothing is held and no call is running. Accepts NULL. */
void muster_horovod_destroy(struct muster_horovod *horovod);

/* True: *ret_response is the response; its body is raw bytes if the code is OK, empty for a key
 * that is not there (NOT_FOUND), else JSON. False: the request is held in *held, and held->respond
 * will be called, perhaps before this returns. Any thread; blocks for the lock only. */
bool muster_horovod_handle(struct muster_horovod *horovod,
                           const struct muster_horovod_request *request,
                           struct muster_held_request *held,
                           struct muster_rpc_response *ret_response);

/* Whether a held request is one of these. */
bool muster_horovod_holds(const struct muster_held_id *id);
/* Its connection has closed: if it is still held it is answered, and its worker no longer waits. */
void muster_horovod_disconnected(struct muster_horovod *horovod, const struct muster_held_id *id);
/* Answers every held request with `unavailable`; from now on none is held. */
void muster_horovod_quiesce(struct muster_horovod *horovod);

#endif
