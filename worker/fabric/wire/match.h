/*
 * Matching, for transports that carry frames: which bytes are sent next on a link, and where
 * received bytes belong. A transport moves the bytes and knows nothing of messages.
 *
 * The protocols are those of MPI libraries. A small message is sent eagerly if the eager window has
 * room: the peer buffers it if its receive is not posted yet (an unexpected message), and returns
 * the room as credit. Other messages go by rendezvous: the sender offers the message, the receiver
 * grants it when the receive is posted, and the sender sends segments. Between members of one host
 * the receiver may get the message out of the sender's memory instead.
 *
 * A send:
 *
 *   state      list       event                                  next state
 *   (new)                 posted, fits into the eager window     EAGER
 *                         posted, does not fit                   OFFERED, OFFER is sent
 *                         posted, a GRANT is stored              OFFERED, then as below; OFFER is
 *                                                                sent first if the grant is by get
 *   EAGER      ready      the transport takes the EAGER frame    DRAINING
 *   OFFERED    waiting    GRANT arrives                          GRANTED
 *                         GRANT by get arrives                   OFFERED: the peer gets it
 *                         GET_DONE arrives                       done
 *                         REFUSAL arrives                        done, with MUSTER_INVALID
 *   GRANTED    ready      the transport takes a SEGMENT          GRANTED; DRAINING if it is the
 *                                                                last one
 *   DRAINING   draining   the transport has sent the last frame  done
 *
 * A receive, in link->receives until it is done. A message that has arrived first is stored, and is
 * handled by muster_match_progress() after the receive is posted.
 *
 *   state      event                                         next state
 *   (new)      posted, large                                 GRANTED, GRANT is sent
 *              posted, large, and the transport can get      POSTED, GRANT by get is sent
 *              posted, small                                 POSTED
 *   POSTED     EAGER arrives                                 done, when its payload is there
 *              OFFER arrives                                 GRANTED, GRANT is sent
 *              OFFER arrives that says where the data is     GET
 *   GRANTED    SEGMENT arrives                               GRANTED; done if it is the last one
 *              OFFER arrives, which has crossed the GRANT    GRANTED
 *   GET        the transport has read all of the data        done, GET_DONE is sent
 *              it cannot read, and has read nothing so far   GRANTED, GRANT is sent
 *              it cannot read any more                       GET, until withdrawn or lost: the
 *                                                            sender has withdrawn, or is dead
 *
 * A message of point to point is announced to its listener when its EAGER or OFFER arrives and no
 * receive is posted; the listener may post one at once. Or it refuses a stored OFFER: then that is
 * dropped, and REFUSAL is sent.
 *
 * A message of other size or call ends the transfer with MUSTER_INVALID. Other frames than these
 * violate the protocol, and the link is lost. README.md says why this cannot deadlock.
 *
 * Threads: the fabric's lock. Functions that call consume functions release it meanwhile, and say
 * so.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_MATCH_H
#define MUSTER_WORKER_FABRIC_WIRE_MATCH_H

#include "worker/base/cleanup.h"
#include "worker/fabric/link.h"
#include "worker/fabric/payload.h"
#include "worker/fabric/wire/unexpected.h"

enum { MUSTER_PIECE_BYTES = 128 * 1024 }; /* passed to consume at once; half of a usual L2 cache */

/* Encoded frames, one after the other. */
struct muster_frame_queue {
    unsigned char *bytes;
    size_t start, end, room;
};

struct muster_match;

/* The sender's part of a rendezvous by get: for transports within one host. */
struct muster_rendezvous_get {
    /* Writes where the data is, as the payload of the offer. Returns the payload's size; 0: the
     * peer cannot get this message. */
    uint32_t (*describe)(struct muster_match *match, struct muster_transfer *transfer,
                         unsigned char ret_payload[MUSTER_OFFER_MAX]);
    /* The message is not offered any more: from now on the peer must not get it. */
    void (*retract)(struct muster_match *match, const struct muster_transfer *transfer);
};

