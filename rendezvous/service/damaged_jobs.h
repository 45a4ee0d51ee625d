/*
 * Jobs of which a row in the store is not as it was written. The service goes on without them: all
 * other jobs are served, and every request that names a damaged one is answered `unavailable` with
 * the row and what is wrong with it, so that its workers continue to compute and ask again. Nothing
 * of it is guessed. EndJob removes it from the store; then its name is free.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_DAMAGED_JOBS_H
#define MUSTER_RENDEZVOUS_SERVICE_DAMAGED_JOBS_H

#include "rendezvous/service/jobs.h"

/* While the store is loaded. Logs the damage. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_damaged_jobs_add(struct muster_service *service,
                                                     const struct muster_store_job *stored,
                                                     const char *what);

/* True if the job of this name is damaged; the call then has its error. */
bool muster_damaged_jobs_refuse(struct muster_rpc_call *call, const char *name);

/* EndJob: true if the job of this name is damaged; the call is then answered. */
bool muster_damaged_jobs_end(struct muster_rpc_call *call, const char *name);

size_t muster_damaged_jobs_count(struct muster_service *service);

void muster_damaged_jobs_finish(struct muster_service *service);

#endif
