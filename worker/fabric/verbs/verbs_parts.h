/*
 * Inside the RDMA transport; README.md describes it and says which file does what.
 *
 * A path is a reliable-connected queue pair, and the TCP connection over which its ends exchanged
 * the queue pair's attributes. While the path is open, the TCP connection carries nothing but one
 * byte at the end. When it ends, the peer is dead, which an idle queue pair never notices.
 *
 * Small frames are copied from a send slot to a receive slot, both registered memory of the path.
 * Large frames are written from the user's memory into segments of the peer. The sender has credits
 * for the peer's free slots and segments; they are returned with every send in the other direction.
 * wire/bundle.h numbers the frames and moves those of a lost path to the others; the device
 * acknowledges each frame by a completion.
 *
 * Threads: the fabric's lock, except for completions, which the leader polls without it.
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_PARTS_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_PARTS_H

#include "worker/fabric/verbs/registrations.h"
#include "worker/fabric/verbs/verbs_device.h"
#include "worker/fabric/verbs/verbs_settings.h"
#include "worker/fabric/verbs/verbs_unavailable.h"
#include "worker/fabric/wire/bundle.h"
#include "worker/fabric/wire/bundle_paths.h"
#include "worker/fabric/wire/common_link_operations.h"
#include "worker/fabric/wire/match.h"
#include "worker/fabric/wire/pending_connections.h"

enum {
    VERBS_HEADER_AT = 32, /* in a slot or segment: so the payload is aligned to a cache line */
    VERBS_PAYLOAD_AT = 128,
    VERBS_SLOT_PAYLOAD = MUSTER_EAGER_MAX,
    VERBS_SLOT_BYTES = VERBS_PAYLOAD_AT + VERBS_SLOT_PAYLOAD,
    VERBS_SEND_SLOTS = 12,
    VERBS_ALL_SLOTS = (1 << VERBS_SEND_SLOTS) - 1, /* bits */
    VERBS_CREDIT_SENDS = 3,   /* sends that only return credits, and need none themselves */
    VERBS_RECEIVE_SLOTS = 16, /* for all of these sends, and the proof */
    VERBS_CREDITS_HELD = 6,   /* so many owed credits are returned by a send of their own */
    VERBS_SEGMENT_PAYLOAD = MUSTER_PIECE_BYTES, /* payload of a large frame */
    VERBS_SEGMENT_BYTES = VERBS_PAYLOAD_AT + VERBS_SEGMENT_PAYLOAD,
    VERBS_SEGMENTS = 8,
    VERBS_SEGMENTS_HELD = 4,    /* likewise, of segments */
    VERBS_COMPLETIONS_MAX = 32, /* of one path */
    VERBS_POLL_MAX = 32,        /* completions by one poll */
    VERBS_INLINE_BYTES = 256,   /* copied when posted: frames with a payload of up to 160 bytes */
    VERBS_PARTS_MAX = MUSTER_VERBS_GATHERS_MAX, /* of a frame: the header, and the payload's */
    VERBS_PATHS_MAX = MUSTER_VERBS_CONNECTIONS_MAX,
    VERBS_FIRST_NUMBER = 1 << 16, /* of a frame: its lowest 16 bits are 0; 0: no frame */
    VERBS_DIAL_MS = 3000,
    VERBS_PORT_DOWN_MS = 8000, /* more than twice the time in which a device gives up */
    VERBS_GREETING_SIZE = 64,
    VERBS_ANSWER_SIZE = MUSTER_ANSWER_SIZE + VERBS_GREETING_SIZE,
    VERBS_HELLO_SIZE = MUSTER_HELLO_SIZE + VERBS_GREETING_SIZE,
};
_Static_assert((int)VERBS_PATHS_MAX <= (int)MUSTER_BUNDLE_PATHS_MAX,
               "the bundle tells all paths apart");
_Static_assert(VERBS_PAYLOAD_AT == VERBS_HEADER_AT + MUSTER_FRAME_SIZE,
               "header and payload are contiguous");
