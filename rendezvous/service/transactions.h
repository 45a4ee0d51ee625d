/*
 * Job transactions: the one way to a job. A transaction holds and locks the job. When it ends it
 * releases the lock; the responses to held requests that it has made ready are sent once all that
 * the job has written is synced.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_TRANSACTIONS_H
#define MUSTER_RENDEZVOUS_SERVICE_TRANSACTIONS_H

#include "rendezvous/service/jobs.h"

struct muster_transaction {
    struct muster_service *service;
    struct muster_job *job;
    struct muster_rpc_call *call; /* NULL: none */
    struct muster_ready_responses responses;
};

/* For a call. False: there is no such job, or the call's token is not the job's; call->response has
 * the error. */
bool muster_transaction_begin(struct muster_rpc_call *call, const char *name,
                              struct muster_transaction *ret_transaction);
/* Creates the job, with the call's token, if there is none. A job that has no event at the end of
 * the transaction is removed again. */
bool muster_transaction_begin_or_create(struct muster_rpc_call *call, const char *name,
                                        struct muster_transaction *ret_transaction);
/* For the server itself: needs no token. False: no such job. */
bool muster_transaction_begin_internal(struct muster_service *service, const char *name,
                                       struct muster_transaction *ret_transaction);
void muster_transaction_end(struct muster_transaction *transaction);

/* The job's part of the store was written to: responses wait until that is synced. */
void muster_transaction_wrote(struct muster_transaction *transaction);

/* Runs a transaction, without a token, in every job that is due by due_ns; MUSTER_NEVER: in every
 * job. Returns when the next of the other jobs is due. */
int64_t muster_transaction_each(struct muster_service *service, int64_t due_ns,
                                void (*run)(struct muster_transaction *transaction, void *user),
                                void *user);

/* Holds the call's request, for hold_ms or the client's timeout: false. True: the service is
 * quiesced, and call->response says so. */
bool muster_transaction_hold(struct muster_transaction *transaction, struct muster_rpc_call *call,
                             const struct muster_held_kind *kind, uint32_t hold_ms);
/* Ends a hold with this response, which it takes. */
void muster_transaction_respond(struct muster_transaction *transaction,
                                struct muster_held_request *held,
                                struct muster_rpc_response response);
/* Responds to every held request that is ready; to that of one member, if it is; to Waits only. */
void muster_transaction_respond_ready(struct muster_transaction *transaction);
void muster_transaction_respond_ready_member(struct muster_transaction *transaction,
                                             const char *member);
void muster_transaction_respond_ready_waits(struct muster_transaction *transaction);
/* Responds to viewers only. */
void muster_transaction_respond_ready_viewers(struct muster_transaction *transaction);
/* Responds to every held request whose time is over at now_ns. */
void muster_transaction_expire(struct muster_transaction *transaction, int64_t now_ns);

#endif
