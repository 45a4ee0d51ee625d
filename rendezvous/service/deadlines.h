/* Held requests by deadline: the one that ends first is found at once, however different the times
 * are for which requests are held. Under the job's lock. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_DEADLINES_H
#define MUSTER_RENDEZVOUS_SERVICE_DEADLINES_H

#include "worker/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct muster_held_request;

/* A heap: the parent of items[i] is items[(i - 1) / 2], and ends no later. */
struct muster_deadlines {
    struct muster_held_request **items; /* owned [capacity] */
    size_t count, capacity;
};

/* deadline_ns is set. MUSTER_FATAL: no memory, nothing changed. */
MUSTER_CHECKED muster_status muster_deadlines_add(struct muster_deadlines *deadlines,
                                                  struct muster_held_request *held);
void muster_deadlines_remove(struct muster_deadlines *deadlines, struct muster_held_request *held);
/* The request that ends first; NULL: nothing is held. */
struct muster_held_request *muster_deadlines_first(const struct muster_deadlines *deadlines);
/* Nothing is held. */
void muster_deadlines_finish(struct muster_deadlines *deadlines);

#endif
