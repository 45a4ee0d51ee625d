/*
 * How much of a service one address of strangers may use: jobs, and bytes of values; and all
 * together. Who shows a token of the server counts to no address.
 *
 * The table is under the service's table lock; the bytes are counted without a lock.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_QUOTAS_H
#define MUSTER_RENDEZVOUS_SERVICE_QUOTAS_H

#include "rendezvous/service/jobs.h"

enum {
    MUSTER_VALUE_COST_BYTES = 512, /* of a value, beside its own bytes */
    MUSTER_VALUES_ADDRESS_MAX_BYTES = 64 * 1024 * 1024,
    MUSTER_VALUES_ALL_MAX_BYTES = 256 * 1024 * 1024,
};

/* Of one address; there is one as long as it has a job. */
struct muster_quota {
    char address[MUSTER_QUOTA_ADDRESS_SIZE];
    uint32_t jobs;
    _Atomic int64_t value_bytes;
    UT_hash_handle hh;
};

/* Counts a new job to the address that the call comes from, if it comes from a stranger's.
 * MUSTER_RETRY: that address has as many jobs as it may; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_quotas_take_locked(const struct muster_rpc_call *call,
                                                       struct muster_job *job);
/* The job ends: also gives back what its values took. */
void muster_quotas_release_locked(struct muster_service *service, struct muster_job *job);

/* When the table is full: the job that is to give way to one of the call. It never formed, and a
 * stranger made it whose address has at least two jobs more than that of the call. NULL: there is
 * none. */
struct muster_job *muster_quotas_find_victim_locked(struct muster_rpc_call *call);

/* Whether a value of the job may have so many bytes. MUSTER_RETRY names the bound. */
MUSTER_CHECKED muster_status muster_quotas_check_value(struct muster_service *service,
                                                       const struct muster_job *job,
                                                       size_t size_bytes);
/* Counts what the values of the job take now. Under the job's lock. */
void muster_quotas_count_values(struct muster_service *service, struct muster_job *job);

#endif
