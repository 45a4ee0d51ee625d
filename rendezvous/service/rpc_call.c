/* Responses as JSON texts. */
#include "rendezvous/service/rpc_call.h"

#include "worker/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct muster_rpc_response encode_response(enum muster_rpc_code code, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL) {
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    return (struct muster_rpc_response){.code = code, .body = text, .size_bytes = strlen(text)};
}

void muster_rpc_response_finish(struct muster_rpc_response *response)
{
    free(response->body);
    free(response->owner);
    muster_shared_text_release(response->rest);
    *response = (struct muster_rpc_response){.code = response->code};
}

struct muster_rpc_response muster_rpc_response_json(json_t *json)
{
    return encode_response(MUSTER_RPC_OK, json);
}

struct muster_rpc_response muster_rpc_response_error(enum muster_rpc_code code, const char *format,
                                                     ...)
{
    struct muster_rpc_error error = {.code = code};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error.message, sizeof error.message, format, arguments);
    va_end(arguments);
    return encode_response(code, muster_rpc_error_encode(&error));
}

struct muster_rpc_response muster_rpc_response_status(muster_status status)
{
    if (status == MUSTER_FATAL) {
        muster_log(MUSTER_LOG_ERROR, "%s", muster_last_error());
    }
    return muster_rpc_response_error(muster_rpc_code_of_status(status), "%s", muster_last_error());
}

bool muster_rpc_call_failed(struct muster_rpc_call *call, muster_status status)
{
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
    }
    return status != MUSTER_OK;
}
