/*
 * Link figures as they are kept with the job, and what was found out about algorithms there: a
 * value of generation 0, as JSON, one for each set of hosts that was measured.
 *
 * May use: rendezvous_client, collectives, base.
 */
#ifndef MUSTER_WORKER_FIGURES_H
#define MUSTER_WORKER_FIGURES_H

#include <jansson.h>

#include "collectives/tuning.h"
#include "worker/rendezvous_client.h"

enum { MUSTER_FIGURES_KEY_SIZE = 32 };

#define MUSTER_FIGURES_NEWEST "figures" /* the key of those that were measured last */

struct muster_figures {
    struct muster_cost_model model;
    uint32_t levels;                /* that were measured, as bits; 0: nothing was */
    uint32_t hosts;                 /* a number for the hosts and racks that were there */
    uint32_t shape;                 /* a number for how many members each of them had */
    struct muster_tuned_list tuned; /* by all members of that shape together */
};

/* The figures of an ordinary machine, of which nothing was measured. */
void muster_figures_init(struct muster_figures *ret_figures);

/* "figures.1a2b3c4d", the key for these hosts. */
void muster_figures_key(uint32_t hosts, char ret_key[MUSTER_FIGURES_KEY_SIZE]);

/* NULL: no memory. */
json_t *muster_figures_encode(const struct muster_figures *figures);

/* Text of a value that anybody may have put there. MUSTER_INVALID says what is wrong with it. */
MUSTER_CHECKED muster_status muster_figures_decode(const void *text, size_t size_bytes,
                                                   struct muster_figures *ret_figures);

/* One attempt each, which blocks for timeout_ms at most; statuses are those of
 * muster_client_call(). Where the job keeps none the figures are those of muster_figures_init(),
 * and that is MUSTER_OK; MUSTER_INVALID also: they cannot be read, or cannot be. */
MUSTER_CHECKED muster_status muster_figures_get(struct muster_client *client, const char *job,
                                                const char *key, uint32_t timeout_ms,
                                                struct muster_figures *ret_figures);
MUSTER_CHECKED muster_status muster_figures_put(struct muster_client *client, const char *job,
                                                const char *key, uint32_t timeout_ms,
                                                const struct muster_figures *figures);

/* MUSTER_INVALID: levels that do not exist, a figure that cannot be, or that no machine has: the
 * text names it. Anybody may have put them there, an older version, too. */
MUSTER_CHECKED muster_status muster_figures_check(const struct muster_figures *figures);

#endif
