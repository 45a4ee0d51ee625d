/*
 * The client of the rendezvous service: one method call at a time, over a connection that stays
 * open.
 *
 * Transport errors and `unavailable` are retried, with full jitter, until the deadline. Other
 * errors of the server are returned with the status that their code stands for. Proxies that the
 * environment names are not used: the service holds calls for seconds and they are the member's
 * lease, so they go straight to it.
 *
 * Threads: one call at a time in each client. A session therefore has one for its callers and one
 * for its lease thread. Only muster_client_interrupt() may be called from another thread.
 *
 * May use: elastic/messages, base. May not know: sessions, fabrics.
 */
#ifndef MUSTER_WORKER_SESSION_RENDEZVOUS_CLIENT_H
#define MUSTER_WORKER_SESSION_RENDEZVOUS_CLIENT_H

#include "elastic/messages/messages.h"

struct muster_client;

/* Checks a URL: "http://HOST:PORT", or https. MUSTER_INVALID says what is wrong with it. */
MUSTER_CHECKED muster_status muster_client_check_url(const char *url);

/* Does not connect yet. token may be NULL. MUSTER_INVALID: the URL or the token; MUSTER_FATAL: no
 * memory, or no libcurl handle. */
MUSTER_CHECKED muster_status muster_client_create(const char *url, const char *token,
                                                  struct muster_client **ret_client);

/* What the server asks of those who call it, and how it is recognised. Each may be NULL or "". */
struct muster_client_security {
    const char *server_token; /* one of the server's tokens */
    const char *authority;    /* PEM file: https servers have a certificate of this authority */
    const char *certificate, *key; /* PEM files: shown to https servers */
};

/* Once, before the first call. MUSTER_INVALID: the token, or a file that cannot be read, by its
 * variable. */
MUSTER_CHECKED muster_status muster_client_secure(struct muster_client *client,
                                                  const struct muster_client_security *security);

void muster_client_destroy(struct muster_client *client);

/* Called while a call is held, in its thread; it may use other clients. Returns in how many ms it
 * is to be called again at the latest. */
typedef uint32_t (*muster_client_meanwhile)(void *user);
/* Before the first call. NULL: nothing is called. */
void muster_client_set_meanwhile(struct muster_client *client, muster_client_meanwhile meanwhile,
                                 void *user);

/* How long a call may take. */
struct muster_retry_policy {
    uint32_t attempt_ms; /* for one attempt, connect included; longer than the server holds it */
    int64_t deadline_ns; /* all attempts end by then */
    uint32_t attempts;   /* the most; 0: as many as the deadline allows */
};

/* Calls the method and blocks until there is an answer or an error. Takes the request, which may be
 * NULL (its encoder had no memory). On success *ret_answer is the answer, owned by the caller.
 * ret_code (may be NULL) is always set: MUSTER_RPC_OK, the server's code, or MUSTER_RPC_UNAVAILABLE
 * when no server answers. Error texts begin with "rendezvous URL: ".
 * MUSTER_RETRY: no server, or it is overloaded. MUSTER_ENDED with MUSTER_RPC_CANCELED: interrupted.
 * Otherwise muster_rpc_code_status() of the server's code. */
MUSTER_CHECKED muster_status muster_client_call(struct muster_client *client,
                                                enum muster_rpc_method method, json_t *request,
                                                const struct muster_retry_policy *retry_policy,
                                                json_t **ret_answer,
                                                enum muster_rpc_code *ret_code);

/* Interrupts the present call and all later ones. Any thread. */
void muster_client_interrupt(struct muster_client *client);

/* The numeric address that this machine uses towards the service; peers that reach the service are
 * likely to reach it, too. ret_address has `size` bytes. MUSTER_RETRY: the service's name cannot be
 * resolved, or there is no route to it. */
MUSTER_CHECKED muster_status muster_client_local_address(const struct muster_client *client,
                                                         char *ret_address, size_t size);

#endif
