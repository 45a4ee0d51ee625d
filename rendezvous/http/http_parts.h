/* Private to http*: one request. */
#ifndef MUSTER_RENDEZVOUS_HTTP_HTTP_PARTS_H
#define MUSTER_RENDEZVOUS_HTTP_HTTP_PARTS_H

#include "rendezvous/http/connections.h"
#include "rendezvous/http/http.h"
#include "rendezvous/routes/rpc.h"
#include "worker/base/thread.h"

#include <microhttpd.h>

struct muster_http {
    struct muster_service *service;
    struct muster_connections *connections;
    struct MHD_Daemon *daemon;
    uint32_t slow_ms;
    pthread_mutex_t mutex;
    pthread_cond_t idle;
    uint32_t request_count; /* under the lock: begun and not completed */
};

enum muster_http_stage {
    MUSTER_HTTP_RECEIVING,
    MUSTER_HTTP_CALLED,    /* the service has it; nobody has answered yet */
    MUSTER_HTTP_SUSPENDED, /* as called, and libmicrohttpd does not look at it */
    MUSTER_HTTP_ANSWERED,
};

/* What is wrong with the request's head; http 0: nothing. */
struct muster_http_refusal {
    unsigned http;
    enum muster_rpc_code code;
    const char *what;
};

struct muster_http_request {
    struct muster_held_request held; /* first */
    struct muster_http *http;
    struct MHD_Connection *connection;
    struct muster_connection *socket;
    enum muster_rpc_method method;
    bool is_get;
    struct muster_http_refusal refusal; /* said when the body has been read */
    int64_t deadline_ns;                /* for the body */
    char *body;                         /* owned */
    size_t size_bytes, capacity;
    pthread_mutex_t mutex; /* stage and answer */
    enum muster_http_stage stage;
    struct muster_rpc_response response; /* body owned */
};

struct muster_http_refusal muster_http_check_head(struct MHD_Connection *connection,
                                                  const char *url, const char *http_method,
                                                  struct muster_http_request *request);

/* What Content-Length says; 0: nothing. And what is said about too long a body. */
uint64_t muster_http_body_length(struct MHD_Connection *connection);
struct muster_http_refusal muster_http_refuse_body(void);

/* A GET's message, moved into request->body. */
struct muster_http_refusal muster_http_read_query(struct MHD_Connection *connection,
                                                  struct muster_http_request *request);

/* The token of "Authorization: Bearer TOKEN", borrowed; NULL: there is none. */
const char *muster_http_token(struct MHD_Connection *connection);
/* Of Connect-Timeout-Ms; UINT32_MAX: there is none. */
uint32_t muster_http_timeout_ms(struct MHD_Connection *connection);

#endif
