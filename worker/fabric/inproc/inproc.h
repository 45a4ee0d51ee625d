/*
 * Inside the inproc transport. inproc.c moves messages; inproc_hub.c is where fabrics find each
 * other and links open and close.
 *
 * Locks: fabric, hub, pair. A leader that copies a segment holds none of them; it has set
 * end->touched on the sender's side, and the sender's withdraw or close waits until that is
 * cleared, with its own fabric's lock held. Clearing it needs the pair's lock only, which the
 * waiting sender gives up, so two fabrics that take back from each other cannot wait in a circle.
 * Between segments the sender may take its transfer back at once.
 */
#ifndef MUSTER_WORKER_FABRIC_INPROC_INPROC_H
#define MUSTER_WORKER_FABRIC_INPROC_INPROC_H

#include "worker/fabric/link.h"

enum { ABORTS_MAX = 16, CALLS_MAX = 16 }; /* a peer's that were not looked at; more are dropped */

enum end_state {
    END_ABSENT = 0, /* this side has not opened the link yet */
    END_PRESENT = 1,
    END_LEFT = 2,
    END_DEAD = 3,
};

struct abort_note {
    struct muster_operation_id operation;
    char reason[MUSTER_REASON_SIZE];
};

/* How the peer calls an operation that it waits in. */
struct call_note {
    struct muster_message_key key;
    struct muster_call call;
};

/* One side of a pair; guarded by the pair's lock, but for `news` and `receiving`. */
struct end {
    enum end_state state;
    struct inproc *owner;                 /* PRESENT: to be woken */
    atomic_bool news;                     /* something for this side's progress */
    struct muster_transfer_list inbox;    /* the peer's sends, not looked at */
    struct muster_transfer_table early;   /* the peer's sends whose receive is not posted */
    struct muster_transfer_list finished; /* this side's sends that the peer has received */
    struct muster_transfer *copying;      /* this side's send, in the peer's hands */
    bool touched;                         /* right now: a segment of it is being read */
    struct muster_transfer *receiving;    /* what the peer's send goes into; the fabric's lock */
    uint32_t abort_count;
    struct abort_note aborts[ABORTS_MAX];
    uint32_t call_count;
    struct call_note calls[CALLS_MAX];
};

struct pair {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* touched was cleared */
    char names[2][MUSTER_UUID_SIZE];
    struct end ends[2];
    struct pair *prev, *next;
};

/* A fabric's part in the hub. */
struct inproc {
    struct muster_fabric *fabric;
    atomic_bool called; /* somebody has opened a link to this fabric; look through the pairs */
    struct inproc *prev, *next;
};

/* What link->end points to. */
struct side {
    struct pair *pair;
    struct end *mine, *theirs;
};

/* Something is new for that side. The pair is locked. */
void muster_inproc_tell(struct end *end);

/* inproc_hub.c: slots of struct muster_transport, and what they share. */
extern const struct muster_transport muster_inproc_transport;
muster_status muster_inproc_start(struct muster_fabric *fabric, const void *settings,
                                  void **ret_transport);
void muster_inproc_stop(void *transport);
void muster_inproc_open(struct muster_link *link);
void muster_inproc_close(struct muster_link *link, struct muster_transfer_list *ret_sends);
/* Opens this side of pairs that a peer has opened, if the peer is a member. */
void muster_inproc_answer_calls(struct inproc *self);
/* Takes back what the peer is receiving, as soon as it does not read this side's memory. */
void muster_inproc_recall_locked(struct side *side, struct muster_transfer_list *ret_sends);

#endif
