/*
 * How often strangers may ask: token buckets for each address, and for all of them together. Pure:
 * no clock, no lock.
 *
 *   requests  each takes one from the bucket of its address and from that of all strangers
 *   failures  each that gave no token, or a wrong one, takes one from a second, smaller bucket of
 *             its address; while that is empty, requests of strangers of the address are refused
 *
 * Buckets are as full as after BURST_S seconds without a request, at most. An address without a
 * request for so long is forgotten; of more than ADDRESSES_MAX the one that asked last is, the
 * longest ago.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_RATES_H
#define MUSTER_RENDEZVOUS_HTTP_RATES_H

#include "rendezvous/http/admission.h"

enum {
    MUSTER_RATES_PER_ADDRESS = 1000, /* requests a second */
    MUSTER_RATES_BURST_S = 10,
    MUSTER_RATES_FAILURES_SHARE = 10, /* failures are a tenth of the requests */
    MUSTER_RATES_ALL_SHARE = 10,      /* all strangers together: ten times one address */
    MUSTER_RATES_ADDRESSES_MAX = 16384,
};

struct muster_rate; /* of one address; defined in rates.c */

struct muster_rates {
    uint32_t per_address; /* requests a second; 0: MUSTER_RATES_PER_ADDRESS, and no limit for this
                             machine */
    struct muster_rate *table, *oldest; /* by address; in the order of their last requests */
    uint32_t count;
    int64_t all_full_ns; /* when the bucket of all strangers is full again */
};

/* Zeroed storage is ready. */
void muster_rates_finish(struct muster_rates *rates);

/* A stranger of this address (muster_admission_name()) sends a request. True: it is let in. False:
 * *ret_wait_ms says when it may ask again. */
bool muster_rates_take(struct muster_rates *rates, const char *address, int64_t now_ns,
                       uint32_t *ret_wait_ms);
/* Its request was refused, because it had no token, or a wrong one. */
void muster_rates_fail(struct muster_rates *rates, const char *address, int64_t now_ns);
/* Whether its failures allow another request; else *ret_wait_ms. */
bool muster_rates_may_fail(struct muster_rates *rates, const char *address, int64_t now_ns,
                           uint32_t *ret_wait_ms);

#endif
