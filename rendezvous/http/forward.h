/*
 * Requests for jobs that another server has: sent on to it, and its responses passed back. One
 * thread, any number of requests at a time. A request is forwarded once: the server that it reaches
 * has the job, or refuses it.
 *
 * Locks: its own, a leaf.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_FORWARD_H
#define MUSTER_RENDEZVOUS_HTTP_FORWARD_H

#include "rendezvous/calls/call_files.h"
#include "rendezvous/service/held_requests.h"

/* The header of a request that a server has forwarded. */
#define MUSTER_FORWARDED_HEADER "Muster-Forwarded"

enum {
    MUSTER_FORWARD_CONNECT_MS = 1000,
    /* A server holds a request for half a minute at most. */
    MUSTER_FORWARD_MAX_MS = 45000,
};

struct muster_forwards;

/* files: how this server shows itself to other servers with https. */
MUSTER_CHECKED muster_status muster_forwards_create(const struct muster_call_files *files,
                                                    struct muster_forwards **ret_forwards);
/* Ends all that are on their way with `unavailable`; later ones, too. */
void muster_forwards_stop(struct muster_forwards *forwards);
/* After stop. Accepts NULL. */
void muster_forwards_destroy(struct muster_forwards *forwards);

/* Borrowed for the call. */
struct muster_forward_request {
    const char *owner;                        /* the URL of the server */
    const char *authorization, *server_token; /* headers of the request, or NULL */
    enum muster_rpc_method method;
    const char *body;
    size_t size_bytes;
    uint32_t timeout_ms; /* of the client */
};

/* Sends it. held->respond is called once, perhaps before this returns; the response of another
 * server has its URL as `owner`. Sets held->id. */
void muster_forwards_add(struct muster_forwards *forwards,
                         const struct muster_forward_request *request,
                         struct muster_held_request *held);

/* Whether the id is that of a forwarded request. */
bool muster_forwards_holds(const struct muster_held_id *id);
/* The client's connection has closed: the connection to the other server is closed, too. */
void muster_forwards_disconnected(struct muster_forwards *forwards,
                                  const struct muster_held_id *id);

#endif
