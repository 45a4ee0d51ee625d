/* The server and one of its requests, shared by the files of this folder. */
#ifndef MUSTER_RENDEZVOUS_HTTP_HTTP_PARTS_H
#define MUSTER_RENDEZVOUS_HTTP_HTTP_PARTS_H

#include "rendezvous/coding/proto.h"
#include "rendezvous/horovod/horovod.h"
#include "rendezvous/http/access.h"
#include "rendezvous/http/connections.h"
#include "rendezvous/http/forward.h"
#include "rendezvous/http/http.h"
#include "rendezvous/http/queues.h"
#include "rendezvous/http/rates.h"
#include "rendezvous/routes/rpc.h"
#include "rendezvous/routes/status_paths.h"
#include "worker/base/thread.h"

#include <microhttpd.h>

struct muster_http {
    struct muster_service *service;
    struct muster_horovod *horovod; /* NULL: none */
    struct muster_access *access;   /* NULL: none */
    struct muster_https *https;     /* NULL: plain HTTP */
    struct muster_connections *connections;
    struct muster_queues *queues;
    struct muster_forwards *forwards; /* NULL: none */
    struct MHD_Daemon *daemon;
    uint32_t transfer_timeout_ms;
    pthread_mutex_t rates_mutex; /* a leaf */
    struct muster_rates rates;   /* under it */
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
    bool at_once; /* the rest of the request is not read, and the connection is closed */
};

/* How the messages of a request and of its responses are written. */
struct muster_http_coding {
    const struct muster_proto_method *proto; /* NULL: no method of the contract */
    bool binary;                             /* binary proto; else JSON */
    bool streams;                            /* in envelopes */
    bool packed;                             /* the request is, by gzip */
    bool may_pack;                           /* the client reads gzip */
};

struct muster_http_request {
    struct muster_held_request held; /* first */
    struct muster_queued queued;
    struct muster_queued encoding; /* once there is a response that is not sent as it is */
    struct muster_http *http;
    struct MHD_Connection *connection;
    struct muster_connection *socket;
    enum muster_rpc_method method;
    struct muster_http_coding coding;
    bool is_get;
    bool trusted;                             /* it has a token of the server */
    bool was_forwarded;                       /* by another server */
    bool is_page;                             /* its path is no method's: page */
    unsigned rights;                          /* of enum muster_right */
    const char *token;                        /* of a job; borrowed from the head; NULL: none */
    const char *authorization, *server_token; /* headers, borrowed from the head, or NULL */
    int64_t patience_ns; /* the client waits until then; MUSTER_NEVER: no limit */
    uint64_t cursor;     /* of a stream: where the next call goes on */
    enum muster_status_path page;
    char *horovod_path; /* owned; NULL: it is a request of the Connect protocol */
    enum muster_horovod_method horovod_method;
    struct muster_http_refusal refusal; /* sent when the body has been read */
    uint32_t retry_after_s;             /* of the refusal; 0: it says nothing of that */
    int64_t deadline_ns;                /* of the body */
    char *body;                         /* owned */
    size_t size_bytes, capacity;
    pthread_mutex_t mutex; /* all that follows */
    enum muster_http_stage stage;
    bool queued_or_run;                  /* a thread of the queues has it, or will */
    bool suspended;                      /* its connection is */
    bool watched;                        /* its connection is, for its end */
    bool being_encoded;                  /* the response is in a queue to be encoded */
    bool response_packed;                /* the response is, by gzip */
    size_t sent_bytes;                   /* of a stream's response: what libmicrohttpd has */
    struct muster_rpc_response response; /* body owned */
};

/* Refuses a head that does not say clearly where the request ends and for which host it is. */
struct muster_http_refusal muster_http_check_framing(struct MHD_Connection *connection,
                                                     const char *version);

/* http_coding.c: sets request->coding from the head; */
struct muster_http_refusal muster_http_check_post_coding(struct MHD_Connection *connection,
                                                         struct muster_http_request *request);
struct muster_http_refusal muster_http_check_get_coding(struct MHD_Connection *connection,
                                                        struct muster_http_request *request);
