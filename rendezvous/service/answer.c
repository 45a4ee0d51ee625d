#include "rendezvous/service/answer.h"

#include "worker/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct muster_rpc_answer answer_text(enum muster_rpc_code code, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL) {
        return (struct muster_rpc_answer){.code = MUSTER_RPC_INTERNAL};
    }
    return (struct muster_rpc_answer){.code = code, .body = text, .size_bytes = strlen(text)};
}

struct muster_rpc_answer muster_answer_json(json_t *json)
{
    return answer_text(MUSTER_RPC_OK, json);
}

struct muster_rpc_answer muster_answer_error(enum muster_rpc_code code, const char *format, ...)
{
    struct muster_rpc_error error = {.code = code};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error.message, sizeof error.message, format, arguments);
    va_end(arguments);
    return answer_text(code, muster_rpc_error_encode(&error));
}

struct muster_rpc_answer muster_answer_status(muster_status status)
{
    if (status == MUSTER_FATAL) {
        muster_log(MUSTER_LOG_ERROR, "%s", muster_last_error());
    }
    return muster_answer_error(muster_rpc_code_of_status(status), "%s", muster_last_error());
}
