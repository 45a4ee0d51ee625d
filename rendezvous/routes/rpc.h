/*
 * Request -> answer, or hold it until something happens. No sockets: http.c calls this, and so do
 * the tests.
 */
#ifndef MUSTER_RENDEZVOUS_ROUTES_RPC_H
#define MUSTER_RENDEZVOUS_ROUTES_RPC_H

#include "rendezvous/service/held_requests.h"
#include "rendezvous/service/musterd_service.h"
#include "rendezvous/service/rpc_call.h"

/* True: *ret_response is the answer. False: the request is held, and watcher->answer will be
 * called, perhaps before this returns. Any thread; does not block but for the store. */
bool muster_rpc_handle(struct muster_service *service, const struct muster_rpc_request *request,
                       struct muster_held_request *held, struct muster_rpc_response *ret_response);

/* The connection has closed over which a request came that is held, or was answered a while ago.
 * It is answered, if it still is held, and its member, if it has one, is suspected; if nothing was
 * held, only a suspicion that there is already is borne out. Of the watcher only job, serial and
 * member are looked at. Any thread. */
void muster_rpc_disconnected(struct muster_service *service,
                             const struct muster_held_request *held);

/* False for a name that is no method's. */
bool muster_rpc_find_method(const char *name, enum muster_rpc_method *ret_method);

/* Changes nothing, so that it may come as a GET. */
bool muster_rpc_is_safe(enum muster_rpc_method method);

#endif
