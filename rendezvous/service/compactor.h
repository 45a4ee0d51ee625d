/*
 * Compaction: when the events of a job in the store become too many, a snapshot of the membership
 * that they lead to takes their place, so that the log of a job that lives for months stays
 * bounded.
 *
 * A thread of its own does it, and nobody waits for it: it reads the events back from the store,
 * applies them to a membership of its own, stages the snapshot of that and removes the rows that it
 * replaces, a few rows at a time, each time with the job locked for less than a millisecond. The
 * job goes on meanwhile; its newer events stay.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_COMPACTOR_H
#define MUSTER_RENDEZVOUS_SERVICE_COMPACTOR_H

#include "elastic/messages/messages.h"
#include "worker/base/thread.h"

struct muster_job;
struct muster_service;

enum {
    /* So many events are added after a snapshot before the next one replaces them; as many as the
     * snapshot has records, if these are more. That is seldom enough to cost little beside the
     * events. */
    MUSTER_EVENTS_TO_COMPACT = 4096,
    MUSTER_COMPACTION_ROWS = 64, /* that are read, staged or removed with the job locked */
};

struct muster_compaction;

struct muster_compactor {
    struct muster_service *service; /* borrowed */
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct muster_compaction *queue; /* under the lock */
    uint64_t numbers;                /* under the lock: how many compactions there were */
    bool stopping;                   /* under the lock */
};

/* Prepares zeroed storage. */
void muster_compactor_init(struct muster_compactor *compactor, struct muster_service *service);
MUSTER_CHECKED muster_status muster_compactor_start(struct muster_compactor *compactor);
/* Ends the thread; what it has not installed is not used, and removed by the next compaction. */
void muster_compactor_finish(struct muster_compactor *compactor);

/* The job has a new event: compacts it, if it has too many. If that fails the events stay, and it
 * is tried again after as many more. The job is locked. */
void muster_compactor_add_if_due(struct muster_compactor *compactor, struct muster_job *job);

#endif
