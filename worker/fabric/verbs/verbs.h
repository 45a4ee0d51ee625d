/*
 * Inside the RDMA transport. verbs.c has the slots of struct muster_transport, verbs_connect.c
 * opens links, verbs_path.c has the record of a connection, verbs_events.c takes what the devices
 * report, verbs_send.c and verbs_receive.c move frames. README.md ("RDMA") has the whole.
 *
 * A link has one path or several: each is a reliable-connected queue pair, and a TCP connection
 * over which its ends have told each other what a queue pair needs to know. While the path lives
 * the TCP connection carries nothing but a byte at the end: its own end is the peer's death, which
 * a queue pair that is idle never notices.
 *
 * Frames are numbered. Small ones are copied from slot to slot of registered memory; large ones are
 * written out of the user's own memory into segments of the peer's. For both the sender has as many
 * credits as the peer has room; they come back with what goes the other way. A path that fails is
 * made good by the others: what its device has not acknowledged goes again.
 *
 * Threads: the fabric's lock, but for the completions that the leader has taken ahead (taken).
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_H

#include "worker/fabric/verbs/registrations.h"
#include "worker/fabric/verbs/verbs_device.h"
#include "worker/fabric/verbs/verbs_off.h"
#include "worker/fabric/verbs/verbs_settings.h"
#include "worker/fabric/wire/bundle.h"
#include "worker/fabric/wire/bundle_paths.h"
#include "worker/fabric/wire/common_link_operations.h"
#include "worker/fabric/wire/match.h"
#include "worker/fabric/wire/pending_connections.h"

enum {
    VERBS_HEADER_AT = 32, /* of a slot or segment; then the payload begins with a cache line */
    VERBS_PAYLOAD_AT = 128,
    VERBS_SLOT_PAYLOAD = MUSTER_EAGER_MAX,
    VERBS_SLOT_BYTES = VERBS_PAYLOAD_AT + VERBS_SLOT_PAYLOAD,
    VERBS_SEND_SLOTS = 12,
    VERBS_CREDIT_SENDS = 3,   /* without payload, to return credits; need none themselves */
    VERBS_RECEIVE_SLOTS = 16, /* for all of these, and the proof */
    VERBS_CREDITS_HELD = 6,   /* more are returned at once */
    VERBS_SEGMENT_PAYLOAD = MUSTER_PIECE_BYTES, /* of a large frame */
    VERBS_SEGMENT_BYTES = VERBS_PAYLOAD_AT + VERBS_SEGMENT_PAYLOAD,
    VERBS_SEGMENTS = 8,
    VERBS_SEGMENTS_HELD = 4,
    VERBS_COMPLETIONS_MAX = 32, /* of one path */
    VERBS_POLL_MAX = 32,        /* completions taken in one go */
    VERBS_INLINE_BYTES = 256,   /* copied when posted: frames of up to 160 bytes of payload */
    VERBS_PARTS_MAX = 3,        /* of a frame in this member's memory */
    VERBS_PATHS_MAX = MUSTER_VERBS_CONNECTIONS_MAX,
    VERBS_FIRST_NUMBER = 1 << 16, /* of a frame; 0: none */
    VERBS_DIAL_MS = 3000,
    VERBS_GREETING_SIZE = 64,
    VERBS_ANSWER_SIZE = MUSTER_ANSWER_SIZE + VERBS_GREETING_SIZE,
    VERBS_HELLO_SIZE = MUSTER_HELLO_SIZE + VERBS_GREETING_SIZE,
};
_Static_assert((int)VERBS_PATHS_MAX <= (int)MUSTER_BUNDLE_PATHS_MAX,
               "the bundle tells all paths apart");
_Static_assert(VERBS_PAYLOAD_AT == VERBS_HEADER_AT + MUSTER_FRAME_SIZE, "a frame is in one piece");
_Static_assert(VERBS_RECEIVE_SLOTS > VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS, "no send finds none");
_Static_assert(VERBS_COMPLETIONS_MAX >=
                   VERBS_RECEIVE_SLOTS + VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS + 1,
               "the queue has room for all");

/* What the ends of a queue pair tell each other. */
struct verbs_greeting {
    uint32_t number;    /* of the queue pair */
    uint32_t first_psn; /* the first that it sends */
    uint32_t mtu;       /* enum ibv_mtu */
    uint32_t lid;       /* InfiniBand */
    struct muster_verbs_gid gid;
    uint32_t segments; /* that the peer may write into; 0: its memory did not suffice */
    uint32_t key;      /* of these */
    uint64_t address;  /* of the first; the others follow */
};
void muster_verbs_greeting_encode(const struct verbs_greeting *greeting,
                                  unsigned char ret_bytes[VERBS_GREETING_SIZE]);
