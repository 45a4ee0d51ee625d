/*
 * Link figures stored with the job on the service: JSON values of generation 0 (they outlive
 * generations), one for each set of hosts that was measured.
 *
 * May use: communicator/figures, rendezvous_client, elastic/messages, collectives, base.
 */
#ifndef MUSTER_WORKER_SESSION_STORED_FIGURES_H
#define MUSTER_WORKER_SESSION_STORED_FIGURES_H

#include <jansson.h>

#include "worker/communicator/figures.h"
#include "worker/session/rendezvous_client.h"

enum { MUSTER_FIGURES_KEY_SIZE = 32 };

#define MUSTER_FIGURES_NEWEST "figures" /* the figures stored last, for `muster job show` */

/* "figures.1a2b3c4d", the key for hosts of this digest. */
void muster_figures_key(uint32_t hosts_digest, char ret_key[MUSTER_FIGURES_KEY_SIZE]);

/* NULL: no memory. */
json_t *muster_figures_encode(const struct muster_figures *figures);

/* Any client of the service may have stored the text. MUSTER_INVALID names what is wrong. */
MUSTER_CHECKED muster_status muster_figures_decode(const void *text, size_t size_bytes,
                                                   struct muster_figures *ret_figures);

/* One attempt each, which blocks for timeout_ms at most. Statuses are those of
 * muster_client_call(); MUSTER_INVALID also when the stored value cannot be read or has impossible
 * figures. If the job has none stored, the figures are those of muster_figures_init() and the
 * status is MUSTER_OK. */
MUSTER_CHECKED muster_status muster_figures_get(struct muster_client *client, const char *job,
                                                const char *key, uint32_t timeout_ms,
                                                struct muster_figures *ret_figures);
MUSTER_CHECKED muster_status muster_figures_put(struct muster_client *client, const char *job,
                                                const char *key, uint32_t timeout_ms,
                                                const struct muster_figures *figures);

#endif
