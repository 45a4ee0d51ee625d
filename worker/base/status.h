/* The floor: how a function reports that it failed. */
#ifndef MUSTER_WORKER_BASE_STATUS_H
#define MUSTER_WORKER_BASE_STATUS_H

#include "worker/muster.h"

#define MUSTER_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))

/* Longest text that muster_last_error() returns, the terminator included; longer ones are cut. */
enum { MUSTER_ERROR_MAX = 512 };

/* Sets this thread's error text and returns the status, so that a failing function can end with
 * `return muster_error_set(MUSTER_INVALID, "count %zu: ...", count);`. */
muster_status muster_error_set(muster_status status, const char *format, ...) MUSTER_PRINTF(2, 3);

/* Puts "TEXT: " of the format before the present error text. Returns the status. */
muster_status muster_error_prefix(muster_status status, const char *format, ...)
    MUSTER_PRINTF(2, 3);

/* Sets "TEXT: strerror(errno)". Returns the status. */
muster_status muster_error_errno(muster_status status, const char *format, ...) MUSTER_PRINTF(2, 3);

/* Returns from the function if the status is not MUSTER_OK. */
#define TRY(call)                    \
    do {                             \
        muster_status try_ = (call); \
        if (try_ != MUSTER_OK) {     \
            return try_;             \
        }                            \
    } while (0)

#endif
