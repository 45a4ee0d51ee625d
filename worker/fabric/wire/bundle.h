/*
 * The frames of a link that has several paths: their numbers, the window of those that the peer has
 * not acknowledged, the path that carries each of them, and the order in which they are delivered.
 * Used for TCP connections and for RDMA queue pairs. The numbering is that of Multipath TCP's data
 * sequence (RFC 8684, section 3.3), with frames in place of bytes.
 *
 * Pure: no memory, sockets, clocks or locks. What belongs to a frame (its bytes, its transfer) is
 * the transport's, in arrays of its own indexed by muster_bundle_index().
 *
 * A frame that goes out:
 *
 *   add ──> waiting ──carry──> carried ──acknowledge──> acknowledged ──retire──> gone
 *              ^                  │                          ^
 *              └─put_back, abandon┘        (also while it waits again)
 *
 * A waiting frame has no path: it is new, or its path was lost. Frames retire in the order of their
 * numbers, so the window is [first_out, next_out).
 *
 * A frame that comes in is new, a duplicate (its first path was lost before the acknowledgement
 * came back), or too far ahead. The latter violates the protocol: a peer has at most a window of
 * unacknowledged frames. Frames are delivered in the order of their numbers; those that arrive
 * ahead of a missing one wait.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_BUNDLE_H
#define MUSTER_WORKER_FABRIC_WIRE_BUNDLE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_BUNDLE_WINDOW = 64,     /* frames added and not retired; a power of two */
    MUSTER_BUNDLE_AHEAD_MAX = 256, /* numbers from the next one to deliver; a power of two */
    MUSTER_BUNDLE_PATHS_MAX = 16,
    MUSTER_BUNDLE_NO_PATH = 0xff,
};

struct muster_bundle_limits {
    uint64_t first_number; /* of the first frame, in both directions; the same at both ends */
    uint64_t window_bytes; /* no frame is added once as many bytes of payload are in the window */
    uint32_t ahead_max;    /* at most MUSTER_BUNDLE_AHEAD_MAX, at least the peer's window */
};

struct muster_bundle {
    struct muster_bundle_limits limits;

    /* Going out. */
    uint64_t first_out, next_out;
    uint64_t out_bytes;     /* payloads in the window */
    uint32_t waiting_count; /* frames that no path carries */
    uint32_t turn;          /* where the search for a path for the next frame begins */
    struct {
        uint32_t payload_size;
        uint8_t path; /* MUSTER_BUNDLE_NO_PATH: it waits, or is acknowledged */
        bool acknowledged;
    } out[MUSTER_BUNDLE_WINDOW]; /* by number */

    /* Coming in. */
    uint64_t next_in;                               /* the first number that was not delivered */
    uint64_t arrived[MUSTER_BUNDLE_AHEAD_MAX / 64]; /* bits by number: arrived, not delivered */
    bool acknowledgement_due; /* the peer waits for one; for transports whose device sends none */
    uint32_t unacknowledged_frames; /* delivered since the last acknowledgement */
    uint64_t unacknowledged_bytes;
};

void muster_bundle_init(struct muster_bundle *bundle, const struct muster_bundle_limits *limits);

/* Sending ------------------------------------------------------------------------------------ */

/* Where a transport keeps what belongs to a frame in the window. */
static inline uint32_t muster_bundle_index(uint64_t number)
{
    return (uint32_t)(number % MUSTER_BUNDLE_WINDOW);
}

/* Whether a frame may be added. */
bool muster_bundle_has_room(const struct muster_bundle *bundle);

/* Numbers a frame; it waits for a path. There is room. */
uint64_t muster_bundle_add(struct muster_bundle *bundle, uint32_t payload_size);

/* Gives a waiting frame to a path. */
void muster_bundle_carry(struct muster_bundle *bundle, uint64_t number, uint32_t path);

/* The path that carries the frame, or MUSTER_BUNDLE_NO_PATH. */
uint32_t muster_bundle_carrier(const struct muster_bundle *bundle, uint64_t number);

/* The path does not send the frame after all, or the path was lost: the frame waits again. */
void muster_bundle_put_back(struct muster_bundle *bundle, uint64_t number);

/* The same for all frames that the path carries. */
void muster_bundle_abandon(struct muster_bundle *bundle, uint32_t path);

/* The first waiting frame from this number on; next_out if there is none. */
uint64_t muster_bundle_next_waiting(const struct muster_bundle *bundle, uint64_t from);

/* The next path in turn among those whose bits are set; MUSTER_BUNDLE_NO_PATH if none is. */
uint32_t muster_bundle_choose(struct muster_bundle *bundle, uint32_t ready_paths);

/* The peer has this frame. */
void muster_bundle_acknowledge(struct muster_bundle *bundle, uint64_t number);

/* The peer has all frames before this number. False if one of them was never added. */
bool muster_bundle_acknowledge_before(struct muster_bundle *bundle, uint64_t number);

bool muster_bundle_is_acknowledged(const struct muster_bundle *bundle, uint64_t number);

/* Takes the oldest frame out of the window if it is acknowledged. */
bool muster_bundle_retire(struct muster_bundle *bundle, uint64_t *ret_number);

/* Receiving ---------------------------------------------------------------------------------- */

enum muster_bundle_arrival {
    MUSTER_BUNDLE_NEW = 1,
    MUSTER_BUNDLE_DUPLICATE = 2, /* arrived before: to be dropped */
    MUSTER_BUNDLE_TOO_FAR = 3,   /* more frames ahead than a peer may have out */
};

/* What a frame of this number would be. */
enum muster_bundle_arrival muster_bundle_classify(const struct muster_bundle *bundle,
                                                  uint64_t number);

/* A whole frame has arrived; a new one is noted. A duplicate makes an acknowledgement due: the peer
 * does not know that the frame has arrived. */
enum muster_bundle_arrival muster_bundle_arrive(struct muster_bundle *bundle, uint64_t number);

/* Whether the next frame to deliver has arrived: next_in. */
bool muster_bundle_has_next(const struct muster_bundle *bundle);

/* It is delivered. An acknowledgement becomes due after a quarter of a window of frames, or an
 * eighth of its bytes. */
void muster_bundle_deliver(struct muster_bundle *bundle, uint32_t payload_size);

/* The number to acknowledge now, which stands for all before it. Afterwards nothing is due. */
uint64_t muster_bundle_acknowledgement(struct muster_bundle *bundle);

/* The number of an arriving frame of which only the lowest 16 bits travel: the one that is nearest
 * to next_in. first_number is at least 2^15. */
uint64_t muster_bundle_number_of(const struct muster_bundle *bundle, uint16_t lowest_bits);

#endif
