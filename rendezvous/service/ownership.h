/*
 * Which server has a job, where several share a store. A server claims a job when somebody asks for
 * it, or when its owner has gone, and reads it then; it drops the job when its claim is lost, with
 * all requests that it holds: their senders ask again, and reach the new owner.
 *
 * With a store of this server's own nothing of this happens.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_OWNERSHIP_H
#define MUSTER_RENDEZVOUS_SERVICE_OWNERSHIP_H

#include "rendezvous/service/jobs.h"

void muster_ownership_init(struct muster_ownership *ownership, struct muster_service *service);
/* If the store is shared: from now on this server may claim jobs. */
MUSTER_CHECKED muster_status muster_ownership_start(struct muster_service *service);
void muster_ownership_stop(struct muster_service *service);
void muster_ownership_finish(struct muster_ownership *ownership);

/* Before a call of this job. True: this server has it, or may say that there is none; a job that is
 * about to be created has call->claim. False: call->response says why not, and, if another server
 * has it, where. Blocks for the store. No lock is held. */
bool muster_ownership_ensure(struct muster_rpc_call *call, const char *name, bool creates);

/* After the call: a claim for a job that was not created after all is given up. */
void muster_ownership_conclude(struct muster_service *service, uint64_t claim);

/* MUSTER_OK: what this server says of a job with this claim is how it is; claim 0: of no job.
 * MUSTER_RETRY: it may be an old state. */
static inline muster_status muster_ownership_check(struct muster_store *store, uint64_t claim)
{
    return store->shared == NULL ? MUSTER_OK : store->shared->check(store, claim);
}

#endif