struct muster_match {
    struct muster_link *link;
    const struct muster_rendezvous_get *get_ops; /* or NULL */
    struct muster_unexpected *gets; /* offers of receives in state GET, for the transport */
    struct muster_unexpected_table unexpected; /* frames that arrived before their transfers */
    struct muster_unexpected *matched;         /* those whose transfers have been posted since */
    struct muster_transfer_table waiting;      /* OFFERED sends */
    struct muster_transfer_list ready;         /* EAGER and GRANTED sends */
    struct muster_transfer_list draining;
    struct muster_frame_queue control; /* frames without data, which are sent before the others */
    uint64_t eager_out_bytes;          /* sent, no credit returned yet */
    uint64_t eager_owed_bytes;         /* received and delivered, no credit sent yet */
    uint64_t unexpected_bytes;         /* received and not delivered */
    bool broken;                       /* the link is to be closed */
    bool unchecked;                    /* frames need no checksum */
    bool posting;         /* within a post: the leader calls the done functions of sends */
    uint32_t payload_max; /* of a segment; 0: MUSTER_FRAME_PAYLOAD_MAX */
};

/* The peer has left: moves all sends to ret_sends; whole unexpected messages stay. */
void muster_match_peer_left(struct muster_match *match, struct muster_transfer_list *ret_sends);
/* Moves all sends to ret_sends and frees the rest. */
void muster_match_finish(struct muster_match *match, struct muster_transfer_list *ret_sends);
/* For the slots of struct muster_transport that have the same names. */
void muster_match_post_send(struct muster_match *match, struct muster_transfer *transfer);
void muster_match_post_receive(struct muster_match *match, struct muster_transfer *transfer);
/* Called when the transport no longer has frames of these sends. */
void muster_match_withdraw(struct muster_match *match, const struct muster_operation_id *operation,
                           struct muster_transfer_list *ret_sends);
void muster_match_abort(struct muster_match *match, const struct muster_operation_id *operation,
                        const char *reason);
void muster_match_send_signature(struct muster_match *match,
                                 const struct muster_operation_id *operation);
void muster_match_announce(struct muster_match *match, const struct muster_operation_id *operation);
bool muster_match_refuse(struct muster_match *match, const struct muster_message_key *key,
                         const char *reason);
void muster_match_goodbye(struct muster_match *match);
void muster_match_begin_generation(struct muster_match *match);
/* `bytes` of the peer's eager window are free again: credit for them is sent. */
void muster_match_credit(struct muster_match *match, uint64_t bytes);

/* Sending ------------------------------------------------------------------------------------ */

/* A frame with data. */
struct muster_outgoing {
    unsigned char header[MUSTER_FRAME_SIZE];
    unsigned char *data; /* only read; borrowed from the transfer until sent or withdrawn */
    /* Instead of data: the payload lies in ranges (struct muster_transfer). NULL: in data. */
    const struct muster_range_list *ranges;
    uint64_t ranges_at_bytes;
    uint64_t offset_bytes; /* of the payload in the message */
    uint32_t size;
    uint32_t charge_bytes; /* of the eager window */
    struct muster_transfer *transfer;
    bool last;          /* of this transfer */
    int64_t started_ns; /* for the timeline */
};

/* The payload from this byte on. */
static inline struct muster_place muster_outgoing_place(const struct muster_outgoing *outgoing,
                                                        uint64_t offset_bytes)
{
    if (outgoing->ranges == NULL) {
        return (struct muster_place){.base = (char *)outgoing->data + offset_bytes};
    }
    return (struct muster_place){.ranges = outgoing->ranges,
                                 .at_bytes = outgoing->ranges_at_bytes + offset_bytes};
}

/* Copies the payload. */
static inline void muster_outgoing_copy(const struct muster_outgoing *outgoing, void *to)
{
    muster_place_copy((struct muster_place){.base = to}, muster_outgoing_place(outgoing, 0),
                      outgoing->size);
}

/* How many bytes of a ready send frames have taken. The rest is still to be sent. */
uint64_t muster_match_taken(const struct muster_transfer *transfer);
/* Takes the next frame. False if there is none. */
bool muster_match_next(struct muster_match *match, struct muster_outgoing *ret_outgoing);
/* The whole frame has been sent. */
void muster_match_sent(struct muster_match *match, const struct muster_outgoing *outgoing);
/* The frame will not be sent, since its transfer is being withdrawn. */
void muster_match_unsent(struct muster_match *match, const struct muster_outgoing *outgoing);

/* Messages without transfers (link.h) --------------------------------------------------------- */

/* Whether the message fits into the eager window, and nothing is to be sent before it. */
bool muster_match_can_send_direct(const struct muster_match *match,
                                  const struct muster_direct_message *message);