/* MUSTER_INVALID: not one. */
MUSTER_CHECKED muster_status muster_verbs_greeting_decode(
    const unsigned char bytes[VERBS_GREETING_SIZE], struct verbs_greeting *ret_greeting);

/* Registered memory of a path's own. */
struct verbs_memory {
    unsigned char *base; /* NULL: there is none */
    size_t size_bytes;
    struct ibv_mr *registered;
};

/* One connection and its queue pair. */
struct verbs_path {
    struct muster_pending_connection pending; /* first: the path is found by it */
    struct verbs *verbs;
    struct muster_verbs_device *device;
    struct verbs_link *link; /* NULL until it is known */
    uint32_t place;          /* in link->paths */
    unsigned char bytes[VERBS_HELLO_SIZE];
    uint32_t have;
    bool dialler;
    bool connecting;   /* the peer's greeting is here, and the queue pair not connected yet */
    bool peer_leaving; /* the peer has said that its end of the connection is not a death */
    struct verbs_greeting peer;

    struct ibv_qp *pair;                    /* or NULL */
    uint32_t first_psn;                     /* the first that it sends */
    uint64_t completion_id;                 /* of this path, unique in this fabric; part of wr_id */
    struct verbs_memory slots;              /* to send from, then to receive into */
    struct verbs_memory segments;           /* that the peer writes into; perhaps none */
    uint32_t free_slots;                    /* bits: send slots */
    uint64_t slot_frames[VERBS_SEND_SLOTS]; /* numbers of the frames in the others; 0: the proof */
    uint32_t credits;                 /* receive slots of the peer's that are free for frames */
    uint32_t credits_owed;            /* of ours, that the peer does not know of yet */
    uint32_t segment_credits;         /* segments of the peer's that are free */
    uint32_t segment_credits_owed;    /* of ours, likewise */
    uint32_t segments_free;           /* bits: of ours, but one before them is not free yet */
    uint32_t segment_oldest;          /* of ours; they are free in turn */
    uint32_t receives;                /* posted and not complete */
    uint32_t segment_out, segment_in; /* the next that is written, there and here; in turn */
    uint32_t credit_sends;            /* without payload, posted and not complete */
    bool proven;                      /* the peer's proof has come */
    bool unrecoverable;               /* it has failed, and frames may be lost with it */
    char failure[MUSTER_REASON_SIZE]; /* "": none */
    UT_hash_handle hh;                /* verbs->by_completion_id */
};

/* A frame that was sent and that the device has not acknowledged. */
struct verbs_out_frame {
    struct muster_outgoing frame; /* transfer: NULL once its bytes are not needed any more */
    struct muster_registration *held[VERBS_PARTS_MAX - 1]; /* of the user's memory */
    struct muster_verbs_device *holder;                    /* whose they are */
    uint32_t covered_bytes;                                /* by the first of them */
    int64_t posted_ns;                                     /* for the timeline */
    bool copied;                                           /* the data is in a slot, or a copy */
    unsigned char *copy; /* owned; of what a path that failed had in its slot */
};

/* A frame that has come, and is not dealt with yet. */
struct verbs_in_frame {
    const unsigned char *bytes; /* header and payload; NULL: not here */
    uint32_t size;
    uint32_t slot;           /* or segment */
    bool segment;            /* in a segment, and not in a slot */
    struct verbs_path *path; /* whose room it takes */
    unsigned char *copy;     /* owned: the path has failed since */
};

/* What link->end points to. */
struct verbs_link {
    struct muster_dialler dialler; /* first: the end is found by it */
    struct muster_match match;
    struct muster_link *link;
    struct verbs *verbs;
    struct verbs_path *paths[VERBS_PATHS_MAX]; /* OPEN, or on their way; the first opens the link */
    uint32_t path_end;                         /* from this place on there was never one */
    struct muster_bundle_calls calls;
    bool warned; /* that one cannot be had, since one was lost */
    struct muster_bundle bundle;
    struct verbs_out_frame out[MUSTER_BUNDLE_WINDOW];  /* by number */
    struct verbs_in_frame in[MUSTER_BUNDLE_AHEAD_MAX]; /* by number */
    uint64_t vacate_until; /* frames before this number leave their room at once: a path was lost */
    bool parting;
    struct muster_arrival arrival;
};

