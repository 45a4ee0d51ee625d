/*
 * Queues of requests by job, and threads that work on them. A queue is worked on by one thread at a
 * time, and after each request its turn goes to the next queue: a job with thousands of requests,
 * or with one that takes long, does not hold up another. The threads that read sockets only add.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_QUEUES_H
#define MUSTER_RENDEZVOUS_HTTP_QUEUES_H

#include "worker/base/status.h"

#include <stddef.h>

enum { MUSTER_QUEUE_THREADS = 4 };

/* Storage of the caller, borrowed until run is called, which happens once. */
struct muster_queued {
    void (*run)(struct muster_queued *queued);
    unsigned queue; /* set when it is added */
    struct muster_queued *next;
};

struct muster_queues;

MUSTER_CHECKED muster_status muster_queues_create(struct muster_queues **ret_queues);
/* Runs what is queued, and ends the threads; what is added later runs in the caller. */
void muster_queues_stop(struct muster_queues *queues);
/* After stop, when nothing is added any more. Accepts NULL. */
void muster_queues_destroy(struct muster_queues *queues);

/* Adds to the queue of the job that the JSON of a request names. Jobs may share a queue. Any
 * thread. */
void muster_queues_add(struct muster_queues *queues, const char *json, size_t size_bytes,
                       struct muster_queued *queued);
/* Adds to the queue of the job of this name. */
void muster_queues_add_for(struct muster_queues *queues, const char *job,
                           struct muster_queued *queued);
/* Adds to the queue to which `other` was added, when it has run or not. */
void muster_queues_add_beside(struct muster_queues *queues, const struct muster_queued *other,
                              struct muster_queued *queued);

#endif
