/* The server and one of its requests, shared by http.c and http_head.c. */
#ifndef MUSTER_RENDEZVOUS_HTTP_HTTP_PARTS_H
#define MUSTER_RENDEZVOUS_HTTP_HTTP_PARTS_H

#include "rendezvous/http/connections.h"
#include "rendezvous/http/http.h"
#include "rendezvous/http/queues.h"
#include "rendezvous/routes/rpc.h"
#include "worker/base/thread.h"

#include <microhttpd.h>

struct muster_http {
    struct muster_service *service;
    struct muster_connections *connections;
    struct muster_queues *queues;
    struct MHD_Daemon *daemon;
    uint32_t transfer_timeout_ms;
    pthread_mutex_t mutex;
    pthread_cond_t idle;
    uint32_t request_count; /* under the lock: requests that have begun and not ended */
};

enum muster_http_stage {
    MUSTER_HTTP_RECEIVING,
    MUSTER_HTTP_CALLED, /* the service has the request, and no response yet */
    MUSTER_HTTP_ANSWERED,
};

/* An error that HTTP itself gives; http 0: none. */
struct muster_http_refusal {
    unsigned http;
    enum muster_rpc_code code;
    const char *what;
};

struct muster_http_request {
    struct muster_held_request held; /* first */
    struct muster_queued queued;
    struct muster_http *http;
    struct MHD_Connection *connection;
    struct muster_connection *socket;
    enum muster_rpc_method method;
    bool is_get;
    const char *token; /* borrowed from the head; NULL: none */
    uint32_t timeout_ms;
    struct muster_http_refusal refusal; /* sent when the body has been read */
    int64_t deadline_ns;                /* of the body */
    char *body;                         /* owned */
    size_t size_bytes, capacity;
    pthread_mutex_t mutex; /* all that follows */
    enum muster_http_stage stage;
    bool queued_or_run;                  /* a thread of the queues has it, or will */
    bool suspended;                      /* its connection is */
    struct muster_rpc_response response; /* body owned */
};

/* Checks the head of a request, and sets its method. */
struct muster_http_refusal muster_http_check_head(struct MHD_Connection *connection,
                                                  const char *url, const char *http_method,
                                                  struct muster_http_request *request);

/* The Content-Length; 0: none. */
uint64_t muster_http_body_length(struct MHD_Connection *connection);
/* Of a body that is too long. */
struct muster_http_refusal muster_http_refuse_body(void);

/* Sets request->body from the query of a GET. */
struct muster_http_refusal muster_http_read_query(struct MHD_Connection *connection,
                                                  struct muster_http_request *request);

/* The token of "Authorization: Bearer TOKEN", borrowed; NULL: there is none. */
const char *muster_http_token(struct MHD_Connection *connection);
/* The value of Connect-Timeout-Ms; UINT32_MAX: there is none. */
uint32_t muster_http_timeout_ms(struct MHD_Connection *connection);

#endif
