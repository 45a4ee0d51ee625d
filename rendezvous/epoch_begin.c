/* An epoch from the clock of the machine and the store. */
#include "rendezvous/epoch_begin.h"

#include "worker/base/epoch.h"

#include <errno.h>
#include <time.h>

#define SECONDS_1970_TO_2026 INT64_C(1767225600)
#define SECOND_NS 1000000000L

static struct timespec now(void)
{
    struct timespec time = {0};
    (void)clock_gettime(CLOCK_REALTIME, &time);
    return time;
}

/* Sleeps until this second is over. Where the clock is set back meanwhile, a second is enough. */
static void wait_out(time_t second)
{
    struct timespec time = now();
    if (time.tv_sec > second) {
        return;
    }
    struct timespec left = {.tv_nsec = SECOND_NS - time.tv_nsec};
    if (left.tv_nsec == SECOND_NS) {
        left = (struct timespec){.tv_sec = 1};
    }
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

muster_status muster_epoch_begin(struct muster_store *store, bool wait, uint32_t *ret_epoch)
{
    time_t second = now().tv_sec;
    int64_t epoch = (int64_t)second - SECONDS_1970_TO_2026;
    bool first = false;
    if (epoch < 1 || epoch >= MUSTER_EPOCH_MAX - MUSTER_EPOCHS_PER_DAY) {
        return muster_error_set(MUSTER_INVALID,
                                "the clock of this machine is not between 2026 and 2094: set it");
    }
    TRY(store->ops->begin_epoch(store, (uint32_t)epoch, ret_epoch, &first));
    if (first && wait) {
        wait_out(second);
    }
    return MUSTER_OK;
}
