/* Statuses and the error text of each thread. */
#include "worker/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[MUSTER_ERROR_MAX];

const char *muster_last_error(void)
{
    return error_text;
}

const char *muster_status_name(muster_status status)
{
    switch (status) {
    case MUSTER_OK:
        return "ok";
    case MUSTER_INVALID:
        return "invalid";
    case MUSTER_RETRY:
        return "retry";
    case MUSTER_REJOIN:
        return "rejoin";
    case MUSTER_ENDED:
        return "ended";
    case MUSTER_FATAL:
        return "fatal";
    }
    return "unknown";
}

const char *muster_version(void)
{
    return MUSTER_VERSION;
}

/* Texts come from peers, too (an abort has its reason): an error stays one line. */
static void flatten(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') {
            *c = ' ';
        }
    }
}

muster_status muster_error_set(muster_status status, const char *format, ...)
{
    char text[MUSTER_ERROR_MAX]; /* an argument may be muster_last_error() itself */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    flatten(text);
    memcpy(error_text, text, sizeof text);
    return status;
}

muster_status muster_error_prefix(muster_status status, const char *format, ...)
{
    char prefix[MUSTER_ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return muster_error_set(status, "%s: %s", prefix, error_text);
}

muster_status muster_error_errno(muster_status status, const char *format, ...)
{
    int number = errno;
    char prefix[MUSTER_ERROR_MAX];
    char words[128] = "";
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    const char *reason = strerror_r(number, words, sizeof words);
    return muster_error_set(status, "%s: %s", prefix, reason);
}
