/*
 * Link figures as they are stored with the job: a value of generation 0, as JSON, one for each set
 * of hosts that was measured.
 *
 * May use: figures, rendezvous_client, elastic/messages, collectives, base.
 */
#ifndef MUSTER_WORKER_SESSION_STORED_FIGURES_H
#define MUSTER_WORKER_SESSION_STORED_FIGURES_H

#include <jansson.h>

#include "worker/communicator/figures.h"
#include "worker/session/rendezvous_client.h"

enum { MUSTER_FIGURES_KEY_SIZE = 32 };

#define MUSTER_FIGURES_NEWEST "figures" /* the key of those that were measured last */

/* "figures.1a2b3c4d", the key for these hosts. */
void muster_figures_key(uint32_t hosts, char ret_key[MUSTER_FIGURES_KEY_SIZE]);

/* NULL: no memory. */
json_t *muster_figures_encode(const struct muster_figures *figures);

/* Text of a value that anybody may have put there. MUSTER_INVALID says what is wrong with it. */
MUSTER_CHECKED muster_status muster_figures_decode(const void *text, size_t size_bytes,
                                                   struct muster_figures *ret_figures);

/* One attempt each, which blocks for timeout_ms at most; statuses are those of
 * muster_client_call(). Where the job has none stored the figures are those of
 * muster_figures_init(), and that is MUSTER_OK; MUSTER_INVALID also: they cannot be read, or cannot
 * be. */
MUSTER_CHECKED muster_status muster_figures_get(struct muster_client *client, const char *job,
                                                const char *key, uint32_t timeout_ms,
                                                struct muster_figures *ret_figures);
MUSTER_CHECKED muster_status muster_figures_put(struct muster_client *client, const char *job,
                                                const char *key, uint32_t timeout_ms,
                                                const struct muster_figures *figures);

#endif
