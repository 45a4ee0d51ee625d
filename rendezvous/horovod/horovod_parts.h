/* The jobs of Horovod's workers, shared by the files of this folder. All under the one lock. */
#ifndef MUSTER_RENDEZVOUS_HOROVOD_HOROVOD_PARTS_H
#define MUSTER_RENDEZVOUS_HOROVOD_HOROVOD_PARTS_H

#include "elastic/horovod/horovod_rounds.h"
#include "rendezvous/horovod/horovod.h"
#include "rendezvous/service/clock_thread.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* A worker with a name of its own: in which round it is. */
struct muster_horovod_worker {
    UT_hash_handle hh;
    char name[MUSTER_HOROVOD_WORKER_SIZE];
    uint64_t round;
};

/* A held rank_and_size. */
struct muster_horovod_ask {
    struct muster_held_request *held; /* borrowed until it is answered */
    char host[MUSTER_HOROVOD_HOST_SIZE];
    uint32_t local_rank;
    uint32_t rank;                        /* in the running round; MUSTER_HOROVOD_NONE: none */
    struct muster_horovod_worker *worker; /* NULL: it has no name */
    int64_t deadline_ns;
    struct muster_horovod_ask *prev, *next;
};

struct muster_horovod_job {
    UT_hash_handle hh;
    char name[MUSTER_JOB_NAME_SIZE];
    char secret[MUSTER_HOROVOD_SECRET_SIZE];
    int64_t used_ns; /* the last request */
    struct muster_horovod_rounds rounds;
    struct muster_horovod_scopes running; /* of the running round */
    struct muster_horovod_scopes next;    /* of the next one: what its newcomers put */
    struct muster_horovod_scopes lasting; /* of no round: worker_addresses and others */
    struct muster_horovod_worker *workers;
    struct muster_horovod_ask *asks;
};

struct muster_horovod {
    struct muster_horovod_config config;
    struct muster_clock_thread clock;
    pthread_mutex_t mutex;
    struct muster_horovod_job *jobs;
    size_t size_bytes; /* of the values of all jobs */
    uint64_t last_serial;
    bool quiesced;
};

/* What a request works on. */
struct muster_horovod_call {
    struct muster_horovod *horovod;
    const struct muster_horovod_request *request;
    struct muster_horovod_path path;
    struct muster_horovod_job *job;
    struct muster_held_request *held;
    struct muster_ready_responses *ready; /* sent when the lock is released */
    struct muster_rpc_response response;
};

/* horovod_jobs.c */
/* The job of the call's path, or NULL if there is none. MUSTER_OK with NULL only if `creates` is
 * false. *ret_code is of an error: the secret is another one, or there is no room. */
MUSTER_CHECKED muster_status muster_horovod_job_find(struct muster_horovod *horovod,
                                                     const struct muster_horovod_path *path,
                                                     bool creates,
                                                     struct muster_horovod_job **ret_job,
                                                     enum muster_rpc_code *ret_code);
void muster_horovod_job_remove(struct muster_horovod *horovod, struct muster_horovod_job *job);
size_t muster_horovod_job_size_bytes(const struct muster_horovod_job *job);
/* The worker of this name; a new one is in the newest round. MUSTER_RETRY: too many; MUSTER_FATAL:
 * no memory. *ret_worker is NULL for the name "". */
MUSTER_CHECKED muster_status muster_horovod_job_worker(struct muster_horovod_job *job,
                                                       const char *name,
                                                       struct muster_horovod_worker **ret_worker);
/* The scopes of the round that the worker is in; NULL: that round is over. */
struct muster_horovod_scopes *muster_horovod_job_scopes(struct muster_horovod_job *job,
                                                        const struct muster_horovod_worker *worker);
/* Raw bytes as the body of a response. */
struct muster_rpc_response muster_horovod_response(enum muster_rpc_code code, const void *bytes,
                                                   size_t size_bytes);
/* The answers to rank_and_size: a place, and "removed". */
struct muster_rpc_response muster_horovod_place(const struct muster_horovod_ranks *ranks);
struct muster_rpc_response muster_horovod_removed(void);
/* Ends a held request. */
void muster_horovod_ask_respond(struct muster_horovod_job *job, struct muster_horovod_ask *ask,
                                struct muster_rpc_response response,
                                struct muster_ready_responses *ready);
/* Forms the next round, if it can, and answers everybody who waits for it. */
void muster_horovod_job_form(struct muster_horovod_job *job, struct muster_ready_responses *ready);

/* horovod_asks.c: rank_and_size. True: call->response is set; false: the request is held. */
bool muster_horovod_ask(struct muster_horovod_call *call);
/* DELETE of a slot: its worker has exited. */
bool muster_horovod_exited(struct muster_horovod_call *call);
/* Answers those whose time is over; returns when the next one is. */
int64_t muster_horovod_asks_expire(struct muster_horovod_job *job, int64_t now_ns,
                                   struct muster_ready_responses *ready);

/* horovod_launcher.c: the scope "muster", for launchers. */
bool muster_horovod_launcher(struct muster_horovod_call *call);

#endif
