/*
 * The journal of a job: what the store has of it. It is written before anything is answered, and
 * read when a server starts. When the events become too many, a snapshot of the membership replaces
 * them, so that the journal of a job that lives for months stays bounded.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_JOURNAL_H
#define MUSTER_RENDEZVOUS_SERVICE_JOURNAL_H

#include "elastic/membership/membership.h"

/* So many events are added after a snapshot before the next one replaces them; as many as the
 * snapshot has records, if these are more. That is seldom enough to cost little beside the events.
 */
enum { MUSTER_EVENTS_TO_COMPACT = 4096 };

struct muster_job;
struct muster_service;
struct muster_store;

/* Appends an event. MUSTER_RETRY, from the store or for want of memory: nothing was changed. */
MUSTER_CHECKED muster_status muster_journal_append(struct muster_store *store,
                                                   struct muster_job *job,
                                                   const struct muster_event *event);

/* Replaces the events by a snapshot, if there are too many. If that fails the events stay, and it
 * is tried again after as many more. */
void muster_journal_compact_if_due(struct muster_store *store, struct muster_job *job);

/* Reads the store into the table of jobs, and of damaged jobs. MUSTER_INVALID: the file is damaged
 * as a whole. */
MUSTER_CHECKED muster_status muster_journal_load(struct muster_service *service);

#endif
