/* What Watch and WatchStream share. */
#ifndef MUSTER_RENDEZVOUS_ROUTES_WATCHING_H
#define MUSTER_RENDEZVOUS_ROUTES_WATCHING_H

#include "rendezvous/service/transactions.h"

/* routes_members.c. True if the member is gone, if there is something that it does not know, or if
 * expired: then the response may say that nothing has changed. */
bool muster_watch_respond(struct muster_transaction *transaction,
                          const struct muster_held_request *held, bool expired,
                          struct muster_rpc_response *ret_response);
/* routes_members.c. A member has at most one held request: the newer one replaces the older. */
void muster_watch_cancel_older(struct muster_transaction *transaction, const char *member);

/* routes_jobs.c. The whole job as GetJob shows it; NULL: memory is out. */
json_t *muster_watch_describe(const struct muster_job *job);

#endif
