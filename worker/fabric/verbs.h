/*
 * Inside the RDMA transport. verbs.c has the slots, verbs_connect.c opens links, verbs_path.c has
 * the record of a connection, verbs_events.c takes what the device reports, verbs_move.c moves
 * messages. README.md ("RDMA") has the whole.
 *
 * A link is a reliable-connected queue pair, and a TCP connection over which its ends have told
 * each other what a queue pair needs to know. While the link lives the TCP connection carries
 * nothing but a byte at the end: its own end is the peer's death, which a queue pair that is idle
 * never notices.
 *
 * Frames go from slot to slot of registered memory. The sender has as many credits as the receiver
 * has slots for it; they come back with what goes the other way.
 *
 * Threads: the fabric's lock, but for the completions that the leader has taken ahead (taken).
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_H
#define MUSTER_WORKER_FABRIC_VERBS_H

#include "worker/fabric/ends.h"
#include "worker/fabric/half_open.h"
#include "worker/fabric/match.h"
#include "worker/fabric/verbs_device.h"
#include "worker/fabric/verbs_off.h"

enum {
    VERBS_PAYLOAD_MAX = 32 * 1024, /* of a frame: several fit, so that both ends work at once */
    VERBS_SLOT_BYTES = 33 * 1024,  /* header and payload; whole cache lines */
    VERBS_SEND_SLOTS = 12,
    VERBS_CREDIT_SENDS = 3,     /* without payload, to return credits; need none themselves */
    VERBS_RECEIVE_SLOTS = 16,   /* for all of these, and the proof */
    VERBS_CREDITS_HELD = 6,     /* more are returned at once */
    VERBS_COMPLETIONS_MAX = 32, /* of one link */
    VERBS_TAKEN_MAX = 32,       /* completions taken in one go */
    VERBS_INLINE_BYTES = 256,   /* copied when posted: frames of up to 160 bytes of payload */
    VERBS_DIAL_MS = 3000,
    VERBS_GREETING_SIZE = 64,
    VERBS_ANSWER_SIZE = MUSTER_ANSWER_SIZE + VERBS_GREETING_SIZE,
    VERBS_HELLO_SIZE = MUSTER_HELLO_SIZE + VERBS_GREETING_SIZE,
};
_Static_assert(VERBS_SLOT_BYTES >= MUSTER_FRAME_SIZE + VERBS_PAYLOAD_MAX, "a frame fits");
_Static_assert(VERBS_RECEIVE_SLOTS > VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS, "no send finds none");
_Static_assert(VERBS_COMPLETIONS_MAX >=
                   VERBS_RECEIVE_SLOTS + VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS + 1,
               "the queue has room for all");

/* What the ends of a queue pair tell each other. */
struct verbs_greeting {
    uint32_t number; /* of the queue pair */
    uint32_t packet; /* the first that it sends */
    uint32_t mtu;    /* enum ibv_mtu */
    uint32_t lid;    /* InfiniBand */
    struct muster_verbs_gid gid;
};
void muster_verbs_greeting_encode(const struct verbs_greeting *greeting,
                                  unsigned char ret_bytes[VERBS_GREETING_SIZE]);
/* MUSTER_INVALID: not one. */
MUSTER_CHECKED muster_status muster_verbs_greeting_decode(
    const unsigned char bytes[VERBS_GREETING_SIZE], struct verbs_greeting *ret_greeting);

/* One connection and its queue pair. */
struct verbs_path {
    struct muster_half half; /* first: the path is found by it */
    struct verbs *verbs;
    struct verbs_link *link; /* NULL until it is known */
    unsigned char bytes[VERBS_HELLO_SIZE];
    uint32_t have;
    bool dialler;
    bool leaving; /* the peer has said that its end of the connection is not a death */
    struct verbs_greeting theirs;

    struct ibv_qp *pair;   /* or NULL */
    uint32_t packet;       /* the first that it sends */
    uint64_t number;       /* of this path in this fabric; in the completions */
    unsigned char *memory; /* send slots, then receive slots */
    struct ibv_mr *registered;
    uint32_t free_slots;   /* bits: send slots */
    uint32_t credits;      /* receive slots of the peer's that are free for frames */
    uint32_t owed;         /* of ours, that the peer does not know of yet */
    uint32_t sends;        /* of all kinds, posted and not complete */
    uint32_t credit_sends; /* of these, those without payload */
    struct {
        uint32_t slot, size;
    } arrived[VERBS_RECEIVE_SLOTS]; /* frames that have come, in order */
    uint32_t arrived_first, arrived_count;
    bool proven;                      /* the peer's proof has come */
    char failure[MUSTER_REASON_SIZE]; /* "": none */
    UT_hash_handle hh;                /* verbs->by_number */
};

