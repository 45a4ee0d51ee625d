/* The epoch that a server begins when it starts (worker/base/epoch.h). */
#ifndef MUSTER_RENDEZVOUS_EPOCH_BEGIN_H
#define MUSTER_RENDEZVOUS_EPOCH_BEGIN_H

#include "rendezvous/store/store.h"

/* Begins an epoch in the store: seconds since 2026, or one more than the store's last. With `wait`,
 * a store that is new waits until this second is over, so that a server with another new store,
 * which begins later, has a higher epoch: blocks for a second at most. MUSTER_INVALID: the clock is
 * not between 2026 and 2094, or the store's epoch is damaged; MUSTER_RETRY: the store cannot be
 * written. */
MUSTER_CHECKED muster_status muster_epoch_begin(struct muster_store *store, bool wait,
                                                uint32_t *ret_epoch);

#endif
