/*
 * Clients of the service, with what a session's settings say of it.
 *
 * Calls about values have connections of their own, so that one that waits, or a service that does
 * not answer, delays neither the lease nor a Join. A call takes a client, and gives it back. Some
 * are kept for the next calls. Those that wait for keys cannot take all: a call that puts a key for
 * which others wait always has its turn.
 *
 * Locks: its own, a leaf.
 */
#ifndef MUSTER_WORKER_SESSION_SESSION_CLIENTS_H
#define MUSTER_WORKER_SESSION_SESSION_CLIENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/session/options.h"
#include "worker/session/rendezvous_client.h"

enum {
    MUSTER_VALUE_CALLS_MAX = 64, /* at the same time */
    MUSTER_VALUE_WAITS_MAX = 48, /* of these, that wait for keys */
    MUSTER_VALUE_CLIENTS_KEPT = 4,
};

/* Errors: those of muster_client_create() and muster_client_secure(). */
MUSTER_CHECKED muster_status muster_session_create_client(const struct muster_settings *settings,
                                                          struct muster_client **ret_client);

/* For calls about values. */
struct muster_session_clients {
    pthread_mutex_t mutex; /* all that follows */
    pthread_cond_t given_back;
    uint32_t calls, waits; /* under way; waits are calls, too */
    struct muster_client *kept[MUSTER_VALUE_CLIENTS_KEPT];
    uint32_t kept_count;
};

void muster_session_clients_init(struct muster_session_clients *clients);
/* No call is under way. */
void muster_session_clients_finish(struct muster_session_clients *clients);

/* Waits for its turn. *ret_client: one that is kept, or NULL: the caller creates one. MUSTER_RETRY:
 * it had none before the deadline. */
MUSTER_CHECKED muster_status muster_session_clients_take(struct muster_session_clients *clients,
                                                         bool waits, int64_t deadline_ns,
                                                         struct muster_client **ret_client);
/* After each take that succeeded. client may be NULL; it is kept, or destroyed. */
void muster_session_clients_give_back(struct muster_session_clients *clients, bool waits,
                                      struct muster_client *client);

#endif
