/*
 * Matching for transports that carry frames: which bytes go out next on a link, and where those
 * that come in belong. A transport moves the bytes and knows nothing of messages.
 *
 * Small messages go at once, as long as the peer has room for those that it does not await yet (the
 * eager window); the room is given back by credit. All others wait until the receiver grants them,
 * which it does when the receive is posted, or, for small ones, when they are offered. A grant
 * needs no buffer, so a message always arrives once both ends have posted it, however much of other
 * operations is waiting: see README.md for the argument.
 *
 * Threads: the fabric's lock; what hands data to consume functions gives it up for that, and says
 * so.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_MATCH_H
#define MUSTER_WORKER_FABRIC_WIRE_MATCH_H

#include "worker/base/cleanup.h"
#include "worker/fabric/link.h"
#include "worker/fabric/wire/unexpected.h"

enum { MUSTER_PIECE_BYTES = 128 * 1024 }; /* handed to consume at most; half of a usual L2 */

/* Encoded frames in a row. */
struct muster_frame_queue {
    unsigned char *bytes;
    size_t start, end, room;
};

struct muster_match;

/* For transports of one host: the receiver takes large messages itself, out of the sender's memory.
 */
struct muster_rendezvous_get {
    /* Says in the offer's payload where the data is. Returns its size; 0: not this one. */
    uint32_t (*describe)(struct muster_match *match, struct muster_transfer *transfer,
                         unsigned char ret_payload[MUSTER_OFFER_MAX]);
    /* It is not offered any more: the peer must not take it from now on. */
    void (*retract)(struct muster_match *match, const struct muster_transfer *transfer);
};

struct muster_match {
    struct muster_link *link;
    const struct muster_rendezvous_get *get_ops; /* or NULL */
    struct muster_unexpected *gets; /* offers whose receive is posted, for the transport to take */
    struct muster_unexpected_table unexpected;
    struct muster_unexpected *matched;    /* early ones whose receive has been posted */
    struct muster_transfer_table waiting; /* sends without a grant */
    struct muster_transfer_list ready;    /* sends with bytes to go */
    struct muster_transfer_list draining; /* sends whose last bytes the transport has taken */
    struct muster_frame_queue control;    /* frames without data, to go before the others */
    uint64_t eager_out_bytes;             /* sent and not credited */
    uint64_t eager_owed_bytes;            /* received, dealt with, not credited yet */
    uint64_t unexpected_bytes;            /* received and not dealt with */
    bool broken;                          /* the link is to be given up */
    bool unchecked;                       /* frames need no checksum */
    bool posting;         /* within a post: sends that are out are reported by the leader */
    uint32_t payload_max; /* of a segment; 0: MUSTER_FRAME_PAYLOAD_MAX */
};

/* The peer has left: the sends go to ret_sends, whole messages stay. */
void muster_match_peer_left(struct muster_match *match, struct muster_transfer_list *ret_sends);
/* Frees what it holds; the sends go to ret_sends. */
void muster_match_finish(struct muster_match *match, struct muster_transfer_list *ret_sends);
/* The slots of struct muster_transport, for the transport to pass on. */
void muster_match_post_send(struct muster_match *match, struct muster_transfer *transfer);
void muster_match_post_receive(struct muster_match *match, struct muster_transfer *transfer);
/* The transport has already forgotten its outgoing bytes of these sends. */
void muster_match_withdraw(struct muster_match *match, const struct muster_operation_id *operation,
                           struct muster_transfer_list *ret_sends);
void muster_match_abort(struct muster_match *match, const struct muster_operation_id *operation,
                        const char *reason);
void muster_match_send_signature(struct muster_match *match,
                                 const struct muster_operation_id *operation);
void muster_match_goodbye(struct muster_match *match);
void muster_match_begin_generation(struct muster_match *match);
/* The eager window gets so many bytes back. */
void muster_match_credit(struct muster_match *match, uint64_t bytes);

/* Going out ---------------------------------------------------------------------------------- */

/* The next frame with data. */
struct muster_outgoing {
    unsigned char header[MUSTER_FRAME_SIZE];
    unsigned char *data; /* only read; borrowed from the transfer until sent or withdrawn */
    uint32_t size;
    uint32_t charge_bytes; /* of the eager window */
    struct muster_transfer *transfer;
    bool last;          /* of this transfer */
    int64_t started_ns; /* for the timeline */
};

