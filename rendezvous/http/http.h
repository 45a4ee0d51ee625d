/*
 * The Connect protocol over HTTP/1.1: from sockets to rpc.h and back; and what Horovod's workers
 * ask, to horovod.h. libmicrohttpd's threads wait
 * for no held request: its connection is suspended, and resumed by the thread that has the
 * response.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_HTTP_H
#define MUSTER_RENDEZVOUS_HTTP_HTTP_H

#include "rendezvous/service/musterd_service.h"

enum {
    MUSTER_HTTP_CONNECTIONS_MAX = 16384, /* fewer if the process may not open so many files */
    MUSTER_HTTP_POOL_BYTES = 8 * 1024, /* a connection's memory: longer headers are refused, 431 */
    /* Of a body that is refused, so much is read and dropped: the client then reads the response.
     */
    MUSTER_HTTP_DRAIN_MAX_BYTES = 4 * MUSTER_BODY_MAX_BYTES,
    MUSTER_HTTP_TRANSFER_TIMEOUT_MS =
        30000, /* for a request to arrive; for a response to be read */
    MUSTER_HTTP_THREADS = 2,
};

struct muster_horovod;

struct muster_access;
struct muster_call_files;
struct muster_https;

struct muster_http_config {
    int listen_fd;                /* taken */
    struct muster_access *access; /* borrowed until stop; NULL: everybody is let in */
    struct muster_https *https;   /* borrowed until stop; NULL: plain HTTP */
    uint32_t transfer_timeout_ms;
    uint32_t connections_max;                /* 0: as many as the process may open */
    uint32_t connections_per_address;        /* 0: admission.h has the default */
    uint32_t requests_per_address;           /* a second; 0: rates.h has the default */
    const struct muster_call_files *forward; /* NULL: jobs are on no other server */
    struct muster_horovod *horovod; /* borrowed until stop; NULL: its paths are not served */
};

struct muster_http;

MUSTER_CHECKED muster_status muster_http_start(const struct muster_http_config *config,
                                               struct muster_service *service,
                                               struct muster_http **ret_http);

/* Refuses new connections, quiesces the service so that every held request is answered, waits a
 * second for the responses to be sent, and ends. Accepts NULL. */
void muster_http_stop(struct muster_http *http);

#endif
