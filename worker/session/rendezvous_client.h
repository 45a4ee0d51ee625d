/*
 * The rendezvous client: one method call at a time over one kept connection.
 *
 * Transport errors and `unavailable` are tried again with full jitter until the deadline; other
 * errors of the server come back with the status that its code stands for. Proxies of the
 * environment are not used: calls are held for seconds and are the member's lease, so they go
 * straight to the service.
 *
 * Threads: one call at a time per client; a session therefore has one for its callers and one for
 * its session thread. Only muster_client_interrupt() may be called from another thread.
 *
 * May use: elastic/messages, base. May not know: sessions, fabrics.
 */
#ifndef MUSTER_WORKER_SESSION_RENDEZVOUS_CLIENT_H
#define MUSTER_WORKER_SESSION_RENDEZVOUS_CLIENT_H

#include "elastic/messages/messages.h"

struct muster_client;

/* Checks "http://HOST:PORT" (or https). MUSTER_INVALID says what is wrong with it. */
MUSTER_CHECKED muster_status muster_client_check_url(const char *url);

/* Does not connect yet. token may be NULL. MUSTER_INVALID: the URL or the token; MUSTER_FATAL. */
MUSTER_CHECKED muster_status muster_client_create(const char *url, const char *token,
                                                  struct muster_client **ret_client);
void muster_client_destroy(struct muster_client *client);

/* How long a call may take. */
struct muster_retry_policy {
    uint32_t attempt_ms; /* one attempt, connecting included; above what the server holds it */
    int64_t deadline_ns; /* no attempt is begun, and none goes on, after it */
    uint32_t attempts;   /* at most so many; 0: as many as the deadline allows */
};

/* Calls the method. Takes the request, which may be NULL (the encoder ran out of memory). On
 * success *ret_answer is the answer object, the caller's. Blocks. ret_code (may be NULL) is always
 * set: MUSTER_RPC_OK, the server's code, or MUSTER_RPC_UNAVAILABLE when there is no server.
 * Texts begin with "rendezvous URL: ". MUSTER_RETRY: no server, or it is overloaded;
 * MUSTER_ENDED with MUSTER_RPC_CANCELED: interrupted; otherwise muster_rpc_code_status(). */
MUSTER_CHECKED muster_status muster_client_call(struct muster_client *client,
                                                enum muster_rpc_method method, json_t *request,
                                                const struct muster_retry_policy *retry_policy,
                                                json_t **ret_answer,
                                                enum muster_rpc_code *ret_code);

/* Ends the present call and all future ones. Any thread. */
void muster_client_interrupt(struct muster_client *client);

/* The numeric address of this machine from which the service is reached, so that peers that reach
 * the service reach it too. ret_address has size bytes. MUSTER_RETRY: the service's name cannot be
 * resolved or nothing routes there. */
MUSTER_CHECKED muster_status muster_client_local_address(const struct muster_client *client,
                                                         char *ret_address, size_t size);

#endif