/* How many bytes of a ready send have not gone out, and where they begin. */
uint64_t muster_match_remaining(const struct muster_transfer *transfer, unsigned char **ret_data);
/* False if there is none. */
bool muster_match_next(struct muster_match *match, struct muster_outgoing *ret_outgoing);
/* It is out: all of it. */
void muster_match_sent(struct muster_match *match, const struct muster_outgoing *outgoing);
/* It was taken and will not go out; its transfer is being withdrawn. */
void muster_match_unsent(struct muster_match *match, const struct muster_outgoing *outgoing);

/* Taking ------------------------------------------------------------------------------------- */

/* The receive that a take is for; NULL if it has ended otherwise. */
struct muster_transfer *muster_match_get_receive(const struct muster_match *match,
                                                 const struct muster_unexpected *get);
/* All of it has been taken: the receive is done, and the sender hears of it. Frees the take. */
void muster_match_get_done(struct muster_match *match, struct muster_unexpected *get);
/* It cannot be taken: it is to be sent, unless a part of it was taken; then the sender has
 * withdrawn it, or is dead, which ends the receive in due course. Frees the take. */
void muster_match_get_failed(struct muster_match *match, struct muster_unexpected *get);

/* Coming in ---------------------------------------------------------------------------------- */

enum muster_arrival_place {
    MUSTER_PLACE_NOWHERE = 0,    /* drop the payload */
    MUSTER_PLACE_DATA = 1,       /* into receive->data */
    MUSTER_PLACE_CONSUME = 2,    /* to receive->consume */
    MUSTER_PLACE_UNEXPECTED = 3, /* into early->data */
    MUSTER_PLACE_TEXT = 4,       /* into text */
};

/* The frame that is coming in on one path. */
struct muster_arrival {
    struct muster_frame frame;
    enum muster_arrival_place place;
    uint32_t remaining; /* bytes of the payload that have not come */
    int64_t started_ns; /* its header came, for the timeline */
    struct muster_transfer *receive;
    struct muster_unexpected *unexpected;
    unsigned char *piece; /* the transport's buffer of MUSTER_PIECE_BYTES, aligned; borrowed */
    uint32_t carried;     /* bytes of an element that has not come as a whole */
    unsigned char carry[MUSTER_ELEMENT_MAX_BYTES];
    char text[MUSTER_REASON_SIZE];
};

/* A header has come. MUSTER_INVALID: the peer breaks the rules, give up the link. */
MUSTER_CHECKED muster_status muster_match_header(struct muster_match *match,
                                                 const struct muster_frame *frame,
                                                 struct muster_arrival *arrival);

/* Where to read the next bytes of the payload to, and how many at most. */
unsigned char *muster_arrival_buffer(struct muster_arrival *arrival, uint32_t *ret_size);
/* So many bytes are in that buffer now. Gives up the lock while they are consumed. */
void muster_arrival_filled(struct muster_match *match, struct muster_arrival *arrival,
                           uint32_t size);

/* The whole payload is in memory: what is for a consume function is handed over from there. May
 * give up the lock like muster_arrival_filled(). */
void muster_arrival_consume(struct muster_match *match, struct muster_arrival *arrival,
                            const unsigned char *data, uint32_t size);

/* All of the payload has come (left is 0). GOODBYE is the transport's to handle. */
MUSTER_CHECKED muster_status muster_match_arrived(struct muster_match *match,
                                                  struct muster_arrival *arrival);
/* Early arrivals whose transfers have been posted meanwhile. May give up the lock while they are
 * consumed. Returns false if the link was given up. */
bool muster_match_progress(struct muster_match *match, unsigned char *piece);

/* Forgets the operation. */
void muster_arrival_withdraw(struct muster_arrival *arrival,
                             const struct muster_operation_id *operation);
/* The path is closed in the middle. */
void muster_arrival_finish(struct muster_arrival *arrival);

/* Queues ------------------------------------------------------------------------------------- */

/* Room for so many bytes at the end; NULL when memory is out. */
unsigned char *muster_frame_queue_extend(struct muster_frame_queue *queue, size_t size);

#endif
