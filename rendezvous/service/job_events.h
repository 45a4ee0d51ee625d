/* The events of a job, from requests and from the clock: check, store, apply, carry out the
 * actions. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_JOB_EVENTS_H
#define MUSTER_RENDEZVOUS_SERVICE_JOB_EVENTS_H

#include "rendezvous/service/transactions.h"

/* Accepts an event and then every event that is due, and responds to the held requests that become
 * ready. Sets event->now_ms. Returns the status of muster_membership_check(), or MUSTER_RETRY from
 * the store: then nothing was changed. */
MUSTER_CHECKED muster_status muster_job_accept(struct muster_transaction *transaction,
                                               struct muster_event *event);

/* Accepts every event that is due. If one cannot be stored, all that remain are tried again later.
 */
void muster_job_accept_due(struct muster_transaction *transaction);

/* To be called before anything that depends on the time. If the job should have run long ago, the
 * process was stopped and could not see signs of life since: every member gets a fresh lease before
 * the next event. */
void muster_job_detect_pause(struct muster_job *job);

/* A sign of life of a listed member. */
void muster_job_heartbeat(struct muster_job *job, const char *member, uint64_t progress);

/* The job was read from a shared store: gives every member a fresh lease, now or as soon as the
 * store can be written. Its last owner may hold requests of members and be frozen: until these
 * must have ended, every member counts as held here. */
void muster_job_resume(struct muster_transaction *transaction);
/* When that time is over: the leases of members of which no request is held begin. */
void muster_job_end_grace(struct muster_transaction *transaction, int64_t now_ns);

/* The server has loaded its jobs: gives every member a fresh lease, which begins when the kernel of
 * a member must have noticed that its connection is dead: after a power loss of the server nothing
 * resets it. */
MUSTER_CHECKED muster_status muster_jobs_restart(struct muster_service *service);

#endif
