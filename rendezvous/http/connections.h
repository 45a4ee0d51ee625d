/*
 * What libmicrohttpd does not do for its connections: it does not look at one that is suspended,
 * and a client that sends or takes a byte now and then is never too slow for it. A thread of ours
 * watches suspended ones for the end of the connection, and shuts down those that take too long.
 *
 * Locks: its own, and none is held when `closed` is called.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_CONNECTIONS_H
#define MUSTER_RENDEZVOUS_HTTP_CONNECTIONS_H

#include "rendezvous/service/held_requests.h"

struct muster_connections;
struct muster_connection; /* of one socket, from accept to close */

/* The connection has closed over which this watcher's request came: it is still held, or was the
 * last one that was held over it. Of the watcher only job, serial and member are filled; there is
 * a member if it was a Join or Watch. */
typedef void (*muster_closed_function)(void *user, const struct muster_held_request *held);

/* slow_ms: for the head and the body of a request to come, and for its answer to go. */
MUSTER_CHECKED muster_status muster_connections_create(uint32_t slow_ms,
                                                       muster_closed_function closed, void *user,
                                                       struct muster_connections **ret_connections);
/* Every connection has been removed. Accepts NULL. */
void muster_connections_destroy(struct muster_connections *connections);

/* A socket is about to be accepted; false: it is to be refused. */
bool muster_connections_expect(struct muster_connections *connections);
/* One that was expected. NULL: memory is out; the socket is then not looked after. */
struct muster_connection *muster_connections_add(struct muster_connections *connections, int fd);
void muster_connections_remove(struct muster_connections *connections,
                               struct muster_connection *connection);

/* A new request may come, or an answer goes: it has slow_ms from now. */
void muster_connections_hurry(struct muster_connections *connections,
                              struct muster_connection *connection);

/* The connection is suspended: it may take as long as it takes, but its end is told. */
void muster_connections_watch(struct muster_connections *connections,
                              struct muster_connection *connection,
                              const struct muster_held_request *held);
/* About to be resumed: its end is no longer told, and it has slow_ms from now. */
void muster_connections_unwatch(struct muster_connections *connections,
                                struct muster_connection *connection);

/* From now on new ones are refused. */
void muster_connections_refuse(struct muster_connections *connections);
/* After refuse: shuts all of them down and waits until they have been removed, at most wait_ms. */
void muster_connections_close(struct muster_connections *connections, uint32_t wait_ms);

#endif
