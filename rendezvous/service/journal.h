/* The journal of a job: what the store has of it. It is written before anything is answered, and
 * read when a server starts. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_JOURNAL_H
#define MUSTER_RENDEZVOUS_SERVICE_JOURNAL_H

#include "elastic/membership/membership.h"

struct muster_job;
struct muster_service;
struct muster_store;

/* Appends an event. MUSTER_RETRY, from the store or for want of memory: nothing was changed. */
MUSTER_CHECKED muster_status muster_journal_append(struct muster_store *store,
                                                   struct muster_job *job,
                                                   const struct muster_event *event);

/* Applies a stored text, a record of a snapshot or an event, to the membership that those before it
 * have led to. *ret_now_ms: when it was, in the job's time; -1: it does not say. */
MUSTER_CHECKED muster_status muster_journal_apply(struct muster_membership *membership,
                                                  bool of_snapshot, const char *text,
                                                  size_t size_bytes, int64_t *ret_now_ms);

/* Reads the store into the table of jobs, and of damaged jobs. MUSTER_INVALID: the file is damaged
 * as a whole. */
MUSTER_CHECKED muster_status muster_journal_load(struct muster_service *service);

#endif
