/* An epoch from the clock of the machine and the store. */
#include "rendezvous/epoch_begin.h"

#include "worker/base/epoch.h"

#include <errno.h>
#include <time.h>

#define SECONDS_1970_TO_2026 INT64_C(1767225600)

static int64_t seconds_since_2026(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec - SECONDS_1970_TO_2026;
}

/* Sleeps to the beginning of the next second. A clock that is set back ends the wait, too: it is at
 * most a second. */
static void wait_out_the_second(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    struct timespec left = {.tv_nsec = 1000000000L - now.tv_nsec};
    if (left.tv_nsec == 1000000000L) {
        left = (struct timespec){.tv_sec = 1};
    }
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

muster_status muster_epoch_begin(struct muster_store *store, uint32_t *ret_epoch)
{
    int64_t now_s = seconds_since_2026();
    bool first = false;
    if (now_s < 1 || now_s >= MUSTER_EPOCH_MAX - MUSTER_EPOCHS_PER_DAY) {
        return muster_error_set(MUSTER_INVALID,
                                "the clock of this machine is not between 2026 and 2094: set it");
    }
    TRY(store->ops->begin_epoch(store, (uint32_t)now_s, ret_epoch, &first));
    if (first) {
        wait_out_the_second();
    }
    return MUSTER_OK;
}
