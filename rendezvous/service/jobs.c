/* Jobs: creation, reference counts, their clock, and the table that finds them by name. */
#include "rendezvous/service/jobs.h"

#include "elastic/membership/liveness.h"
#include "rendezvous/service/journal.h"
#include "rendezvous/service/quotas.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CHECKS_PER_SILENCE = 4 }; /* within the shortest after which a member may be dead */

muster_status muster_job_create(const char *name, struct muster_job **ret_job)
{
    struct muster_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = muster_membership_create(&job->membership);
    if (status != MUSTER_OK) {
        free(job);
        return status;
    }
    muster_mutex_init(&job->mutex);
    (void)snprintf(job->name, sizeof job->name, "%s", name);
    job->origin_ms = muster_clock_ms() - 1; /* no event is at 0, which means "not yet" in records */
    job->due_ns = MUSTER_NEVER;
    job->crowd_ns = muster_clock_ns();
    muster_job_plan_compaction(job, 0);
    *ret_job = job;
    return MUSTER_OK;
}

void muster_job_destroy(struct muster_job *job)
{
    if (job == NULL) {
        return;
    }
    muster_formed_destroy(job->formed);
    muster_held_requests_finish(&job->held_requests);
    muster_values_finish(&job->values);
    muster_membership_destroy(job->membership);
    (void)pthread_mutex_destroy(&job->mutex);
    free(job);
}

int64_t muster_job_now_ms(const struct muster_job *job)
{
    return muster_clock_ms() - job->origin_ms;
}

uint32_t muster_job_check_ms(const struct muster_job *job)
{
    struct muster_job_settings settings = muster_membership_settings(job->membership);
    return muster_liveness_shortest_ms(&settings) / CHECKS_PER_SILENCE;
}

void muster_job_schedule(struct muster_service *service, struct muster_job *job, int64_t at_ns)
{
    if (at_ns < job->due_ns) {
        job->due_ns = at_ns;
        muster_clock_thread_wake_by(&service->clock, at_ns);
    }
}

void muster_job_plan_compaction(struct muster_job *job, uint64_t from)
{
    uint64_t more =
        job->record_count > MUSTER_EVENTS_TO_COMPACT ? job->record_count : MUSTER_EVENTS_TO_COMPACT;
    job->compact_at = from + more;
}

/* Compares in constant time, so that the time does not show where two tokens differ. */
bool muster_token_matches(const char wanted[MUSTER_TOKEN_MAX_BYTES + 1], const char *token)
{
    char sent[MUSTER_TOKEN_MAX_BYTES + 1] = "";
    if (token != NULL && strlen(token) < sizeof sent) {
        (void)snprintf(sent, sizeof sent, "%s", token);
    }
    unsigned char differs = 0;
    for (size_t i = 0; i < sizeof sent; i++) {
        differs |= (unsigned char)(sent[i] ^ wanted[i]);
    }
    return wanted[0] == '\0' || differs == 0;
}

/* The table ----------------------------------------------------------------------------------- */

