/*
 * Unexpected frames: those that have arrived before their transfers were posted, namely eager
 * messages, offers and grants. Bounded by the eager window and by MUSTER_UNEXPECTED_MAX; a peer
 * that exceeds the bounds loses its link.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_UNEXPECTED_H
#define MUSTER_WORKER_FABRIC_WIRE_UNEXPECTED_H

#include "worker/fabric/transfers.h"
#include "worker/fabric/wire/frame.h"

/* Twice the offers and grants of all transfers that a peer can post on a link: some may be of
 * operations that were withdrawn there. */
enum { MUSTER_UNEXPECTED_MAX = 65536 };

struct muster_unexpected {
    struct muster_frame frame;
    struct muster_unexpected *next, *prev;
    unsigned char data[]; /* EAGER: frame.length bytes */
};

struct muster_unexpected_table {
    struct muster_unexpected *buckets[MUSTER_TRANSFER_BUCKETS];
    uint32_t count;
};

/* With room for the payload; NULL if there is no memory. To be freed with free(). */
struct muster_unexpected *muster_unexpected_create(const struct muster_frame *frame);

/* False if the table is full. */
bool muster_unexpected_insert(struct muster_unexpected_table *table,
                              struct muster_unexpected *unexpected);
/* True if the whole message of this key is there. */
bool muster_unexpected_holds(const struct muster_unexpected_table *table,
                             const struct muster_message_key *key);
/* Takes out the frame with this key: a grant if `grant` is true, otherwise an eager message or an
 * offer. */
struct muster_unexpected *muster_unexpected_take(struct muster_unexpected_table *table,
                                                 const struct muster_message_key *key, bool grant);

/* Takes out the offer with this key, and nothing else. */
struct muster_unexpected *muster_unexpected_take_offer(struct muster_unexpected_table *table,
                                                       const struct muster_message_key *key);

/* Frees the frames of one operation; if `operation` is NULL, the frames of all generations before
 * this one. Returns the bytes of the eager window that are free again. */
uint64_t muster_unexpected_drop(struct muster_unexpected_table *table,
                                const struct muster_operation_id *operation, uint64_t generation);

/* The bytes of the eager window that a frame uses; 0 unless it is an eager one. */
uint64_t muster_unexpected_charge(const struct muster_frame *frame);

#endif
