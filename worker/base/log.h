/* The floor: one line on standard error where an error is handled. Pure code never logs. */
#ifndef MUSTER_WORKER_BASE_LOG_H
#define MUSTER_WORKER_BASE_LOG_H

#include "worker/base/status.h"

enum muster_log_level {
    MUSTER_LOG_ERROR = 0,
    MUSTER_LOG_WARN = 1,
    MUSTER_LOG_INFO = 2,
    MUSTER_LOG_DEBUG = 3,
};

/* Lines above this level are dropped. The first level is that of MUSTER_LOG ("error", "warn",
 * "info", "debug"), else "warn". */
void muster_log_set_level(enum muster_log_level level);

/* "error", "warn", "info" or "debug" -> level. MUSTER_INVALID names the word. */
MUSTER_CHECKED muster_status muster_log_parse_level(const char *word,
                                                    enum muster_log_level *ret_level);

/* Sets the rank and the generation of this process, once they are known: lines then begin with
 * rank= and generation=. */
void muster_log_set_identity(uint32_t rank, uint64_t generation);

/* "error", "warn", ... */
const char *muster_log_level_name(enum muster_log_level level);

/* Writes the text of one line, which has no line end, somewhere. Called from any thread. */
typedef void (*muster_log_writer)(enum muster_log_level level, const char *text);
/* Lines that pass the level go to this writer instead of standard error. To be called before a
 * second thread starts. */
void muster_log_set_writer(muster_log_writer writer);

/* Writes "muster LEVEL rank=R generation=G TEXT" with one write(2). TEXT is the format's: fields
 * first, as key=value, then words. Never payloads, tokens or other secrets. */
void muster_log(enum muster_log_level level, const char *format, ...) MUSTER_PRINTF(2, 3);

#endif
