/*
 * The servers of a rendezvous service: "http://HOST:PORT,http://HOST:PORT". A client calls one of
 * them; when that is away it calls the next one. When a server answers that another one has the
 * job, the client goes there, whether or not that is in the list.
 *
 * May use: base. May not know: requests.
 */
#ifndef MUSTER_WORKER_SESSION_SERVER_LIST_H
#define MUSTER_WORKER_SESSION_SERVER_LIST_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { MUSTER_SERVERS_MAX = 16, MUSTER_LISTED_URL_SIZE = 512 };

struct muster_server_list {
    char servers[MUSTER_SERVERS_MAX][MUSTER_LISTED_URL_SIZE]; /* without a slash at the end */
    unsigned count, at;
    char url[MUSTER_LISTED_URL_SIZE]; /* of the server that is called */
};

/* MUSTER_INVALID says what is wrong. */
MUSTER_CHECKED muster_status muster_server_list_init(struct muster_server_list *list,
                                                     const char *urls);
MUSTER_CHECKED muster_status muster_server_list_check(const char *urls);

/* The server did not answer, or cannot: the next one of the list. */
void muster_server_list_next(struct muster_server_list *list);
/* The server has answered for this one; "" or no URL: nothing changes. */
void muster_server_list_follow(struct muster_server_list *list, const char *owner);

/* As muster_client_local_address(). */
MUSTER_CHECKED muster_status muster_server_list_local_address(const struct muster_server_list *list,
                                                              char *ret_address, size_t size);

#endif
