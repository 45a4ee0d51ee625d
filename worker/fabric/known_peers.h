/*
 * Inside the fabric: which members of a generation are known, and which links they have.
 *
 *   a member is                          its link
 *   added (known)                        by rank, with addresses: this member may dial
 *   heard of: it has dialled, or has     by rank, without addresses
 *     said its rank over a kept link
 *   of the last generation, and not      kept while it is open, without a rank: when the peer says
 *     heard of in this one               its rank or is added, it gets it; when the peer leaves or
 *                                        dies, nobody is told, and the next generation drops it
 *   not known, and named by a transfer   by rank, without a member: sought_links.h
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_KNOWN_PEERS_H
#define MUSTER_WORKER_FABRIC_KNOWN_PEERS_H

#include "worker/fabric/link.h"

/* The number of the generation, its size and this member's rank have been set; no link has a rank
 * in it yet. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_known_peers_begin(
    struct muster_fabric *fabric, const struct muster_fabric_generation *generation);

/* Before the list of links is replaced: those without a member are closed, and go. */
void muster_known_peers_drop_nameless(struct muster_fabric *fabric);

/* The link to this rank, made if nothing is known of the member. NULL: there is no such other
 * member, or no memory. */
struct muster_link *muster_fabric_link_to(struct muster_fabric *fabric, uint32_t rank);

/* A link without a rank takes the one that its peer has told, if that is of this generation.
 * MUSTER_INVALID: another member has it. */
MUSTER_CHECKED muster_status muster_link_claim_rank(struct muster_link *link);

/* The link to the member that has told this rank in a generation, with the right token; NULL: as
 * far as this member knows it is none of the present generation. */
struct muster_link *muster_known_peers_hear_of(struct muster_fabric *fabric, const char *member,
                                               uint64_t generation, uint32_t rank);

/* Closes the link's end, in any state; its sends are IDLE again. */
void muster_link_close(struct muster_link *link);

#endif
