/*
 * A thread that does one piece of work at a time in the background.
 *
 * Threads: one caller at a time. May use: base.
 */
#ifndef MUSTER_WORKER_SESSION_COPIER_H
#define MUSTER_WORKER_SESSION_COPIER_H

#include "worker/base/status.h"

struct muster_copier;

/* MUSTER_FATAL: no memory, no thread. */
MUSTER_CHECKED muster_status muster_copier_create(struct muster_copier **ret_copier);
/* No work may be left. Accepts NULL. */
void muster_copier_destroy(struct muster_copier *copier);

/* The work before has been waited for. */
void muster_copier_start(struct muster_copier *copier, void (*work)(void *argument),
                         void *argument);
void muster_copier_wait(struct muster_copier *copier);

#endif