struct verbs {
    struct muster_pending_connections pending_list; /* first */
    struct muster_verbs_device devices[MUSTER_VERBS_DEVICES_MAX];
    uint32_t device_count;
    uint32_t next_device; /* whose queue is looked into next */
    struct muster_socket_address own[MUSTER_VERBS_DEVICES_MAX]; /* where each device's calls come */
    uint32_t connections; /* paths of a link that is dialled from here */
    struct muster_watch *watches[2 * MUSTER_VERBS_DEVICES_MAX];
    struct verbs_path *by_completion_id;
    struct verbs_path
        *last_completed; /* of by_completion_id: who had the last completion; or NULL */
    uint64_t last_completion_id;
    unsigned char *piece;
    /* The leader's, also without the lock. */
    struct ibv_wc completions[VERBS_POLL_MAX];
    int completion_count;
};

/* The row in the registry; defined in verbs.c, above all others. */
extern const struct muster_transport muster_verbs_transport;

/* From the lowest layer to the highest; none calls a function of a higher one. */

/* verbs_path.c: a path's record, its memory and its queue pair ----------------------------------
 */

/* Takes the descriptor, also on failure: NULL then. */
struct verbs_path *muster_verbs_path_create(struct verbs *verbs, int fd, enum muster_phase phase,
                                            uint32_t events);
void muster_verbs_path_close(struct verbs_path *path);
/* Whether the memory of one path can be registered, if nothing else is. */
MUSTER_CHECKED muster_status muster_verbs_try_memory(const struct muster_verbs_device *device);
/* The queue pair, with all receives posted. */
MUSTER_CHECKED muster_status muster_verbs_pair_create(struct verbs_path *path);
/* The peer's is as in path->theirs: both may send and receive from now on. MUSTER_INVALID: they do
 * not fit, and the text says why. Gives up the lock for a while. */
MUSTER_CHECKED muster_status muster_verbs_pair_connect(struct verbs_path *path);
/* The device no longer touches any memory for it. */
void muster_verbs_pair_destroy(struct verbs_path *path);
void muster_verbs_greeting_of(const struct verbs_path *path, struct verbs_greeting *ret_greeting);
uint32_t muster_verbs_path_mtu(const struct verbs_path *path);
/* Where its header stands. */
unsigned char *muster_verbs_send_slot(const struct verbs_path *path, uint32_t slot);
unsigned char *muster_verbs_receive_slot(const struct verbs_path *path, uint32_t slot);
unsigned char *muster_verbs_segment(const struct verbs_path *path, uint32_t segment);
void muster_verbs_post_receive(struct verbs_path *path, uint32_t slot);
void muster_verbs_note_failure(struct verbs_path *path, const char *what);
/* OPEN, and nothing is wrong with it. */
bool muster_verbs_path_is_usable(const struct verbs_path *path);

/* verbs_send.c ----------------------------------------------------------------------------------
 */

/* Sends what there is room for, first what goes again; then credits that the peer may need. */
void muster_verbs_flush(struct verbs_link *link);
/* Of that, what goes again. False: there was no room for all of it. */
bool muster_verbs_retransmit(struct verbs_link *link);
/* What the device has acknowledged. */
void muster_verbs_acknowledged(struct verbs_path *path, uint32_t slot);
/* Transfers whose bytes are all out are done. */
void muster_verbs_end_sends(struct verbs_link *link);
/* The frame's registrations are not needed any more. */
void muster_verbs_release_registrations(struct verbs_out_frame *out);
/* The path has ended: its frames go again on others. False if memory is out. */
MUSTER_CHECKED bool muster_verbs_abandon_sends(struct verbs_path *path);
/* The caller's right to these transfers' memory ends. */
void muster_verbs_end_registrations(struct verbs *verbs, const struct muster_transfer *transfer);
/* Frees what it holds; all pairs are destroyed. */
void muster_verbs_finish_sends(struct verbs_link *link);
/* Sends a packet of a full MTU: both ways work, and for large packets. */
void muster_verbs_send_proof(struct verbs_path *path);

/* verbs_receive.c -------------------------------------------------------------------------------
 */

/* A frame is there, at this place of the path's. MUSTER_INVALID: that breaks the rules. */
MUSTER_CHECKED muster_status muster_verbs_arrived(struct verbs_path *path, uint16_t lowest_bits,
                                                  const struct verbs_in_frame *in);
enum verbs_delivery {
    VERBS_DELIVERED_NOTHING = 0,
    VERBS_DELIVERED_FRAME = 1, /* and there may be more */
    VERBS_DELIVERED_LAST = 2,  /* the link is over */
};
/* Takes what has come, up to a bound. */
enum verbs_delivery muster_verbs_deliver_frames(struct verbs_link *end);
/* The path has ended: what has come over it stays, also without it. False if memory is out. */
MUSTER_CHECKED bool muster_verbs_abandon_receives(struct verbs_path *path);
/* A path was lost. What it carried goes again by the others, whose room may be taken by frames that
 * wait for just that: these are copied for a while. */
