/*
 * What the responses to the Joins of one generation have in common, as texts that are made once a
 * generation: each response is then the ranks of its member, written before a text that all share.
 */
#ifndef MUSTER_RENDEZVOUS_SERVICE_FORMED_H
#define MUSTER_RENDEZVOUS_SERVICE_FORMED_H

#include "elastic/messages/messages.h"
#include "rendezvous/service/shared_text.h"

struct muster_formed {
    uint64_t generation;
    uint32_t size, hosts;
    uint32_t *host_sizes; /* owned [hosts] */
    char *peers;          /* owned: the JSON of every peer, by rank, each followed by a comma */
    size_t *peer_ends;    /* owned [size]: where the text of each ends, with its comma */
    /* The rest of the object "formed", after the member's own fields, and its closing brackets: */
    struct muster_shared_text *whole; /* with hosts and peers */
    struct muster_shared_text *shape; /* with the shape of the job in their place */
};

/* What the membership does not know. */
struct muster_formed_settings {
    const char *link_token; /* borrowed for the call */
    uint32_t hold_ms;
};

/* Of the last generation of the membership. NULL: no memory. */
struct muster_formed *muster_formed_create(const struct muster_membership *membership,
                                           const struct muster_formed_settings *settings);
void muster_formed_destroy(struct muster_formed *formed);

/* The JSON of the peer of this rank, borrowed, without the comma. */
const char *muster_formed_peer(const struct muster_formed *formed, uint32_t rank,
                               size_t *ret_size_bytes);

#endif
