/*
 * Who has to go, so that all who stay reach each other: one-way and two-way partitions.
 *
 * A pair is a member whose new dials of another one had no answer for a stated time. Pairs that
 * nobody tried count as reaching each other. Pairs of members are pairs of their hosts: a network
 * card, a cable, a switch fails for all members of a host. The lightest set of hosts goes such that
 * no pair is left. A host weighs as much as it has members that answer the service; then as it has
 * members; and of equal ones the host with the newest state stays. So a host that is down or cut
 * off from the service, too, goes first.
 */
#ifndef MUSTER_ELASTIC_VERDICTS_REACH_H
#define MUSTER_ELASTIC_VERDICTS_REACH_H

#include <stdbool.h>
#include <stdint.h>

enum { MUSTER_REACH_PAIRS_MAX = 128 };

struct muster_reach_member {
    uint32_t host; /* its number */
    bool answers;  /* it gave the service a sign of life after it was asked */
    bool newest;   /* it has the newest state, and is the one that would send it */
};

struct muster_reach_pair {
    uint32_t from, to; /* members; from has dialled to */
};

/* members: [count]; pairs: at most MUSTER_REACH_PAIRS_MAX, of members of different hosts. ret_out:
 * [count], who goes. */
void muster_reach_decide(const struct muster_reach_member *members, uint32_t count,
                         const struct muster_reach_pair *pairs, uint32_t pair_count, bool *ret_out);

#endif
