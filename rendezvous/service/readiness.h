/* Whether a service can do its work: its store can be written. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_READINESS_H
#define MUSTER_RENDEZVOUS_SERVICE_READINESS_H

#include "rendezvous/store/store.h"
#include "worker/base/thread.h"

#include <stdbool.h>

enum { MUSTER_READINESS_MS = 1000 }; /* an answer of the store counts so long */

struct muster_readiness {
    pthread_mutex_t mutex; /* all that follows; no other lock is held when it is taken */
    int64_t asked_ns;      /* when the store was asked; 0: never */
    muster_status status;
    char why[MUSTER_ERROR_MAX];
};

void muster_readiness_init(struct muster_readiness *readiness);
void muster_readiness_finish(struct muster_readiness *readiness);

/* Writes to the store, at most once a second however many ask, and returns what came of it. Blocks
 * for the store. MUSTER_RETRY: it cannot be written, and the text says why. */
MUSTER_CHECKED muster_status muster_readiness_check(struct muster_readiness *readiness,
                                                    struct muster_store *store);

#endif
