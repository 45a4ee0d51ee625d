/*
 * What a session needs of the answer to Join, in one form, whether the answer has the lists of all
 * hosts and members, or the shape of a large job and this member's neighbours. Pure.
 *
 * May use: elastic/messages, communicator.h, base.
 */
#ifndef MUSTER_WORKER_SESSION_FORMED_ANSWER_H
#define MUSTER_WORKER_SESSION_FORMED_ANSWER_H

#include "elastic/messages/messages.h"
#include "worker/communicator/communicator.h"

/* Who reads the answer. */
struct muster_answer_reader {
    const char *member, *host; /* its id and the name of its host */
    uint64_t last_generation;  /* that it was in; 0: none */
};

struct muster_formed_answer {
    struct muster_topology topology;
    uint32_t *orders; /* owned [topology.ranks] the order of each member's Join, by rank */
    uint32_t peer_count;
    struct muster_peer *peers; /* owned [peer_count] of all members, by rank; or the neighbours */
    uint32_t *peer_ranks;      /* owned [peer_count]; NULL: all members, by rank */
    uint32_t stale_count;
    uint32_t *stale;                     /* owned [stale_count], ranks in increasing order */
    uint32_t hosts_digest, shape_digest; /* of the names of hosts and racks; of the members on each
                                            host */
};

/* MUSTER_FATAL: no memory, or an answer that contradicts itself, that is not this member's, or that
 * is of a generation which has ended; the text says which. The answer stays the caller's. */
MUSTER_CHECKED muster_status muster_formed_answer_read(const struct muster_join_response *response,
                                                       const struct muster_answer_reader *reader,
                                                       struct muster_formed_answer *ret_answer);
/* The digests of an answer that has lists. */
void muster_formed_answer_digest(const struct muster_join_response *response, uint32_t *ret_hosts,
                                 uint32_t *ret_shape);
void muster_formed_answer_finish(struct muster_formed_answer *answer);

/* The peer with the name of its host, which this member may know better. */
void muster_formed_answer_copy_peer(const struct muster_wire_peer *wire, const char *host,
                                    bool other_host, struct muster_peer *ret_peer);

/* A peer of a large job, of the answer to Join or to Peers. own: this member's rank, host: the name
 * of its host. MUSTER_FATAL: the rank does not exist, or its host has the name of this member's,
 * and is another one, or the other way round. */
MUSTER_CHECKED muster_status muster_formed_answer_read_peer(const struct muster_wire_peer *wire,
                                                            const struct muster_topology *topology,
                                                            uint32_t own, const char *host,
                                                            struct muster_peer *ret_peer);

#endif
