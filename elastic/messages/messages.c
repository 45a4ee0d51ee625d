/* Names of methods and codes, and what is checked of every text before it is decoded. */
#include "elastic/messages/messages.h"

#include <string.h>

const char *muster_rpc_method_name(enum muster_rpc_method method)
{
    static const char *const names[MUSTER_RPC_METHOD_COUNT] = {
        "Join", "Watch",          "Leave",  "Report",    "Resize",      "Put",
        "Get",  "Wait",           "GetJob", "ListJobs",  "EndJob",      "Peers",
        "Add",  "CompareAndSwap", "Delete", "CountKeys", "WatchStream",
    };
    return (unsigned)method < MUSTER_RPC_METHOD_COUNT ? names[method] : "unknown";
}

/* Names and HTTP statuses as the Connect protocol has them. */
static const struct {
    const char *name;
    unsigned http;
} codes[] = {
    [MUSTER_RPC_OK] = {"ok", 200},
    [MUSTER_RPC_CANCELED] = {"canceled", 499},
    [MUSTER_RPC_UNKNOWN] = {"unknown", 500},
    [MUSTER_RPC_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [MUSTER_RPC_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [MUSTER_RPC_NOT_FOUND] = {"not_found", 404},
    [MUSTER_RPC_ALREADY_EXISTS] = {"already_exists", 409},
    [MUSTER_RPC_PERMISSION_DENIED] = {"permission_denied", 403},
    [MUSTER_RPC_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [MUSTER_RPC_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [MUSTER_RPC_ABORTED] = {"aborted", 409},
    [MUSTER_RPC_OUT_OF_RANGE] = {"out_of_range", 400},
    [MUSTER_RPC_UNIMPLEMENTED] = {"unimplemented", 501},
    [MUSTER_RPC_INTERNAL] = {"internal", 500},
    [MUSTER_RPC_UNAVAILABLE] = {"unavailable", 503},
    [MUSTER_RPC_DATA_LOSS] = {"data_loss", 500},
    [MUSTER_RPC_UNAUTHENTICATED] = {"unauthenticated", 401},
};
enum { CODE_COUNT = sizeof codes / sizeof codes[0] };

static enum muster_rpc_code known(enum muster_rpc_code code)
{
    return (unsigned)code < CODE_COUNT ? code : MUSTER_RPC_UNKNOWN;
}

const char *muster_rpc_code_name(enum muster_rpc_code code)
{
    return codes[known(code)].name;
}

unsigned muster_rpc_code_http(enum muster_rpc_code code)
{
    return codes[known(code)].http;
}

enum muster_rpc_code muster_rpc_code_parse(const char *name)
{
    for (unsigned i = 0; i < CODE_COUNT; i++) {
        if (strcmp(codes[i].name, name) == 0) {
            return (enum muster_rpc_code)i;
        }
    }
    return MUSTER_RPC_UNKNOWN;
}

bool muster_job_name_valid(const char *name)
{
    size_t length = strspn(name,
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                           "0123456789._-");
    return length > 0 && length < MUSTER_JOB_NAME_SIZE && name[length] == '\0';
}

bool muster_host_name_valid(const char *name)
{
    size_t length = strspn(name,
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                           "0123456789._-:");
    return length > 0 && length < MUSTER_HOST_SIZE && name[length] == '\0';
}

/* jansson nests up to 2048 deep, which is more stack than a server's thread should risk. */
static muster_status check_depth(const char *text, size_t size_bytes)
{
    unsigned depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < size_bytes; i++) {
        char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if ((c == '{' || c == '[') && ++depth > MUSTER_JSON_DEPTH_MAX) {
            return muster_error_set(MUSTER_INVALID, "JSON: nested deeper than %d at byte %zu",
                                    MUSTER_JSON_DEPTH_MAX, i);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return MUSTER_OK;
}

muster_status muster_json_parse(const char *text, size_t size_bytes, json_t **ret_json)
{
    if (size_bytes > MUSTER_RESPONSE_MAX_BYTES) {
        return muster_error_set(MUSTER_INVALID, "JSON: longer than %d bytes",
                                MUSTER_RESPONSE_MAX_BYTES);
    }
    TRY(check_depth(text, size_bytes));
    json_error_t error;
    json_t *json = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory) {
            return muster_error_set(MUSTER_FATAL, "JSON: no memory");
        }
        return muster_error_set(MUSTER_INVALID, "JSON: line %d, column %d: %s", error.line,
                                error.column, error.text);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return muster_error_set(MUSTER_INVALID, "JSON: not an object");
    }
    *ret_json = json;
    return MUSTER_OK;
}
