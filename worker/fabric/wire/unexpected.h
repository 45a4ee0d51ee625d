/*
 * What a peer has said about messages that nobody here has posted yet: whole small messages, offers
 * and grants. Bounded by the eager window and by EARLY_MAX; the peer that exceeds them is broken.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_UNEXPECTED_H
#define MUSTER_WORKER_FABRIC_WIRE_UNEXPECTED_H

#include "worker/fabric/transfers.h"
#include "worker/fabric/wire/frame.h"

/* Offers and grants of all that can be posted on a link, and what was withdrawn since. */
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

/* Room for the frame and its payload; NULL when memory is out. free() it. */
struct muster_unexpected *muster_unexpected_create(const struct muster_frame *frame);

/* False if the table is full. */
bool muster_unexpected_insert(struct muster_unexpected_table *table,
                              struct muster_unexpected *unexpected);
/* True if the whole message is there. */
bool muster_unexpected_holds(const struct muster_unexpected_table *table,
                             const struct muster_message_key *key);
/* Takes out the one with this key; grant: a grant, else an eager message or an offer. */
struct muster_unexpected *muster_unexpected_take(struct muster_unexpected_table *table,
                                                 const struct muster_message_key *key, bool grant);

/* Frees those of one operation (or, with NULL, of generations before this one); returns the eager
 * bytes that are to be credited. */
uint64_t muster_unexpected_drop(struct muster_unexpected_table *table,
                                const struct muster_operation_id *operation, uint64_t generation);

/* What an eager frame counts in the window; 0 for other kinds. */
uint64_t muster_unexpected_charge(const struct muster_frame *frame);

#endif
