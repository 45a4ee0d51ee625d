/* How other threads get at what the leader works on: they wake it, and it releases the fabric's
 * lock while it moves bytes or waits. */
#include "worker/base/thread.h"
#include "worker/fabric/link.h"

#include <unistd.h>

void muster_fabric_wake(struct muster_fabric *fabric)
{
    /* Either the leader sees `woken` before it sleeps, or this thread sees `sleeping`: each stores
     * its own flag before it loads the other one. */
    if (atomic_exchange(&fabric->woken, true) || !atomic_load(&fabric->sleeping)) {
        return;
    }
    uint64_t one = 1;
    ssize_t written = write(fabric->wake_fd, &one, sizeof one);
    (void)written; /* cannot fail: the counter holds 2^64 - 2 wakes */
}

void muster_fabric_unlock(struct muster_fabric *fabric)
{
    fabric->busy = true;
    muster_mutex_unlock(&fabric->lock);
}

void muster_fabric_lock(struct muster_fabric *fabric)
{
    muster_mutex_lock(&fabric->lock);
    fabric->busy = false;
    if (fabric->quiescing > 0) {
        pthread_cond_broadcast(&fabric->idle);
    }
}

void muster_fabric_yield(struct muster_fabric *fabric)
{
    while (fabric->quiescing > 0) {
        pthread_cond_wait(&fabric->idle, &fabric->lock);
    }
}

void muster_fabric_quiesce(struct muster_fabric *fabric)
{
    fabric->quiescing++;
    while (fabric->busy) {
        muster_fabric_wake(fabric); /* the leader may be spinning */
        pthread_cond_wait(&fabric->idle, &fabric->lock);
    }
    fabric->quiescing--;
    pthread_cond_broadcast(&fabric->idle);
}
