/* The methods, one function each. True: call->response is set. False: the request is held. */
#ifndef MUSTER_RENDEZVOUS_ROUTES_ROUTES_H
#define MUSTER_RENDEZVOUS_ROUTES_ROUTES_H

#include "rendezvous/service/rpc_call.h"

/* routes_members.c */
bool muster_route_join(struct muster_rpc_call *call);
bool muster_route_watch(struct muster_rpc_call *call);
bool muster_route_leave(struct muster_rpc_call *call);
bool muster_route_report(struct muster_rpc_call *call);
/* routes_streams.c */
bool muster_route_watch_stream(struct muster_rpc_call *call);
/* routes_peers.c */
bool muster_route_peers(struct muster_rpc_call *call);
/* routes_jobs.c */
bool muster_route_resize(struct muster_rpc_call *call);
bool muster_route_get_job(struct muster_rpc_call *call);
bool muster_route_list_jobs(struct muster_rpc_call *call);
bool muster_route_end_job(struct muster_rpc_call *call);
/* routes_values.c */
bool muster_route_put(struct muster_rpc_call *call);
bool muster_route_get(struct muster_rpc_call *call);
bool muster_route_wait(struct muster_rpc_call *call);
bool muster_route_add(struct muster_rpc_call *call);
bool muster_route_compare_and_swap(struct muster_rpc_call *call);
bool muster_route_delete(struct muster_rpc_call *call);
bool muster_route_count_keys(struct muster_rpc_call *call);

#endif
