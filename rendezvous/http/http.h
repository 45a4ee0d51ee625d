/*
 * The Connect protocol over HTTP/1.1: from sockets to rpc.h and back. libmicrohttpd's threads never
 * block here: a request that is held is suspended, and resumed by whoever answers it.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_HTTP_H
#define MUSTER_RENDEZVOUS_HTTP_HTTP_H

#include "rendezvous/service/musterd_service.h"

enum {
    MUSTER_HTTP_CONNECTIONS_MAX = 16384, /* fewer if the process may not open so many files */
    MUSTER_HTTP_POOL_BYTES = 8 * 1024,   /* of a connection: its headers must fit, else 431 */
    MUSTER_HTTP_DRAIN_MAX_BYTES = 4 * MUSTER_BODY_MAX_BYTES, /* read to be refused politely */
    MUSTER_HTTP_SLOW_MS = 30000, /* for a request to come, for an answer to go */
    MUSTER_HTTP_THREADS = 2,
};

struct muster_http_config {
    int listen_fd; /* taken */
    uint32_t slow_ms;
};

struct muster_http;

MUSTER_CHECKED muster_status muster_http_start(const struct muster_http_config *config,
                                               struct muster_service *service,
                                               struct muster_http **ret_http);

/* Accepts no more, quiesces the service so that everything held is answered, gives the answers a
 * moment to go, and ends. Accepts NULL. */
void muster_http_stop(struct muster_http *http);

#endif
