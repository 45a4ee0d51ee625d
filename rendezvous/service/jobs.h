/* Private to the service: its jobs, how events get into them, and the clock that drives them. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_JOBS_H
#define MUSTER_RENDEZVOUS_SERVICE_JOBS_H

#include "rendezvous/service/held_requests.h"
#include "rendezvous/service/musterd_service.h"
#include "rendezvous/service/values.h"
#include "worker/base/thread.h"

#include <stdatomic.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* A job's events are replaced when there are so many more than records that replace them. */
enum { MUSTER_EVENTS_TO_COMPACT = 4096 };

struct muster_job {
    char name[MUSTER_JOB_NAME_SIZE];
    UT_hash_handle hh;       /* under the table's lock */
    uint32_t hold_count;     /* under the table's lock; the table itself is one */
    bool listed;             /* under the table's lock */
    _Atomic int64_t next_ns; /* when the clock should look here */

    pthread_mutex_t mutex; /* all that follows */
    bool removed;          /* whoever finds it in the table takes it out and looks again */
    char token[MUSTER_TOKEN_MAX_BYTES + 1];
    char link_token[MUSTER_LINK_TOKEN_SIZE];
    int64_t origin_ms;    /* the job's clock is the machine's less this */
    bool restart_pending; /* nobody served it for too long: fresh leases before any verdict */
    int64_t ended_ns;     /* when the server saw that it had ended; 0: it has not */
    uint64_t event_count; /* in the store */
    uint64_t compact_at;  /* so many events are replaced by what the membership knows */
    struct muster_membership *membership;
    struct muster_values values;
    struct muster_held_requests held_requests;
    json_t *formed; /* the answer to Joins but for the member's own ranks; or NULL */
    uint64_t formed_generation;
};

struct muster_transaction;

struct muster_service {
    struct muster_service_config config;
    struct muster_store *store;
    /* So that jobs and the clock need not know what is above them. */
    int64_t (*tick)(struct muster_service *service); /* time has passed; returns when the next
                                                        job wants to be looked at */
    void (*respond_ready)(
        struct muster_transaction *transaction); /* what need not be held any longer */
    atomic_bool quiet;
    _Atomic uint64_t serials;
    pthread_mutex_t table_mutex;
    struct muster_job *jobs;
    pthread_mutex_t clock_mutex;
    pthread_cond_t clock_condition;
    int64_t wake_ns; /* under the clock's lock */
    bool stopping;   /* under the clock's lock */
    bool clock_runs;
    pthread_t clock_thread;
};

/* A visit to a job: it is held, locked, and afterwards what it made ready is answered. */
struct muster_rpc_call;
struct muster_transaction {
    struct muster_service *service;
    struct muster_job *job;
    struct muster_ready_responses responses;
};

/* False: there is no such job, or the call's token is wrong; call->answer says so. */
bool muster_transaction_begin(struct muster_rpc_call *call, const char *name,
                              struct muster_transaction *ret_visit);
/* Makes the job, with the call's token, if it is not there. It is gone again after the visit if it
 * has no event by then. */
bool muster_transaction_begin_or_create(struct muster_rpc_call *call, const char *name,
                                        struct muster_transaction *ret_visit);
/* Nobody asks for a token here. False: no such job. */
bool muster_transaction_begin_internal(struct muster_service *service, const char *name,
                                       struct muster_transaction *ret_visit);
void muster_transaction_end(struct muster_transaction *transaction);

/* Visits every job; the token does not matter. due_ns: only those that want to be looked at by
 * then; returns when the next of the others does. */
int64_t muster_transaction_each(struct muster_service *service, int64_t due_ns,
                                void (*look)(struct muster_transaction *transaction, void *user),
                                void *user);

/* Time for the job, and for the clock. */
int64_t muster_job_now_ms(const struct muster_job *job);
int64_t muster_job_next_ns(const struct muster_job *job); /* its membership's deadline */
void muster_job_schedule(struct muster_service *service, struct muster_job *job, int64_t at_ns);

/* Check, store, apply, and then what became due; answers what becomes ready. Sets event->now_ms.
 * The statuses of muster_membership_check(), and MUSTER_RETRY from the store: nothing was changed.
 */
MUSTER_CHECKED muster_status muster_job_accept(struct muster_transaction *transaction,
                                               struct muster_event *event);
/* Before time counts: if the job was to be looked at long ago (the process was stopped), nobody
 * could be heard since, and what comes next gives everyone a fresh lease first. */
void muster_job_check_lateness(struct muster_job *job);
/* What time has brought. */
void muster_job_apply_due(struct muster_transaction *transaction);
/* A sign of life; the member is in the job. */
void muster_job_heartbeat(struct muster_job *job, const char *member, uint64_t progress);
/* Reads the store into the table. */
MUSTER_CHECKED muster_status muster_jobs_load(struct muster_service *service);
void muster_job_destroy(struct muster_job *job);
/* A new one, in no table. */
MUSTER_CHECKED muster_status muster_job_create(const char *name, struct muster_job **ret_job);
/* Puts it into the table; false: memory is out. */
bool muster_jobs_add_locked(struct muster_service *service, struct muster_job *job);

/* Takes the watcher and answers it. */
void muster_job_respond(struct muster_transaction *transaction, struct muster_held_request *held,
                        struct muster_rpc_response response);
/* Answers every Join, Watch and Wait that need not be held any longer. */
void muster_members_respond_ready(struct muster_transaction *transaction);
void muster_values_respond_ready(struct muster_transaction *transaction);
/* Its time is over. */
struct muster_rpc_response muster_members_expire(struct muster_transaction *transaction,
                                                 const struct muster_held_request *held);
struct muster_rpc_response muster_values_expire(const struct muster_held_request *held);

/* Holds the call's request: false. True if the service is quiet: it is answered so. */
bool muster_job_hold(struct muster_transaction *transaction, struct muster_rpc_call *call,
                     uint32_t hold_ms);

MUSTER_CHECKED muster_status muster_clock_thread_start(struct muster_service *service);
void muster_clock_thread_stop(struct muster_service *service);
void muster_clock_thread_wake_by(struct muster_service *service, int64_t at_ns);

/* The methods. True: call->answer is the answer. False: the request is held. */
struct muster_rpc_call {
    struct muster_service *service;
    const struct muster_rpc_request *request;
    const json_t *json; /* the request's body */
    struct muster_held_request *held;
    struct muster_rpc_response response;
};
bool muster_route_join(struct muster_rpc_call *call);
bool muster_route_watch(struct muster_rpc_call *call);
bool muster_route_leave(struct muster_rpc_call *call);
bool muster_route_report(struct muster_rpc_call *call);
bool muster_route_resize(struct muster_rpc_call *call);
bool muster_route_put(struct muster_rpc_call *call);
bool muster_route_get(struct muster_rpc_call *call);
bool muster_route_wait(struct muster_rpc_call *call);
bool muster_route_get_job(struct muster_rpc_call *call);
bool muster_route_list_jobs(struct muster_rpc_call *call);
bool muster_route_end_job(struct muster_rpc_call *call);

#endif
