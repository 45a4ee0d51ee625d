/* The monotonic clock, and deadlines of it. */
#include "worker/base/clock.h"

#include <limits.h>

enum {
    TICK_MS = 10, /* the longest of the coarse clock */
    COARSE_FROM_MS = 100 * TICK_MS,
};

int64_t muster_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * MUSTER_NS_PER_S + now.tv_nsec;
}

int64_t muster_clock_ms(void)
{
    return muster_clock_ns() / MUSTER_NS_PER_MS;
}

int64_t muster_clock_after_ms(uint32_t timeout_ms)
{
    return muster_clock_ns() + (int64_t)timeout_ms * MUSTER_NS_PER_MS;
}

int64_t muster_clock_soon_after_ms(uint32_t timeout_ms)
{
    struct timespec now;
    if (timeout_ms < COARSE_FROM_MS) {
        return muster_clock_after_ms(timeout_ms);
    }
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * MUSTER_NS_PER_S + now.tv_nsec +
           ((int64_t)timeout_ms + TICK_MS) * MUSTER_NS_PER_MS;
}

int muster_clock_left_ms(int64_t deadline_ns)
{
    if (deadline_ns == MUSTER_NEVER) {
        return INT_MAX;
    }
    int64_t left_ns = deadline_ns - muster_clock_ns();
    if (left_ns <= 0) {
        return 0;
    }
    int64_t left_ms = (left_ns + MUSTER_NS_PER_MS - 1) / MUSTER_NS_PER_MS;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