void muster_verbs_vacate(struct verbs_link *link);
void muster_verbs_finish_receives(struct verbs_link *link);

/* verbs_events.c: what the devices report -------------------------------------------------------
 */

MUSTER_CHECKED muster_status muster_verbs_events_start(struct verbs *verbs);
void muster_verbs_events_stop(struct verbs *verbs);
/* Leader only, without the lock: true if a completion is there. */
bool muster_verbs_poll(struct verbs *verbs);
/* Hands completions to their paths, and marks their links: what one queue gives at once, as in each
 * turn of the leader. False if there was nothing. */
bool muster_verbs_handle_some(struct verbs *verbs);
/* All that has come, up to a bound. */
void muster_verbs_handle_all(struct verbs *verbs);
/* The next one wakes the leader. */
void muster_verbs_arm(struct verbs *verbs);

/* verbs_failover.c: paths that fail -------------------------------------------------------------
 */

/* Paths of the link that serve. */
uint32_t muster_verbs_count_usable(const struct verbs_link *link);
/* It takes nothing more, and what it has acknowledged has been handed over: the path has failed,
 * and the peer may rely on these frames. False if the device did not end it in time. */
MUSTER_CHECKED bool muster_verbs_drain(struct verbs_path *path, const char *what);
/* Takes what has come, then loses paths that have failed; false if the link is over, or was closed
 * meanwhile. */
bool muster_verbs_receive(struct verbs_link *end);
/* The TCP connection is at its end: takes what the device has still got, then the path is over.
 * False if the link is. */
bool muster_verbs_connection_ended(struct verbs_path *path, const char *what);

/* verbs_withdraw.c ------------------------------------------------------------------------------
 */

/* Afterwards no device reads the operation's memory. Waits for what is under way, shortly: then
 * the path is given up. */
void muster_verbs_withdraw_sends(struct verbs_link *link,
                                 const struct muster_operation_id *operation);

/* verbs_listen.c: "verbs://10.0.0.1:4000" -------------------------------------------------------
 */

#define VERBS_SCHEME "verbs"
void muster_verbs_print_address(const struct muster_socket_address *address,
                                char ret_text[MUSTER_ADDRESS_SIZE]);
MUSTER_CHECKED muster_status muster_verbs_parse_address(const char *published,
                                                        struct muster_socket_address *ret_address);
MUSTER_CHECKED muster_status muster_verbs_listen(struct verbs *verbs,
                                                 const struct muster_verbs_settings *settings);
uint32_t muster_verbs_addresses(const void *transport, uint32_t most,
                                char (*ret_addresses)[MUSTER_ADDRESS_SIZE]);

/* verbs_connect.c: paths that open --------------------------------------------------------------
 */

/* Slots: transport.h says what each does. */
void muster_verbs_path_ready(struct muster_watch *watch, uint32_t events);
bool muster_verbs_answer(struct muster_pending_connection *pending, enum muster_verdict verdict);
void muster_verbs_admit(struct muster_pending_connection *pending, struct muster_link *link);
void muster_verbs_timed_out(struct muster_pending_connection *pending);
void muster_verbs_dial(struct verbs_link *link);
/* Leader only. Connects a path whose peer has told of its queue pair; opens it when the proof has
 * come: called with what the device has reported. False if the link is
 * closed now. */
bool muster_verbs_prove(struct verbs_path *path);

/* The record of a frame in the window. */
static inline struct verbs_out_frame *muster_verbs_out(struct verbs_link *link, uint64_t number)
{
    return &link->out[muster_bundle_index(number)];
}

/* Of wr_id. */
enum verbs_work { VERBS_WORK_RECEIVE = 1, VERBS_WORK_FRAME = 2, VERBS_WORK_EMPTY = 3 };
static inline uint64_t muster_verbs_work(const struct verbs_path *path, enum verbs_work work,
                                         uint32_t slot)
{
    return path->completion_id << 16 | (uint64_t)work << 8 | slot;
}

/* Of the immediate data: the frame's number, the credits that come back, and whether it is the
 * proof. */
enum {
    VERBS_NUMBER_MASK = 0xffff,
    VERBS_CREDITS_SHIFT = 16,
    VERBS_SEGMENTS_SHIFT = 21,
    VERBS_CREDITS_MASK = 0x1f, /* of either */
    VERBS_PROOF = 1 << 26
};

#endif
