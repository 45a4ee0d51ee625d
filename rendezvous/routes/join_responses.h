/* The two responses to a Join: what its member waits for, and the generation that has formed. */
#ifndef MUSTER_RENDEZVOUS_ROUTES_JOIN_RESPONSES_H
#define MUSTER_RENDEZVOUS_ROUTES_JOIN_RESPONSES_H

#include "rendezvous/service/transactions.h"

struct muster_rpc_response muster_join_responses_waiting(const struct muster_job *job);

/* For the member of this rank in the running generation. */
struct muster_rpc_response muster_join_responses_formed(struct muster_transaction *transaction,
                                                        uint32_t rank);

#endif