muster_status muster_jobs_add_locked(struct muster_service *service, struct muster_job *job)
{
    job->hh.tbl = NULL;
    HASH_ADD_STR(service->jobs, name, job);
    if (job->hh.tbl == NULL) {
        muster_quotas_release_locked(service, job);
        muster_job_destroy(job);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    job->listed = true;
    job->hold_count = 1;
    return MUSTER_OK;
}

static void release_locked(struct muster_service *service, struct muster_job *job)
{
    if (--job->hold_count == 0) {
        muster_quotas_release_locked(service, job);
        muster_job_destroy(job);
    }
}

static void unlist_locked(struct muster_service *service, struct muster_job *job)
{
    if (job->listed) {
        HASH_DEL(service->jobs, job);
        job->listed = false;
        release_locked(service, job);
    }
}

/* Makes room for a job: removes the one that ended first. False: none has ended. */
static bool evict_locked(struct muster_service *service)
{
    struct muster_job *oldest = NULL;
    int64_t oldest_ns = MUSTER_NEVER;
    for (struct muster_job *job = service->jobs; job != NULL; job = job->hh.next) {
        AUTO_LOCK(&job->mutex);
        if (job->ended_ns != 0 && job->ended_ns < oldest_ns) {
            oldest = job;
            oldest_ns = job->ended_ns;
        }
    }
    if (oldest == NULL) {
        return false;
    }
    muster_mutex_lock(&oldest->mutex);
    bool gone = oldest->ended_ns == oldest_ns && /* it has not begun anew in the meantime */
                service->store->ops->remove(service->store, oldest->name) == MUSTER_OK;
    oldest->removed = gone;
    muster_mutex_unlock(&oldest->mutex);
    if (gone) {
        unlist_locked(service, oldest);
    }
    return gone;
}

/* Lets the clock thread end a job of an address that has many. False: there is none. */
static bool make_room_locked(struct muster_rpc_call *call)
{
    struct muster_job *victim = muster_quotas_find_victim_locked(call);
    if (victim == NULL) {
        return false;
    }
    AUTO_LOCK(&victim->mutex);
    victim->gives_way = true;
    muster_job_schedule(call->service, victim, 0);
    muster_log(MUSTER_LOG_INFO, "job=%s gives way: address %s has %" PRIu32 " jobs", victim->name,
               victim->quota->address, victim->quota->jobs);
    return true;
}

static struct muster_job *create_locked(struct muster_rpc_call *call, const char *name)
{
    struct muster_service *service = call->service;
    uint32_t most = service->config.jobs_max;
    if (HASH_COUNT(service->jobs) >= most && !evict_locked(service)) {
        bool room = make_room_locked(call);
        call->response = muster_rpc_response_error(
            MUSTER_RPC_RESOURCE_EXHAUSTED, "job %s: there are %" PRIu32 " jobs already%s", name,
            most, room ? ", and one of another address gives way: try again" : "");
        return NULL;
    }
    struct muster_job *job = NULL;
    muster_status status = muster_job_create(name, &job);
    if (status == MUSTER_OK) {
        status = muster_quotas_take_locked(call, job);
        if (status != MUSTER_OK) {
            muster_job_destroy(job);
        }
    }
    if (status == MUSTER_OK) {
        status = muster_jobs_add_locked(service, job);
    }
    if (muster_rpc_call_failed(call, status) || job == NULL) {
        return NULL;
    }
    job->claim = call->claim;
    (void)snprintf(job->token, sizeof job->token, "%s",
                   call->request->token != NULL ? call->request->token : "");
    muster_random_hex((MUSTER_LINK_TOKEN_SIZE - 1) / 2, job->link_token);
    return job;
}

struct muster_job *muster_jobs_hold(struct muster_service *service, const char *name,
                                    struct muster_rpc_call *creator)
{
    AUTO_LOCK(&service->table_mutex);
    struct muster_job *job;
    HASH_FIND_STR(service->jobs, name, job);
    if (job == NULL && creator != NULL) {
        job = create_locked(creator, name);
    }
    if (job != NULL) {
        job->hold_count++;
    }
    return job;
}

size_t muster_jobs_hold_due(struct muster_service *service, int64_t due_ns,
                            struct muster_job *ret_jobs[MUSTER_JOBS_MAX], int64_t *ret_next_ns)
{
    size_t count = 0;
    int64_t next_ns = MUSTER_NEVER;
    AUTO_LOCK(&service->table_mutex);
    for (struct muster_job *job = service->jobs; job != NULL; job = job->hh.next) {
        int64_t at_ns = job->due_ns;
        if (at_ns <= due_ns && count < MUSTER_JOBS_MAX) {
            job->hold_count++;
            ret_jobs[count++] = job;
        } else if (at_ns < next_ns) {
            next_ns = at_ns;
        }
    }
    *ret_next_ns = next_ns;
    return count;
}

void muster_jobs_release(struct muster_service *service, struct muster_job *job, bool removed)
{
    AUTO_LOCK(&service->table_mutex);
    if (removed) {
        unlist_locked(service, job);
    }
    release_locked(service, job);
}
