/*
 * What people and their tools read with a GET: the page, metrics, health. No sockets: http.c calls
 * this, and so do the tests. Nothing here changes anything.
 */
#ifndef MUSTER_RENDEZVOUS_ROUTES_STATUS_PATHS_H
#define MUSTER_RENDEZVOUS_ROUTES_STATUS_PATHS_H

#include "rendezvous/service/musterd_service.h"
#include "rendezvous/service/rpc_call.h"

enum muster_status_path {
    MUSTER_STATUS_PAGE, /* "/", and the two files that it loads */
    MUSTER_STATUS_SCRIPT,
    MUSTER_STATUS_STYLE,
    MUSTER_STATUS_METRICS, /* "/metrics": Prometheus' text format 0.0.4 */
    MUSTER_STATUS_HEALTHZ, /* "/healthz": the process answers */
    MUSTER_STATUS_READYZ,  /* "/readyz": and its store can be written */
    MUSTER_STATUS_PATHS,
};

/* What the server knows of its sockets, for the metrics. */
struct muster_status_sockets {
    uint64_t open, accepted, http2_only; /* http2_only: handshakes that offered nothing else */
};

struct muster_status_response {
    unsigned http; /* 200, 500 or 503 */
    const char *content_type;
    char *text; /* not to be written to */
    size_t size_bytes;
    char *owned; /* text, if it is to be freed; else NULL */
};

/* False: there is no such path. */
bool muster_status_find(const char *path, enum muster_status_path *ret_path);

/* The response to a GET of this path. Any thread; /readyz blocks for the store. */
struct muster_status_response muster_status_get(struct muster_service *service,
                                                enum muster_status_path path,
                                                const struct muster_status_sockets *sockets);

/* HTTP refused a request before a method was called. */
void muster_status_count_refusal(struct muster_service *service, enum muster_rpc_code code);

/* HTTP refused a request of a stranger for its rate. failures: of those without a good token. */
void muster_status_count_limited(struct muster_service *service, bool failures);

/* The metrics; NULL: no memory. The caller frees it. */
char *muster_metrics_format(struct muster_service *service,
                            const struct muster_status_sockets *sockets);

#endif