_Static_assert(VERBS_RECEIVE_SLOTS > VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS,
               "every send finds a receive");
_Static_assert(VERBS_COMPLETIONS_MAX >=
                   VERBS_RECEIVE_SLOTS + VERBS_SEND_SLOTS + VERBS_CREDIT_SENDS + 1,
               "the completion queue has room for all");

/* The attributes of a queue pair, as its ends exchange them. */
struct muster_verbs_greeting {
    uint32_t number;    /* of the queue pair */
    uint32_t first_psn; /* the packet sequence number that it starts with */
    uint32_t mtu;       /* enum ibv_mtu */
    uint32_t lid;       /* InfiniBand */
    struct muster_verbs_gid gid;
    uint32_t segments; /* that the receiver of this may write into; 0: not enough memory */
    uint32_t key;      /* of these */
    uint64_t address;  /* of the first; the others follow it */
};
void muster_verbs_greeting_encode(const struct muster_verbs_greeting *greeting,
                                  unsigned char ret_bytes[VERBS_GREETING_SIZE]);
/* MUSTER_INVALID: not a greeting. */
MUSTER_CHECKED muster_status muster_verbs_greeting_decode(
    const unsigned char bytes[VERBS_GREETING_SIZE], struct muster_verbs_greeting *ret_greeting);

/* Registered memory of a path. */
struct muster_verbs_memory {
    unsigned char *base; /* NULL: none */
    size_t size_bytes;
    struct ibv_mr *registered;
};

/* A queue pair and its TCP connection. */
struct muster_verbs_path {
    struct muster_pending_connection pending; /* first: the path is found by it */
    struct muster_verbs *verbs;
    struct muster_verbs_device *device;
    struct muster_verbs_link *end; /* NULL until the peer is known */
    uint32_t place;                /* in link->paths */
    unsigned char bytes[VERBS_HELLO_SIZE];
    uint32_t have;
    bool dialler;
    bool connecting; /* the peer's greeting has arrived, and the queue pair is not connected yet */
    bool peer_leaving; /* the peer has announced that it closes: that is no death */
    struct muster_verbs_greeting peer;

    struct ibv_qp *pair;                 /* or NULL */
    uint32_t first_psn;                  /* the first that it sends */
    uint64_t completion_id;              /* of this path, unique in this fabric; part of wr_id */
    struct muster_verbs_memory slots;    /* the send slots, then the receive slots */
    struct muster_verbs_memory segments; /* the peer writes into them; perhaps none */
    uint32_t free_slots;                 /* bits, of send slots */
    uint64_t
        slot_frames[VERBS_SEND_SLOTS]; /* the frame in each slot that is in use; 0: the proof */
    uint32_t credits;                  /* free receive slots of the peer */
    uint32_t credits_owed;             /* own free slots that the peer does not know of */
    uint32_t segment_credits;          /* free segments of the peer */
    uint32_t segment_credits_owed;     /* own free segments, likewise */
    uint32_t segments_free;            /* bits: own free segments after one that is not free */
    uint32_t segment_oldest;           /* of the own segments: credits are owed in this order */
    uint32_t receives;                 /* posted and not complete */
    uint32_t segment_out, segment_in;  /* the next segment to be written, at the peer and here */
    uint32_t credit_sends;             /* sends that only return credits, posted and not complete */
    bool proven;                       /* the peer's proof has arrived */
    bool unrecoverable;                /* it has failed, and frames may be lost */
    char failure[MUSTER_REASON_SIZE];  /* "": none */
    UT_hash_handle hh;                 /* verbs->by_completion_id */
};

/* A part of a payload that a device gathers. */
struct muster_verbs_part {
    const unsigned char
        *data; /* where it is read; small ranges: NULL, they are copied to the slot */
    uint32_t size;
    struct muster_registration *held; /* of data */
};

