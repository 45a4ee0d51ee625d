/*
 * Inside the inproc transport: links between the fabrics of one process, for tests and benchmarks.
 * inproc.c moves messages; in inproc_hub.c fabrics find each other, and links open and close.
 *
 * A link is a pair of ends, one of each fabric. The sender's transfers are in lists that both
 * fabrics use. The receiver's leader copies, or has consumed, the data where it is in the sender's
 * memory; nothing is buffered.
 *
 * Locks, in this order: fabric, hub, pair. A leader that reads a segment holds none of them. It has
 * set `reading` in the sender's end, and the sender's withdraw or close waits until it is cleared,
 * with its own fabric's lock. Clearing takes only the pair's lock, which the waiting sender
 * releases; so two fabrics that withdraw from each other cannot deadlock. Between two segments a
 * sender withdraws at once.
 */
#ifndef MUSTER_WORKER_FABRIC_INPROC_INPROC_H
#define MUSTER_WORKER_FABRIC_INPROC_INPROC_H

#include "worker/fabric/link.h"

/* Of a peer, not handled yet; further ones are dropped. */
enum { INPROC_ABORTS_MAX = 16, INPROC_SIGNATURES_MAX = 16 };

enum muster_inproc_state {
    INPROC_ABSENT = 0, /* its fabric has not opened the link yet */
    INPROC_OPEN = 1,
    INPROC_LEFT = 2,
    INPROC_DEAD = 3,
};

struct muster_inproc_abort {
    struct muster_operation_id operation;
    char reason[MUSTER_REASON_SIZE];
};

struct muster_inproc_signature {
    struct muster_message_key key;
    struct muster_call call;
};

/* A send that the peer has refused: it is in `sent`. */
struct muster_inproc_refusal {
    struct muster_message_key key;
    char reason[MUSTER_REASON_SIZE];
    struct muster_inproc_refusal *prev, *next;
};

/* One end of a link. Guarded by the pair's lock, except `has_work` and `receiving`. */
struct muster_inproc_end {
    enum muster_inproc_state state;
    struct muster_inproc *owner;             /* OPEN: the transport to wake */
    uint64_t generation;                     /* the last one that its fabric has begun */
    uint32_t rank;                           /* of its fabric in that */
    atomic_bool has_work;                    /* for the slot progress */
    struct muster_transfer_list inbox;       /* the peer's sends, not matched yet */
    struct muster_transfer_table unexpected; /* the peer's sends whose receives are not posted */
    struct muster_transfer_list sent;        /* this end's sends that the peer has received */
    struct muster_transfer *being_read;      /* this end's send that the peer receives */
    bool reading;                            /* a segment of it, now, without locks */
    struct muster_transfer *receiving;       /* into this receive; under the fabric's lock */
    struct muster_inproc_refusal *refusals;  /* of this end's sends */
    uint32_t abort_count;
    struct muster_inproc_abort aborts[INPROC_ABORTS_MAX];
    uint32_t signature_count;
    struct muster_inproc_signature signatures[INPROC_SIGNATURES_MAX];
};

struct muster_inproc_pair {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* `reading` has been cleared */
    char names[2][MUSTER_UUID_SIZE];
    struct muster_inproc_end ends[2];
    struct muster_inproc_pair *prev, *next;
};

/* The object of one fabric. */
struct muster_inproc {
    struct muster_fabric *fabric;
    atomic_bool dialled; /* a peer has opened a link: the pairs are to be searched */
    struct muster_inproc *prev, *next;
};

/* What link->end points to. */
struct muster_inproc_side {
    struct muster_inproc_pair *pair;
    struct muster_inproc_end *mine, *theirs;
};

/* There is work for that end. The pair is locked. */
void muster_inproc_notify(struct muster_inproc_end *end);

/* inproc_hub.c: slots, link.h says what each does; and what they have in common. */
extern const struct muster_transport muster_inproc_transport;
muster_status muster_inproc_start(struct muster_fabric *fabric, const void *settings,
                                  void **ret_transport);
void muster_inproc_stop(void *transport);
void muster_inproc_open(struct muster_link *link);
void muster_inproc_close(struct muster_link *link, struct muster_transfer_list *ret_sends);
/* The fabric's generation and rank, for the peer. The pair is locked. */
void muster_inproc_tell_rank(struct muster_inproc_end *mine, const struct muster_fabric *fabric);
/* Opens this fabric's end of links that peers have opened, if they are members. */
void muster_inproc_accept_links(struct muster_inproc *self);
/* Moves the send that the peer receives to ret_sends, as soon as the peer does not read its memory.
 */
void muster_inproc_recall_locked(struct muster_inproc_side *side,
                                 struct muster_transfer_list *ret_sends);

#endif
