/*
 * A service without threads of its own (without_threads in its configuration), for simulations:
 * whoever has created it runs the steps that the threads would run, when it decides to.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_DRIVEN_H
#define MUSTER_RENDEZVOUS_SERVICE_DRIVEN_H

#include "rendezvous/service/musterd_service.h"

/* The clock thread: does what is due. */
void muster_driven_tick(struct muster_service *service);
/* When the next tick is due, after each call of the service; MUSTER_NEVER: none is. */
int64_t muster_driven_next_tick_ns(struct muster_service *service);

/* The thread that syncs: syncs the store and sends the responses that wait for it. False: nothing
 * waits. */
bool muster_driven_sync(struct muster_service *service);
bool muster_driven_sync_is_due(struct muster_service *service);

/* The thread that compacts: one compaction. between is called between two steps of it, and may use
 * the service; if it returns false the compaction is given up. False: none is due. */
bool muster_driven_compact(struct muster_service *service, bool (*between)(void *user), void *user);

#endif