/* A frame in the window. */
struct muster_verbs_out_frame {
    struct muster_outgoing frame; /* transfer: NULL once complete or withdrawn */
    struct muster_verbs_part parts[VERBS_PARTS_MAX - 1]; /* of the payload, if it is not copied */
    uint32_t part_count;
    struct muster_verbs_device *holder; /* the device of the registrations */
    int64_t posted_ns;                  /* for the timeline */
    bool copied;                        /* all of the payload is in a slot, or in copy */
    unsigned char *copy;                /* owned: the content of a slot of a lost path */
};

/* A frame that has arrived and is not delivered. */
struct muster_verbs_in_frame {
    const unsigned char *bytes; /* header and payload; NULL: none */
    uint32_t size;
    uint32_t slot;                  /* index of the slot or segment */
    bool segment;                   /* in a segment, not in a slot */
    struct muster_verbs_path *path; /* to which the slot or segment belongs; NULL: in copy */
    unsigned char *copy;            /* owned: instead of the slot or segment */
};

/* What link->end points to. */
struct muster_verbs_link {
    struct muster_dialler dialler; /* first: the end is found by it */
    struct muster_match match;
    struct muster_link *link;
    struct muster_verbs *verbs;
    struct muster_verbs_path
        *paths[VERBS_PATHS_MAX]; /* by place: OPEN or pending; place 0 opens the link */
    uint32_t path_end;           /* places from this one on were never used */
    struct muster_bundle_opening opening;
    bool warned; /* logged, since the last loss, that a path cannot be opened */
    struct muster_bundle bundle;
    struct muster_verbs_out_frame out[MUSTER_BUNDLE_WINDOW];  /* by number */
    struct muster_verbs_in_frame in[MUSTER_BUNDLE_AHEAD_MAX]; /* by number */
    uint64_t vacate_until; /* frames before this number are copied on arrival: a path was lost */
    bool goodbye_queued;
    struct muster_arrival arrival;
};

struct muster_verbs {
    struct muster_pending_connections pending_list; /* first */
    struct muster_verbs_device devices[MUSTER_VERBS_DEVICES_MAX];
    uint32_t device_count;
    uint32_t next_device; /* whose completion queue is polled next */
    struct muster_socket_address own[MUSTER_VERBS_DEVICES_MAX]; /* at which each device listens */
    uint32_t connections; /* paths of each link that this member dials */
    struct muster_watch *watches[2 * MUSTER_VERBS_DEVICES_MAX];
    struct muster_verbs_path *by_completion_id;
    struct muster_verbs_path *last_completed; /* in by_completion_id; or NULL */
    uint64_t last_completion_id;
    unsigned char *piece;
    /* Used by the leader only, also without the lock. */
    struct ibv_wc completions[VERBS_POLL_MAX];
    int completion_count;
};

/* The row of the registry, in verbs.c. */
extern const struct muster_transport muster_verbs_transport;

/* Files from the lowest layer to the highest; none calls a function of a higher one. */

/* verbs_path.c: a path's record, its memory and its queue pair --------------------------------- */

/* Owns the descriptor from now on; NULL: it failed, and the descriptor is closed. */
struct muster_verbs_path *muster_verbs_path_create(struct muster_verbs *verbs, int fd,
                                                   enum muster_phase phase, uint32_t events);
void muster_verbs_path_close(struct muster_verbs_path *path);
/* Whether at least the slots of one path can be registered. */
MUSTER_CHECKED muster_status muster_verbs_try_memory(const struct muster_verbs_device *device);
/* Creates the queue pair and posts all receives. */
MUSTER_CHECKED muster_status muster_verbs_pair_create(struct muster_verbs_path *path);
/* Connects the queue pair to the one in path->peer: both may send and receive from now on.
 * MUSTER_INVALID: they do not match, the text says why. Releases the lock meanwhile. */
MUSTER_CHECKED muster_status muster_verbs_pair_connect(struct muster_verbs_path *path);
/* Afterwards the device touches none of its memory. */
void muster_verbs_pair_destroy(struct muster_verbs_path *path);
void muster_verbs_greeting_of(const struct muster_verbs_path *path,
                              struct muster_verbs_greeting *ret_greeting);
