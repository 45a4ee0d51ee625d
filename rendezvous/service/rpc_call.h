/* One call of a method: the request from HTTP, and the response to it. Independent of sockets and
 * of jobs. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_RPC_CALL_H
#define MUSTER_RENDEZVOUS_SERVICE_RPC_CALL_H

#include "elastic/messages/messages.h"
#include "rendezvous/service/shared_text.h"

struct muster_held_request;
struct muster_service;

enum { MUSTER_QUOTA_ADDRESS_SIZE = 48 }; /* a numeric address, terminator */

/* What the sender of a request may do; http/access.c has the rights of each role. */
enum muster_right {
    MUSTER_RIGHT_WORK = 1, /* call the methods of a job whose token it has */
    MUSTER_RIGHT_LIST = 2, /* list all jobs; read the metrics */
    MUSTER_RIGHT_SEE = 4,  /* see any job, without its token */
    MUSTER_RIGHT_RULE = 8, /* change and end any job, without its token */
};

struct muster_rpc_request {
    enum muster_rpc_method method;
    const char *token;   /* of the Authorization header; NULL: none */
    const char *address; /* of a stranger, for limits; NULL: the sender is none */
    unsigned rights;     /* of enum muster_right; that the method needs them was checked before */
    const char *body;    /* JSON; not terminated */
    size_t size_bytes;
    uint32_t timeout_ms; /* the client waits no longer than this; UINT32_MAX: no limit */
    uint64_t cursor;     /* of a stream: `next` of the response before; 0: there was none */
    bool forwarded;      /* by another server */
};

struct muster_rpc_response {
    enum muster_rpc_code code;
    char *body; /* owned JSON; NULL: memory is out */
    size_t size_bytes;
    struct muster_shared_text *rest; /* held: the end of the JSON; NULL: body has all of it */
    char *owner; /* owned: the URL of the server that has the job; NULL: this one, or unknown */
    /* Of a stream: the call is to be made again, with this as its cursor, once the response is
     * sent; a body without text is then no message. 0: the stream ends. */
    uint64_t next;
};

/* What a route works on. A route returns true once response is set, and false if it holds the
 * request. */
struct muster_rpc_call {
    struct muster_service *service;
    const struct muster_rpc_request *request;
    const json_t *json;               /* the request's body */
    struct muster_held_request *held; /* where the request is held */
    struct muster_rpc_response response;
    bool needs_no_token; /* the sender may do this to any job */
    uint64_t claim;      /* of the job (jobs.h) that the response is about */
    uint64_t written;    /* the response may be sent once what has this ticket is synced */
};

void muster_rpc_response_finish(struct muster_rpc_response *response);

/* Takes the object; NULL becomes the error response "no memory". */
struct muster_rpc_response muster_rpc_response_json(json_t *json);
struct muster_rpc_response muster_rpc_response_error(enum muster_rpc_code code, const char *format,
                                                     ...) MUSTER_PRINTF(2, 3);
/* The error of status, with the text of muster_last_error(). */
struct muster_rpc_response muster_rpc_response_status(muster_status status);

/* True if status is not MUSTER_OK; the response is then its error. */
bool muster_rpc_call_failed(struct muster_rpc_call *call, muster_status status);

#endif
