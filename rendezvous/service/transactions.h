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

/* The response to a request of this member goes by way of another server. If that server is lost
 * with it, the member's own kernel may tell it so only after the keepalive: it counts as held until
 * then.
 */
void muster_transaction_expect_forwarded(struct muster_transaction *transaction,
                                         const char *member);

/* Holds the call's request, for hold_ms or the client's timeout: false. True: the service is
 * quiesced, and call->response says so. */
bool muster_transaction_hold(struct muster_transaction *transaction, struct muster_rpc_call *call,
                             const struct muster_held_kind *kind, uint32_t hold_ms);
/* Ends a hold with this response, which it takes. */
void muster_transaction_respond(struct muster_transaction *transaction,
                                struct muster_held_request *held,
                                struct muster_rpc_response response);
/* For how long a Watch of this member is to be held now. Members that come together, after a change
 * that all were told, come back at different times before the kernel probes their connections for
 * the first time: else it would do so for thousands at the same moment, and networks drop such
 * bursts. */
uint32_t muster_transaction_watch_ms(const struct muster_transaction *transaction,
                                     const char *member);
/* Many members are about to come at the same time. */
void muster_transaction_expect_crowd(struct muster_transaction *transaction);

/* Responds to every held request that is ready; to that of one member, if it is; to Waits only. */
void muster_transaction_respond_ready(struct muster_transaction *transaction);
void muster_transaction_respond_ready_member(struct muster_transaction *transaction,
                                             const char *member);
void muster_transaction_respond_ready_waits(struct muster_transaction *transaction);
/* Responds to viewers only. */
void muster_transaction_respond_ready_viewers(struct muster_transaction *transaction);
/* Asks the members whether they live: ends every held Watch with what it would say when its time is
 * over. A living member is back at once; the lease of the others runs. Not more often than once in
 * a lease; asked again and again, the time between doubles, up to that of a Watch. */
void muster_transaction_ask(struct muster_transaction *transaction);
/* Responds to every held request whose time is over at now_ns. */
void muster_transaction_expire(struct muster_transaction *transaction, int64_t now_ns);

#endif