/* the request's body becomes JSON (a refusal's text is borrowed until the thread's next error); */
struct muster_http_refusal muster_http_decode(struct muster_http_request *request);
/* whether the response is not sent as the JSON that it is; it becomes what is sent; an error
 * becomes the end of a stream. */
bool muster_http_needs_encoding(const struct muster_http_request *request);
void muster_http_encode(struct muster_http_request *request);
void muster_http_encode_end(struct muster_rpc_response *response);
const char *muster_http_content_type(const struct muster_http_request *request, unsigned http);

/* http_responses.c. Takes what the response owns. closes: the connection cannot be used again. */
enum MHD_Result muster_http_send_response(const struct muster_http_request *request, unsigned http,
                                          struct muster_rpc_response rpc, bool closes);
enum MHD_Result muster_http_send_refusal(const struct muster_http_request *request);

/* http_stream.c: sends the responses of a stream, and calls the method again after each. */
enum MHD_Result muster_http_send_stream(struct muster_http_request *request);

/* http_closed.c, a muster_connection_closed_function: the queue of the job does what follows. */
void muster_http_connection_closed(void *user, const struct muster_held_id *id);

/* Puts the request into the queue of its job, which calls the method. */
void muster_http_enqueue(struct muster_http_request *request);

/* http_rates.c: refuses a request of a stranger who asks too often; and notes how it was answered.
 */
struct muster_http_refusal muster_http_check_rate(struct muster_http_request *request,
                                                  const char *url);
void muster_http_note_answer(const struct muster_http_request *request, enum muster_rpc_code code);

/* Checks the head of a request, and sets its method. */
struct muster_http_refusal muster_http_check_head(struct MHD_Connection *connection,
                                                  const char *url, const char *http_method,
                                                  struct muster_http_request *request);

/* Whether it is a GET of a path that answers with text: sets request->page. */
bool muster_http_check_page(const char *url, const char *http_method,
                            struct muster_http_request *request);
enum MHD_Result muster_http_send_page(struct muster_http_request *request);

/* The Content-Length; 0: none. */
uint64_t muster_http_body_length(struct MHD_Connection *connection);
/* Of a body that is too long. */
struct muster_http_refusal muster_http_refuse_body(void);
/* Of a body beside too many others that are not answered yet. */
struct muster_http_refusal muster_http_refuse_crowd(void);
/* Of a body that a GET has. */
struct muster_http_refusal muster_http_refuse_get_body(void);

/* Adds a piece to the body. The body of a refused request is read and dropped up to a limit,
 * because a client reads the response only after it has sent its body. False: the connection is to
 * be closed. */
bool muster_http_append_body(struct muster_http_request *request, const char *data,
                             size_t size_bytes);
void muster_http_drop_body(struct muster_http_request *request);

/* Sets request->body, which is NULL, from the query of a GET. */
struct muster_http_refusal muster_http_read_query(struct MHD_Connection *connection,
                                                  struct muster_http_request *request);

/* http_horovod.c: the same as check_head for a request of Horovod's workers; and its call, which
 * returns as muster_horovod_handle(). */
struct muster_http_refusal muster_http_check_horovod(struct MHD_Connection *connection,
                                                     const char *url, const char *http_method,
                                                     struct muster_http_request *request);
bool muster_http_call_horovod(struct muster_http_request *request,
                              struct muster_rpc_response *ret_response);

/* The token of "Authorization: Bearer TOKEN", borrowed; NULL: there is none. */
const char *muster_http_token(struct MHD_Connection *connection);

/* Finds the tokens in the head: sets the rights of the sender, and the token of a job. */
void muster_http_find_tokens(struct MHD_Connection *connection, const char *url,
                             struct muster_http_request *request);
/* Refuses a request that its sender has no right to. The other checks of the head are done. */
struct muster_http_refusal muster_http_check_rights(struct MHD_Connection *connection,
                                                    const struct muster_http_request *request);
/* When the time of Connect-Timeout-Ms is over; MUSTER_NEVER: there is none. */
int64_t muster_http_patience_ns(struct MHD_Connection *connection);

#endif
