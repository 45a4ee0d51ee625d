/*
 * Looks at the job on the server again and again from a thread of its own, so that a server that
 * does not answer holds up nobody. The supervisor takes what was seen.
 */
#ifndef MUSTER_WORKER_CLI_RUN_JOB_POLL_H
#define MUSTER_WORKER_CLI_RUN_JOB_POLL_H

#include "elastic/messages/messages.h"

struct muster_job_snapshot {
    int64_t requested_ns;         /* when the question was sent: what is older is in the answer */
    bool reached;                 /* the server answered */
    bool known;                   /* and knows the job: `job` is filled; finish it */
    char error[MUSTER_ERROR_MAX]; /* if not */
    struct muster_job_response job;
};

struct muster_job_poller;

/* Asks every interval_ms. notify_fd (an eventfd, borrowed) becomes readable with each look. */
MUSTER_CHECKED muster_status muster_job_poller_create(const char *url, const char *token,
                                                      const char *job, uint32_t interval_ms,
                                                      int notify_fd,
                                                      struct muster_job_poller **ret_poller);
/* Interrupts the call under way. */
void muster_job_poller_destroy(struct muster_job_poller *poller);

enum { MUSTER_JOB_POLL_TIMEOUT_MS = 2000 };

/* The newest look, once; false if there is no new one. The caller finishes look->job. */
bool muster_job_poller_take(struct muster_job_poller *poller,
                            struct muster_job_snapshot *ret_snapshot);

/* Look now rather than at the end of the interval. */
void muster_job_poller_poll_now(struct muster_job_poller *poller);

#endif