uint32_t muster_verbs_path_mtu(const struct muster_verbs_path *path);
/* The place of a frame's header. */
unsigned char *muster_verbs_send_slot(const struct muster_verbs_path *path, uint32_t slot);
unsigned char *muster_verbs_receive_slot(const struct muster_verbs_path *path, uint32_t slot);
unsigned char *muster_verbs_segment(const struct muster_verbs_path *path, uint32_t segment);
void muster_verbs_post_receive(struct muster_verbs_path *path, uint32_t slot);
void muster_verbs_note_failure(struct muster_verbs_path *path, const char *what);
/* Whether it is OPEN and has not failed. */
bool muster_verbs_path_is_usable(const struct muster_verbs_path *path);

/* verbs_send.c --------------------------------------------------------------------------------- */

/* Sends frames as long as there is room, retransmissions first; then credits, if the peer may need
 * them. */
void muster_verbs_flush(struct muster_verbs_link *end);
/* Retransmits the frames of lost paths. False: there was no room for all of them. */
bool muster_verbs_retransmit(struct muster_verbs_link *end);
/* The device has acknowledged the send from this slot. */
void muster_verbs_acknowledged(struct muster_verbs_path *path, uint32_t slot);
/* Completes the transfers of acknowledged frames. */
void muster_verbs_end_sends(struct muster_verbs_link *end);
/* Releases the frame's registrations. */
void muster_verbs_release_registrations(struct muster_verbs_out_frame *out);
/* The path has failed: its frames wait for other paths. False: out of memory. */
MUSTER_CHECKED bool muster_verbs_abandon_sends(struct muster_verbs_path *path);
/* The right to use the transfer's memory ends. */
void muster_verbs_end_registrations(struct muster_verbs *verbs,
                                    const struct muster_transfer *transfer);
/* Frees the window; all queue pairs are destroyed. */
void muster_verbs_finish_sends(struct muster_verbs_link *end);
/* Sends a packet of a full MTU, which proves that such packets reach the peer. */
void muster_verbs_send_proof(struct muster_verbs_path *path);

/* verbs_receive.c ------------------------------------------------------------------------------ */

/* A frame has arrived. MUSTER_INVALID: it violates the protocol. */
MUSTER_CHECKED muster_status muster_verbs_arrived(struct muster_verbs_path *path,
                                                  uint16_t lowest_bits,
                                                  const struct muster_verbs_in_frame *in);
enum muster_verbs_delivery {
    VERBS_DELIVERED_NOTHING = 0,
    VERBS_DELIVERED_FRAME = 1, /* there may be more */
    VERBS_DELIVERED_LAST = 2,  /* the link has ended, or was closed */
};
/* Delivers the frames that are in order, up to a bound. */
enum muster_verbs_delivery muster_verbs_deliver_frames(struct muster_verbs_link *end);
/* The path has failed: what has arrived over it is kept. False: out of memory. */
MUSTER_CHECKED bool muster_verbs_abandon_receives(struct muster_verbs_path *path);
/* A path was lost. The peer retransmits its frames on other paths, whose receive slots may all be
 * occupied by later frames, which wait for the missing ones. So frames that wait are copied out of
 * their slots, now and for the next MUSTER_BUNDLE_AHEAD_MAX numbers. */
void muster_verbs_vacate(struct muster_verbs_link *end);
void muster_verbs_finish_receives(struct muster_verbs_link *end);

/* verbs_events.c: what the devices report ------------------------------------------------------ */

MUSTER_CHECKED muster_status muster_verbs_events_start(struct muster_verbs *verbs);
void muster_verbs_events_stop(struct muster_verbs *verbs);
/* Leader only, without the lock: polls; true if there is a completion. */
bool muster_verbs_poll(struct muster_verbs *verbs);
/* Handles the completions of one poll, and marks their links. False: there were none. */
bool muster_verbs_handle_some(struct muster_verbs *verbs);
/* Handles all completions, up to a bound. */
void muster_verbs_handle_all(struct muster_verbs *verbs);
/* Fails paths that wait for an acknowledgement over a port that stays down. Returns when to be
 * called again. */
