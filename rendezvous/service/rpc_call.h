/* What is asked and answered: a request as it came, and what goes back. No sockets, no jobs. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_RPC_CALL_H
#define MUSTER_RENDEZVOUS_SERVICE_RPC_CALL_H

#include "elastic/messages/messages.h"

struct muster_rpc_request {
    enum muster_rpc_method method;
    const char *token; /* what came with the request; NULL: none */
    const char *body;  /* JSON; not terminated */
    size_t size_bytes;
    uint32_t timeout_ms; /* the caller waits no longer; UINT32_MAX: as long as it takes */
};

struct muster_rpc_response {
    enum muster_rpc_code code;
    char *body; /* owned JSON; NULL: memory is out */
    size_t size_bytes;
};

/* Takes the object; NULL is an answer that says that memory is out. */
struct muster_rpc_response muster_rpc_response_json(json_t *json);
struct muster_rpc_response muster_rpc_response_error(enum muster_rpc_code code, const char *format,
                                                     ...) MUSTER_PRINTF(2, 3);
/* What status and muster_last_error() say. */
struct muster_rpc_response muster_rpc_response_status(muster_status status);

#endif
