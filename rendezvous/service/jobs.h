/* The jobs of a service, and the table that finds them by name. Every access to a job's state is in
 * a transaction (transactions.h). */
#ifndef MUSTER_RENDEZVOUS_SERVICE_JOBS_H
#define MUSTER_RENDEZVOUS_SERVICE_JOBS_H

#include "rendezvous/service/clock_thread.h"
#include "rendezvous/service/commits.h"
#include "rendezvous/service/compactor.h"
#include "rendezvous/service/doubts.h"
#include "rendezvous/service/formed.h"
#include "rendezvous/service/held_requests.h"
#include "rendezvous/service/metrics.h"
#include "rendezvous/service/musterd_service.h"
#include "rendezvous/service/readiness.h"
#include "rendezvous/service/values.h"
#include "worker/base/thread.h"

#include <stdatomic.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum { MUSTER_CLAIM_LOCKS = 16 };

/* ownership.h */
struct muster_ownership {
    struct muster_store_watcher watcher;
    pthread_mutex_t claiming[MUSTER_CLAIM_LOCKS]; /* by the name of a job */
};

struct muster_quota;

struct muster_job {
    char name[MUSTER_JOB_NAME_SIZE];
    UT_hash_handle hh;          /* under the table's lock */
    uint32_t hold_count;        /* under the table's lock; the table itself holds the job */
    bool listed;                /* under the table's lock: it is in the table */
    struct muster_quota *quota; /* of the address that made it; NULL: none, see quotas.h */
    uint64_t claim;             /* of a shared store; 0: none is needed. Never changes */
    _Atomic int64_t due_ns;     /* when the clock thread is to run the job */

    pthread_mutex_t mutex; /* all that follows */
    bool removed;          /* it is to leave the table: no transaction may begin */
    bool gives_way;        /* the clock thread is to end it, for the jobs of others */
    int64_t value_bytes;   /* that its values count for, see quotas.h */
    char token[MUSTER_TOKEN_MAX_BYTES + 1];
    char link_token[MUSTER_LINK_TOKEN_SIZE];
    int64_t origin_ms;        /* the job's clock is the machine's minus this */
    int64_t unheard_until_ns; /* until then members may not know of this server; 0: they do */
    bool restart_pending;     /* the server was stopped: fresh leases come before any verdict */
    int64_t ended_ns;         /* when the server saw that the job had ended; 0: it has not */
    int64_t crowd_ns;     /* when requests of many members ended, or may have, at the same time */
    int64_t asked_ns;     /* when members were asked last whether they live; 0: never */
    int64_t ask_pause_ns; /* the shortest time until they are asked again */
    uint64_t written;     /* the ticket of its last write (commits.h) */
    uint64_t changes;     /* events applied since the server has the job: viewers compare it */
    uint64_t event_count; /* events that it ever had: the sequence number of the next */
    /* What the store has in place of the events below first_event (store.h). */
    uint64_t snapshot, record_count, first_event;
    uint64_t compact_at; /* the event_count at which a snapshot is to replace the events */
    uint64_t compaction; /* the number of the one that is under way; 0: none */
    struct muster_membership *membership;
    struct muster_values values;
    struct muster_held_requests held_requests;
    struct muster_doubts doubts;
    struct muster_formed *formed; /* what responses to Joins share; NULL: not made yet */
};

struct muster_service {
    struct muster_service_config config;
    struct muster_store *store; /* borrowed */
    struct muster_clock_thread clock;
    struct muster_commits commits;
    struct muster_compactor compactor;
    struct muster_metrics metrics;
    struct muster_readiness readiness;
    struct muster_ownership ownership;
    atomic_bool quiesced;
    _Atomic uint64_t serials; /* the last serial of a held request */
    pthread_mutex_t table_mutex;
    struct muster_job *jobs;            /* under table_mutex */
    struct muster_damaged_job *damaged; /* under table_mutex */
    struct muster_quota *quotas;        /* under table_mutex */
    _Atomic int64_t value_bytes;        /* of all jobs */
};

/* A new job, in no table. */
MUSTER_CHECKED muster_status muster_job_create(const char *name, struct muster_job **ret_job);
void muster_job_destroy(struct muster_job *job);

/* The next compaction is due when enough events have come after number `from`: as many
 * as the snapshot has records, or MUSTER_EVENTS_TO_COMPACT, if that is more. */
void muster_job_plan_compaction(struct muster_job *job, uint64_t from);

/* Whether a request with this token (NULL: it has none) may use what has the wanted one; "" needs
 * none. */
bool muster_token_matches(const char wanted[MUSTER_TOKEN_MAX_BYTES + 1], const char *token);

/* The time of the job's clock. */
int64_t muster_job_now_ms(const struct muster_job *job);
/* While a lease runs the job is run so often that a pause of the server is noticed before it is
 * taken for a member's. */
uint32_t muster_job_check_ms(const struct muster_job *job);
/* The clock thread runs the job at at_ns at the latest. */
void muster_job_schedule(struct muster_service *service, struct muster_job *job, int64_t at_ns);

/* Puts a job into the table, which then holds it. MUSTER_FATAL: no memory; the job is destroyed. */
MUSTER_CHECKED muster_status muster_jobs_add_locked(struct muster_service *service,
                                                    struct muster_job *job);

/* Holds the job of this name. NULL: there is none, or, if creator is not NULL, none can be created
 * with that call's token; creator->response then has the error. */
struct muster_job *muster_jobs_hold(struct muster_service *service, const char *name,
                                    struct muster_rpc_call *creator);

/* Holds the jobs that are due by due_ns, and returns how many; *ret_next_ns: when the next of the
 * others is due. */
size_t muster_jobs_hold_due(struct muster_service *service, int64_t due_ns,
                            struct muster_job *ret_jobs[MUSTER_JOBS_MAX], int64_t *ret_next_ns);

/* Ends a hold; a removed job also leaves the table. */
void muster_jobs_release(struct muster_service *service, struct muster_job *job, bool removed);

#endif
