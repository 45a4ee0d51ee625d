/* Asks the store whether it can be written, and remembers the answer for a second. */
#include "rendezvous/service/readiness.h"

#include "worker/base/clock.h"

#include <stdio.h>

void muster_readiness_init(struct muster_readiness *readiness)
{
    muster_mutex_init(&readiness->mutex);
}

void muster_readiness_finish(struct muster_readiness *readiness)
{
    (void)pthread_mutex_destroy(&readiness->mutex);
}

muster_status muster_readiness_check(struct muster_readiness *readiness, struct muster_store *store)
{
    const int64_t keep_ns = (int64_t)MUSTER_READINESS_MS * MUSTER_NS_PER_MS;
    AUTO_LOCK(&readiness->mutex);
    int64_t now_ns = muster_clock_ns();
    if (readiness->asked_ns == 0 || now_ns - readiness->asked_ns >= keep_ns) {
        readiness->status = store->ops->probe(store);
        readiness->asked_ns = now_ns;
        if (readiness->status != MUSTER_OK) {
            (void)snprintf(readiness->why, sizeof readiness->why, "%s", muster_last_error());
        }
    }
    if (readiness->status != MUSTER_OK) {
        return muster_error_set(readiness->status, "%s", readiness->why);
    }
    return MUSTER_OK;
}