/* What link->end points to. */
struct verbs_link {
    struct muster_dialler dialler; /* first: the end is found by it */
    struct muster_match match;
    struct muster_link *link;
    struct verbs *verbs;
    struct verbs_path *path;         /* OPEN, or the call that is under way; or NULL */
    struct muster_outgoing next_out; /* found no slot yet */
    bool has_next;
    bool parting;
    struct muster_arrival arrival;
};

struct verbs {
    struct muster_halves halves; /* first */
    struct muster_verbs_device device;
    struct muster_socket_address own;
    struct muster_watch *completions, *events;
    struct verbs_path *by_number;
    uint64_t last_number;
    unsigned char *piece;
    uint32_t links; /* with a queue pair */
    /* The leader's, also without the lock. */
    struct ibv_wc taken[VERBS_TAKEN_MAX];
    int taken_count;
};

/* verbs_connect.c */
extern const struct muster_half_ops muster_verbs_half_ops;
MUSTER_CHECKED muster_status muster_verbs_listen(struct verbs *verbs,
                                                 const struct muster_fabric_options *options);
uint32_t muster_verbs_addresses(const void *transport, uint32_t most,
                                char (*ret_addresses)[MUSTER_ADDRESS_SIZE]);
void muster_verbs_dial(struct verbs_link *link);
/* The proof has come, or could not: called with what the device has reported. False if the path is
 * closed now. */
bool muster_verbs_prove(struct verbs_path *path);

/* verbs_path.c */
/* Takes the descriptor, also on failure: NULL then. */
struct verbs_path *muster_verbs_path_create(struct verbs *verbs, int fd, enum muster_phase phase,
                                            uint32_t events);
void muster_verbs_path_close(struct verbs_path *path);
/* Whether the memory of one link can be registered, if nothing else is. */
MUSTER_CHECKED muster_status muster_verbs_try_memory(const struct muster_verbs_device *device);
/* The queue pair, with all receives posted. */
MUSTER_CHECKED muster_status muster_verbs_pair_create(struct verbs_path *path);
/* The peer's is as in path->theirs: both may send and receive from now on. MUSTER_INVALID: they do
 * not fit, and the text says why. */
MUSTER_CHECKED muster_status muster_verbs_pair_connect(struct verbs_path *path);
void muster_verbs_greeting_of(const struct verbs_path *path, struct verbs_greeting *ret_greeting);
unsigned char *muster_verbs_send_slot(const struct verbs_path *path, uint32_t slot);
unsigned char *muster_verbs_receive_slot(const struct verbs_path *path, uint32_t slot);
void muster_verbs_post_receive(struct verbs_path *path, uint32_t slot);

/* verbs_events.c */
MUSTER_CHECKED muster_status muster_verbs_events_start(struct verbs *verbs);
void muster_verbs_events_stop(struct verbs *verbs);
/* Leader only, without the lock: true if a completion is there. */
bool muster_verbs_look(struct verbs *verbs);
/* Hands completions to their paths, and marks their links. */
void muster_verbs_take(struct verbs *verbs);
/* The next one wakes the leader. */
void muster_verbs_arm(struct verbs *verbs);

/* verbs_move.c */
/* Sends what there is credit for; then credits that the peer may need. */
void muster_verbs_flush(struct verbs_link *link);
/* Sends a packet of a full MTU: both ways work, and for large packets. */
void muster_verbs_send_proof(struct verbs_path *path);
/* Takes what has come; false if the link is over, or was closed meanwhile. */
bool muster_verbs_receive(struct verbs_link *end);
/* The TCP connection is at its end: takes what the device has still got, then the link is over. */
void muster_verbs_ended(struct verbs_link *end, const char *what);

/* Of wr_id. */
enum verbs_work { VERBS_WORK_RECEIVE = 1, VERBS_WORK_FRAME = 2, VERBS_WORK_EMPTY = 3 };
static inline uint64_t muster_verbs_work(const struct verbs_path *path, enum verbs_work work,
                                         uint32_t slot)
{
    return path->number << 16 | (uint64_t)work << 8 | slot;
}

/* Of the immediate data: credits, and whether this is the proof. */
enum { VERBS_CREDIT_MASK = 0xff, VERBS_PROOF = 0x100 };

#endif
