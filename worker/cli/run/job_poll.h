/*
 * Polls the job on the server (GetJob) from a thread of its own, so that a server that does not
 * answer delays neither output nor signals. The supervisor takes the snapshots.
 */
#ifndef MUSTER_WORKER_CLI_RUN_JOB_POLL_H
#define MUSTER_WORKER_CLI_RUN_JOB_POLL_H

#include "elastic/messages/messages.h"

struct muster_job_snapshot {
    int64_t requested_ns; /* when GetJob was sent: what happened before it is in the answer */
    bool reached;         /* the server answered */
    bool known;           /* and has the job: `job` is filled; finish it */
    char error[MUSTER_ERROR_MAX]; /* if it is not known: why */
    struct muster_job_response job;
};

struct muster_job_poller;

/* Polls every interval_ms. notify_fd (an eventfd, borrowed) becomes readable with each snapshot. */
MUSTER_CHECKED muster_status muster_job_poller_create(const char *url, const char *token,
                                                      const char *job, uint32_t interval_ms,
                                                      int notify_fd,
                                                      struct muster_job_poller **ret_poller);
/* Interrupts a call in progress. Accepts NULL. */
void muster_job_poller_destroy(struct muster_job_poller *poller);

enum { MUSTER_JOB_POLL_TIMEOUT_MS = 2000 };

/* Moves the newest snapshot out; false: there is no new one. The caller finishes its job. */
bool muster_job_poller_take(struct muster_job_poller *poller,
                            struct muster_job_snapshot *ret_snapshot);

/* Polls at once rather than at the end of the interval. */
void muster_job_poller_poll_now(struct muster_job_poller *poller);

#endif