/* The header of its frame, which is sent now, with its data. */
void muster_match_encode_direct(struct muster_match *match,
                                const struct muster_direct_message *message,
                                unsigned char ret_header[MUSTER_FRAME_SIZE]);
/* Whether the frame that has arrived is that message, and it is accepted. It has to be received
 * then. */
bool muster_match_accept_direct(struct muster_match *match, struct muster_direct_message *message,
                                const unsigned char header[MUSTER_FRAME_SIZE]);
/* It has been received: its room in the eager window is free again. */
void muster_match_received_direct(struct muster_match *match,
                                  const struct muster_direct_message *message);

/* Getting ------------------------------------------------------------------------------------ */

/* The receive of this get; NULL if the receive has ended for another reason. */
struct muster_transfer *muster_match_get_receive(const struct muster_match *match,
                                                 const struct muster_unexpected *get);
/* All of the data has been read: completes the receive and sends GET_DONE. Frees the get. */
void muster_match_get_done(struct muster_match *match, struct muster_unexpected *get);
/* The data cannot be read. If nothing has been read so far, grants the message, so that the sender
 * sends it. Otherwise the sender has withdrawn or is dead, and the receive ends later for that
 * reason. Frees the get. */
void muster_match_get_failed(struct muster_match *match, struct muster_unexpected *get);

/* Receiving ---------------------------------------------------------------------------------- */

enum muster_arrival_place {
    MUSTER_PLACE_NOWHERE = 0,    /* drop the payload */
    MUSTER_PLACE_DATA = 1,       /* into receive->data */
    MUSTER_PLACE_CONSUME = 2,    /* to receive->consume */
    MUSTER_PLACE_UNEXPECTED = 3, /* into unexpected->data */
    MUSTER_PLACE_TEXT = 4,       /* into text */
};

/* The frame that is arriving on one connection. */
struct muster_arrival {
    struct muster_frame frame;
    enum muster_arrival_place place;
    uint32_t remaining; /* bytes of the payload that have not arrived */
    int64_t started_ns; /* when its header arrived, for the timeline */
    struct muster_transfer *receive;
    struct muster_unexpected *unexpected;
    unsigned char *piece; /* the transport's buffer of MUSTER_PIECE_BYTES, aligned; borrowed */
    uint32_t carried;     /* bytes of an element that has arrived in part, in carry */
    unsigned char carry[MUSTER_ELEMENT_MAX_BYTES];
    char text[MUSTER_REASON_SIZE];
};

/* A header has arrived. MUSTER_INVALID: the peer violates the protocol, the link is to be closed.
 */
MUSTER_CHECKED muster_status muster_match_header(struct muster_match *match,
                                                 const struct muster_frame *frame,
                                                 struct muster_arrival *arrival);

/* Where the next bytes of the payload go, and how many at most. */
unsigned char *muster_arrival_buffer(struct muster_arrival *arrival, uint32_t *ret_size);
/* The same in parts, at most so many, for a payload that goes into ranges; returns their number. */
int muster_arrival_parts(struct muster_arrival *arrival, struct iovec *parts, int most,
                         uint32_t *ret_size);
/* `size` bytes have been written there. Releases the lock while they are consumed. */
void muster_arrival_filled(struct muster_match *match, struct muster_arrival *arrival,
                           uint32_t size);

/* The same for a payload that is whole in memory: the consume function is passed the data where it
 * lies. May release the lock likewise. */
void muster_arrival_consume(struct muster_match *match, struct muster_arrival *arrival,
                            const unsigned char *data, uint32_t size);

/* All of the payload has arrived (remaining is 0). GOODBYE is handled by the transport. */
MUSTER_CHECKED muster_status muster_match_arrived(struct muster_match *match,
                                                  struct muster_arrival *arrival);
/* Handles stored frames whose transfers have been posted. May release the lock while they are
 * consumed. False: the link has been closed. */
bool muster_match_progress(struct muster_match *match, unsigned char *piece);

/* Forgets the operation. */
void muster_arrival_withdraw(struct muster_arrival *arrival,
                             const struct muster_operation_id *operation);
/* The connection is closed in the middle of a frame. */
void muster_arrival_finish(struct muster_arrival *arrival);

/* Queues ------------------------------------------------------------------------------------- */

/* Room for `size` bytes at the end; NULL if there is no memory. */
unsigned char *muster_frame_queue_extend(struct muster_frame_queue *queue, size_t size);

#endif
