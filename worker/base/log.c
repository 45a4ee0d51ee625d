/* The log: one line on standard error, written as a whole. */
#include "worker/base/log.h"
#include "worker/base/epoch.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024, LEVEL_UNSET = -1 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static atomic_int current_level = LEVEL_UNSET;
static muster_log_writer current_writer; /* NULL: plain lines on standard error */
static _Atomic uint32_t identity_rank;
static _Atomic uint64_t identity_generation; /* 0: no identity yet */

void muster_log_set_level(enum muster_log_level level)
{
    atomic_store(&current_level, (int)level);
}

muster_status muster_log_parse_level(const char *word, enum muster_log_level *ret_level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *ret_level = (enum muster_log_level)i;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_INVALID, "log level \"%s\": use error, warn, info or debug",
                            word);
}

const char *muster_log_level_name(enum muster_log_level level)
{
    return level_names[level];
}

void muster_log_set_writer(muster_log_writer writer)
{
    current_writer = writer;
}

void muster_log_set_identity(uint32_t rank, uint64_t generation)
{
    atomic_store(&identity_rank, rank);
    atomic_store(&identity_generation, generation);
}

static int level_from_environment(void)
{
    enum muster_log_level level = MUSTER_LOG_WARN;
    const char *word = getenv("MUSTER_LOG");
    if (word != NULL && muster_log_parse_level(word, &level) != MUSTER_OK) {
        level = MUSTER_LOG_WARN;
    }
    int unset = LEVEL_UNSET;
    (void)atomic_compare_exchange_strong(&current_level, &unset, (int)level);
    return atomic_load(&current_level);
}

/* The line is built in a buffer and written by one write(), so that lines of several processes do
 * not mix. What is too long is cut. */
void muster_log(enum muster_log_level level, const char *format, ...)
{
    int limit = atomic_load(&current_level);
    if (limit == LEVEL_UNSET) {
        limit = level_from_environment();
    }
    if ((int)level > limit) {
        return;
    }
    char line[LINE_MAX_BYTES];
    int used = 0;
    if (current_writer == NULL) {
        used = snprintf(line, sizeof line, "muster %s ", level_names[level]);
    }
    uint64_t generation = atomic_load(&identity_generation);
    if (generation != 0) {
        used += snprintf(line + used, sizeof line - (size_t)used, "rank=%u generation=%llu ",
                         atomic_load(&identity_rank),
                         (unsigned long long)muster_epoch_shown(generation));
    }
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    used = added < 0 ? used : used + added;
    if (used > LINE_MAX_BYTES - 1) {
        used = LINE_MAX_BYTES - 1;
    }
    if (current_writer != NULL) {
        current_writer(level, line);
        return;
    }
    line[used] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)used + 1);
    (void)written; /* there is nowhere to report that the log is gone */
}
