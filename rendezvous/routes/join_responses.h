/* The responses to Joins. */
#ifndef MUSTER_RENDEZVOUS_ROUTES_JOIN_RESPONSES_H
#define MUSTER_RENDEZVOUS_ROUTES_JOIN_RESPONSES_H

#include "rendezvous/service/transactions.h"

#include <stdio.h>

struct muster_rpc_response muster_join_responses_waiting(struct muster_transaction *transaction,
                                                         const char *member);

/* Whom this member is to dial (service/doubts.h). Returns how many; *ret_peers is owned by the
 * caller, NULL if there are none. */
uint32_t muster_join_responses_doubted(struct muster_transaction *transaction, const char *witness,
                                       struct muster_wire_peer **ret_peers);
/* For the member of this rank in the running generation. In a job of more than neighbours_above it
 * gets its neighbours only, because it can fetch peers. */
struct muster_rpc_response muster_join_responses_formed(struct muster_transaction *transaction,
                                                        const char *member, uint32_t rank,
                                                        uint32_t neighbours_above);

/* The texts of the last generation, borrowed until the next; NULL: no memory. */
const struct muster_formed *muster_join_responses_shared(struct muster_transaction *transaction);
/* The peers of these ranks as a JSON array. False: no memory. */
bool muster_join_responses_write_peers(const struct muster_formed *formed, const uint32_t *ranks,
                                       uint32_t count, FILE *file);

#endif
