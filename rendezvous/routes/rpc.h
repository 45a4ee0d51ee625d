/*
 * A request -> its response, or the request is held until something happens. No sockets: http.c
 * calls this, and so do the tests.
 */
#ifndef MUSTER_RENDEZVOUS_ROUTES_RPC_H
#define MUSTER_RENDEZVOUS_ROUTES_RPC_H

#include "rendezvous/service/held_requests.h"
#include "rendezvous/service/musterd_service.h"
#include "rendezvous/service/rpc_call.h"

/* True: *ret_response is the response. False: the request is held in *held, and held->respond will
 * be called, perhaps before this returns. Any thread. Blocks for the locks and the store only. */
bool muster_rpc_handle(struct muster_service *service, const struct muster_rpc_request *request,
                       struct muster_held_request *held, struct muster_rpc_response *ret_response);

/* A connection has closed; `id` is the last held request that came over it. If the request is still
 * held, it ends and its member is suspected. If not, a suspicion of the member stays, and none is
 * added. Any thread. */
void muster_rpc_disconnected(struct muster_service *service, const struct muster_held_id *id);

/* False: no method has this name. */
bool muster_rpc_find_method(const char *name, enum muster_rpc_method *ret_method);

/* Whether these rights (enum muster_right) allow the method, for a job whose token the sender has.
 */
bool muster_rpc_allows(enum muster_rpc_method method, unsigned rights);

/* True for a method that changes nothing, so that it may come as a GET. */
bool muster_rpc_is_safe(enum muster_rpc_method method);

/* True for a method whose request is dropped if its sender has closed the connection before the
 * server came to it: the sender may have changed the value otherwise since. */
bool muster_rpc_changes_values(enum muster_rpc_method method);

#endif
