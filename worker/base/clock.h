/* The floor: time. Only shells include this header; the pure cores get the time as an argument. */
#ifndef MUSTER_WORKER_BASE_CLOCK_H
#define MUSTER_WORKER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

enum { MUSTER_NS_PER_MS = 1000000, MUSTER_NS_PER_S = 1000000000 };

/* A deadline that never comes. */
#define MUSTER_NEVER INT64_MAX

/* The time of CLOCK_MONOTONIC. */
int64_t muster_clock_ns(void);
int64_t muster_clock_ms(void);

/* The time of muster_clock_ns() at which timeout_ms from now have passed. */
int64_t muster_clock_after_ms(uint32_t timeout_ms);
/* The same, or up to a hundredth of the timeout later: for the deadline of each call, since it
 * takes a fifth of the time. */
int64_t muster_clock_soon_after_ms(uint32_t timeout_ms);

/* Milliseconds from now to the deadline, rounded up; 0 if it has passed; at most INT_MAX. */
int muster_clock_left_ms(int64_t deadline_ns);

/* The same time or duration, not negative, as system calls take it. */
static inline struct timespec muster_clock_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / MUSTER_NS_PER_S, .tv_nsec = ns % MUSTER_NS_PER_S};
}

#endif
