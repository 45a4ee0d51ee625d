/*
 * What libmicrohttpd does not do for its connections. It does not poll a suspended connection, so
 * it does not detect that the client has closed it. And its timeout starts again with every byte,
 * so a client that sends or reads one byte now and then never exceeds it. A thread here polls
 * suspended connections, and shuts down connections whose request or response takes too long.
 *
 * Locks: its own; none is held while `closed` is called.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_CONNECTIONS_H
#define MUSTER_RENDEZVOUS_HTTP_CONNECTIONS_H

#include "rendezvous/http/admission.h"
#include "rendezvous/service/held_requests.h"

struct muster_connections;
struct muster_connection; /* one socket, from accept to close */

/* Called when a connection has closed. id: the last held request that came over it; its response
 * may have been sent already. */
typedef void (*muster_connection_closed_function)(void *user, const struct muster_held_id *id);

/* transfer_timeout_ms: for the head and the body of a request to arrive, and for its response to be
 * read. */
MUSTER_CHECKED muster_status muster_connections_create(uint32_t transfer_timeout_ms,
                                                       struct muster_admission_limits limits,
                                                       muster_connection_closed_function closed,
                                                       void *user,
                                                       struct muster_connections **ret_connections);
/* Every connection has been removed. Accepts NULL. */
void muster_connections_destroy(struct muster_connections *connections);

/* The connections that are open now, and all that there ever were. */
void muster_connections_count(struct muster_connections *connections, uint64_t *ret_open,
                              uint64_t *ret_accepted);

/* Called before a socket is accepted. False: refuse it. */
bool muster_connections_admit(struct muster_connections *connections);
/* Adds a socket that was admitted, from this address. If a limit is reached, another one is shut
 * down for it, or it itself. NULL: no memory; the socket is shut down. */
struct muster_connection *muster_connections_add(struct muster_connections *connections, int fd,
                                                 const struct sockaddr *address);
void muster_connections_remove(struct muster_connections *connections,
                               struct muster_connection *connection);

/* A request ends: the next one has the whole time again. */
void muster_connections_restart_timeout(struct muster_connections *connections,
                                        struct muster_connection *connection);

/* What admission.h says of a connection; a NULL is one that was not added. */
void muster_connections_set_busy(struct muster_connections *connections,
                                 struct muster_connection *connection, bool busy);
void muster_connections_set_trusted(struct muster_connections *connections,
                                    struct muster_connection *connection, bool trusted);
bool muster_connections_take_body(struct muster_connections *connections,
                                  struct muster_connection *connection, size_t size_bytes);
void muster_connections_give_body(struct muster_connections *connections,
                                  struct muster_connection *connection, size_t size_bytes);
/* Borrowed as long as the connection is there. */
const char *muster_connection_address(const struct muster_connection *connection);
/* The `user` of muster_connections_create(); NULL for NULL. */
void *muster_connection_user(const struct muster_connection *connection);
/* Whether its other end has closed it, whatever is left to be read. */
bool muster_connection_is_closed(const struct muster_connection *connection);

/* The connection is suspended for this held request: it has no timeout, and its end is reported. */
void muster_connections_watch(struct muster_connections *connections,
                              struct muster_connection *connection,
                              const struct muster_held_id *id);
/* The connection is about to be resumed: its end is not reported, and its time starts again. */
void muster_connections_unwatch(struct muster_connections *connections,
                                struct muster_connection *connection);

/* Admits no more sockets. */
void muster_connections_refuse(struct muster_connections *connections);
/* After refuse: shuts all connections down and waits until they are removed, at most wait_ms. */
void muster_connections_close(struct muster_connections *connections, uint32_t wait_ms);

#endif
