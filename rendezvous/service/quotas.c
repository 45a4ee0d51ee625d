/* Addresses of strangers, with their jobs and the bytes of their values. */
#include "rendezvous/service/quotas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct muster_quota *find(struct muster_service *service, const char *address)
{
    struct muster_quota *quota = NULL;
    HASH_FIND_STR(service->quotas, address, quota);
    return quota;
}

static struct muster_quota *find_or_add(struct muster_service *service, const char *address)
{
    struct muster_quota *quota = find(service, address);
    if (quota != NULL) {
        return quota;
    }
    quota = calloc(1, sizeof *quota);
    if (quota != NULL) {
        (void)snprintf(quota->address, sizeof quota->address, "%s", address);
        HASH_ADD_STR(service->quotas, address, quota);
    }
    if (quota != NULL && quota->hh.tbl == NULL) {
        free(quota);
        return NULL;
    }
    return quota;
}

muster_status muster_quotas_take_locked(const struct muster_rpc_call *call, struct muster_job *job)
{
    const char *address = call->request->address;
    uint32_t most = call->service->config.jobs_per_address;
    if (address == NULL) {
        return MUSTER_OK;
    }
    struct muster_quota *quota = find_or_add(call->service, address);
    if (quota == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (quota->jobs >= most) {
        return muster_error_set(MUSTER_RETRY,
                                "job %s: address %s has %" PRIu32
                                " jobs already, and may have %" PRIu32
                                " (--max-jobs-per-address of musterd)",
                                job->name, address, quota->jobs, most);
    }
    quota->jobs++;
    job->quota = quota;
    return MUSTER_OK;
}

void muster_quotas_release_locked(struct muster_service *service, struct muster_job *job)
{
    struct muster_quota *quota = job->quota;
    (void)atomic_fetch_sub(&service->value_bytes, job->value_bytes);
    if (quota == NULL) {
        return;
    }
    (void)atomic_fetch_sub(&quota->value_bytes, job->value_bytes);
    job->quota = NULL;
    if (--quota->jobs == 0) {
        HASH_DEL(service->quotas, quota);
        free(quota);
    }
}

/* Of the address with the most jobs: one that has members and no generation yet. */
struct muster_job *muster_quotas_find_victim_locked(struct muster_rpc_call *call)
{
    struct muster_service *service = call->service;
    const char *address = call->request->address;
    const struct muster_quota *own = address != NULL ? find(service, address) : NULL;
    const uint32_t own_jobs = own != NULL ? own->jobs : 0;
    struct muster_job *victim = NULL;
    for (struct muster_job *job = service->jobs; job != NULL; job = job->hh.next) {
        const struct muster_quota *quota = job->quota;
        if (quota == NULL || quota->jobs < own_jobs + 2 ||
            (victim != NULL && quota->jobs <= victim->quota->jobs)) {
            continue;
        }
        AUTO_LOCK(&job->mutex);
        if (job->ended_ns == 0 && !job->gives_way &&
            muster_membership_generation(job->membership).number == 0) {
            victim = job;
        }
    }
    return victim;
}

muster_status muster_quotas_check_value(struct muster_service *service,
                                        const struct muster_job *job, size_t size_bytes)
{
    int64_t added = (int64_t)size_bytes + MUSTER_VALUE_COST_BYTES;
    if (atomic_load(&service->value_bytes) + added > MUSTER_VALUES_ALL_MAX_BYTES) {
        return muster_error_set(MUSTER_RETRY, "the values of all jobs have %d bytes already",
                                MUSTER_VALUES_ALL_MAX_BYTES);
    }
    if (job->quota != NULL &&
        atomic_load(&job->quota->value_bytes) + added > MUSTER_VALUES_ADDRESS_MAX_BYTES) {
        return muster_error_set(MUSTER_RETRY,
                                "the values of the jobs of address %s have %d bytes already",
                                job->quota->address, MUSTER_VALUES_ADDRESS_MAX_BYTES);
    }
    return MUSTER_OK;
}

void muster_quotas_count_values(struct muster_service *service, struct muster_job *job)
{
    int64_t now =
        (int64_t)job->values.size_bytes + (int64_t)job->values.count * MUSTER_VALUE_COST_BYTES;
    int64_t added = now - job->value_bytes;
    if (added == 0) {
        return;
    }
    job->value_bytes = now;
    (void)atomic_fetch_add(&service->value_bytes, added);
    if (job->quota != NULL) {
        (void)atomic_fetch_add(&job->quota->value_bytes, added);
    }
}