int64_t muster_verbs_check_ports(struct muster_verbs *verbs, int64_t now_ns);
/* The next completion wakes the leader. */
void muster_verbs_arm(struct muster_verbs *verbs);

/* verbs_failover.c: paths that fail ------------------------------------------------------------ */

/* Usable paths of the link. */
uint32_t muster_verbs_count_usable(const struct muster_verbs_link *end);
/* The path has failed: stops its queue pair, then receives all frames that the device has
 * acknowledged, because the peer does not retransmit them. False: the device did not end its
 * receives in time. */
MUSTER_CHECKED bool muster_verbs_drain(struct muster_verbs_path *path, const char *what);
/* Delivers what has arrived, then loses paths that have failed. False: the link has ended, or was
 * closed. */
bool muster_verbs_receive(struct muster_verbs_link *end);
/* The TCP connection has ended: delivers what the device has received, then loses the path. False:
 * the link has ended. */
bool muster_verbs_connection_ended(struct muster_verbs_path *path, const char *what);

/* verbs_withdraw.c ----------------------------------------------------------------------------- */

/* Afterwards no device reads the operation's memory. Waits for sends that are under way, for a
 * bounded time, then gives their path up. */
void muster_verbs_withdraw_sends(struct muster_verbs_link *end,
                                 const struct muster_operation_id *operation);

/* verbs_listen.c: "verbs://10.0.0.1:4000" ------------------------------------------------------ */

#define VERBS_SCHEME "verbs"
void muster_verbs_print_address(const struct muster_socket_address *address,
                                char ret_text[MUSTER_ADDRESS_SIZE]);
MUSTER_CHECKED muster_status muster_verbs_parse_address(const char *published,
                                                        struct muster_socket_address *ret_address);
MUSTER_CHECKED muster_status muster_verbs_listen(struct muster_verbs *verbs,
                                                 const struct muster_verbs_settings *settings);
uint32_t muster_verbs_addresses(const void *transport, uint32_t most,
                                char (*ret_addresses)[MUSTER_ADDRESS_SIZE]);

/* verbs_connect.c: paths that open ------------------------------------------------------------- */

/* Slots: transport.h says what each does. */
void muster_verbs_path_ready(struct muster_watch *watch, uint32_t events);
bool muster_verbs_answer(struct muster_pending_connection *pending, enum muster_verdict verdict);
void muster_verbs_admit(struct muster_pending_connection *pending, struct muster_link *link);
void muster_verbs_timed_out(struct muster_pending_connection *pending);
void muster_verbs_dial(struct muster_verbs_link *end);
/* Leader only. Connects the queue pair of a path whose greeting has arrived, and opens the path
 * when the proof has arrived. False: the link is closed. */
bool muster_verbs_prove(struct muster_verbs_path *path);

/* The record of a frame in the window. */
static inline struct muster_verbs_out_frame *muster_verbs_out(struct muster_verbs_link *end,
                                                              uint64_t number)
{
    return &end->out[muster_bundle_index(number)];
}

/* The parts of wr_id. */
enum muster_verbs_work { VERBS_WORK_RECEIVE = 1, VERBS_WORK_FRAME = 2, VERBS_WORK_EMPTY = 3 };
static inline uint64_t muster_verbs_work(const struct muster_verbs_path *path,
                                         enum muster_verbs_work work, uint32_t slot)
{
    return path->completion_id << 16 | (uint64_t)work << 8 | slot;
}

/* The parts of the immediate data: the frame's lowest 16 bits, the credits returned, and whether
 * this is the proof. */
enum {
    VERBS_NUMBER_MASK = 0xffff,
    VERBS_CREDITS_SHIFT = 16,
    VERBS_SEGMENTS_SHIFT = 21,
    VERBS_CREDITS_MASK = 0x1f, /* of either */
    VERBS_PROOF = 1 << 26
};

#endif
