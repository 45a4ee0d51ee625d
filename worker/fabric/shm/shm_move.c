/* Messages through the rings: frames without checksums, each rounded up to a cache line. A frame is
 * written and consumed as a whole. */
#include "worker/fabric/shm/shm.h"
#include "worker/fabric/wire/whole_frames.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { FRAMES_MAX = 32 }; /* received in a row, then other links have their turn */

enum received {
    RECEIVED_NOTHING = 0,
    RECEIVED_FRAME = 1,
    LINK_CLOSED = 2,
};

static size_t ring_bytes(uint32_t payload)
{
    return (MUSTER_FRAME_SIZE + payload + MUSTER_CACHE_LINE - 1) & -(size_t)MUSTER_CACHE_LINE;
}

/* Sending ------------------------------------------------------------------------------------ */

/* Wakes the peer if it sleeps and waits for this change: for data or for room. */
static void wake_peer(struct muster_shm_link *end, uint32_t what)
{
    struct muster_shm_side *theirs = end->path->theirs;
    /* The peer stores `sleeping` before it polls for the last time, and this thread has written
     * before it loads `sleeping`: one of the two sees the other. */
    muster_ring_fence();
    if ((atomic_load_explicit(&theirs->sleeping, memory_order_relaxed) & what) == 0 ||
        atomic_exchange(&theirs->sleeping, 0) == 0) {
        return;
    }
    const struct muster_shm_packet packet = {.kind = SHM_WAKE};
    /* If the socket is full, the peer is woken by the packets in it. */
    (void)muster_shm_packet_send(end->path->pending.watch.fd, &packet, -1);
}

static bool write_frame(struct muster_shm_link *end, const unsigned char *header,
                        struct muster_place payload, uint32_t size)
{
    size_t room;
    unsigned char *to = muster_ring_reserve(&end->out, ring_bytes(size), &room);
    if (to == NULL) {
        atomic_store_explicit(&end->blocked, end->out.seen, memory_order_relaxed);
        if (room == MUSTER_RING_BROKEN) {
            end->match.broken = true;
            muster_link_mark(end->link);
        }
        return false;
    }
    memcpy(to, header, MUSTER_FRAME_SIZE);
    const struct muster_place ring = {.base = (char *)to + MUSTER_FRAME_SIZE};
    muster_place_copy(ring, payload, size);
    muster_ring_advance(&end->out, ring_bytes(size));
    return true;
}

static bool write_control(struct muster_shm_link *end)
{
    struct muster_frame_queue *control = &end->match.control;
    while (control->start < control->end) {
        unsigned char *header = control->bytes + control->start;
        const struct muster_place payload = {.base = (char *)header + MUSTER_FRAME_SIZE};
        uint32_t size = muster_frame_length(header);
        if (!write_frame(end, header, payload, size)) {
            return false;
        }
        control->start += MUSTER_FRAME_SIZE + size;
    }
    return true;
}

static bool write_data(struct muster_shm_link *end)
{
    struct muster_match *match = &end->match;
    end->has_next = end->has_next || muster_match_next(match, &end->next_out);
    if (!end->has_next ||
        !write_frame(end, end->next_out.header, muster_outgoing_place(&end->next_out, 0),
                     end->next_out.size)) {
        return false;
    }
    const struct muster_outgoing out = end->next_out;
    end->has_next =
        false; /* first: the done function may post the next message, which leads here */
    muster_match_sent(match, &out);
    return true;
}

void muster_shm_flush(struct muster_shm_link *end)
{
    uint64_t before = end->out.done;
    atomic_store_explicit(&end->blocked, SHM_NOT_BLOCKED, memory_order_relaxed);
    if (write_control(end)) {
        while (write_data(end)) {
        }
    }
    if (end->out.done != before) {
        wake_peer(end, SHM_WAITS_FOR_DATA);
    }
}

void muster_shm_flush_control(struct muster_shm_link *end)
{
    (void)write_control(end);
    wake_peer(end, SHM_WAITS_FOR_DATA);
}

/* Receiving ---------------------------------------------------------------------------------- */

static enum received close_link(struct muster_shm_link *end, const char *what)
{
    struct muster_link *link = end->link;
    muster_link_fail(link, end->parting ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST, what);
    return LINK_CLOSED;
}

static enum received reject(struct muster_shm_link *end)
{
    muster_whole_frame_reject(end->link, end->parting);
    return LINK_CLOSED;
}

/* The peer may change the ring at any time, so the header is copied before it is checked. */
static enum received receive_frame(struct muster_shm_link *end)
{
    unsigned char header[MUSTER_FRAME_SIZE];
    struct muster_frame frame;
    size_t there = muster_ring_available(&end->in);
    if (there == 0) {
        return RECEIVED_NOTHING;
    }
    if (there == MUSTER_RING_BROKEN || there < sizeof header) {
        return close_link(end, "its ring has impossible counts");
    }
    const unsigned char *front = muster_ring_front(&end->in);
    memcpy(header, front, sizeof header);
    if (muster_frame_decode_unchecked(header, &frame) != MUSTER_OK) {
        return reject(end);
    }
    if (ring_bytes(frame.length) > there) {
        return close_link(end, "its ring has impossible counts");
    }
    if (muster_whole_frame_consume(&end->match, &end->arrival, &frame, front + MUSTER_FRAME_SIZE) !=
        MUSTER_OK) {
        return reject(end);
    }
    muster_ring_advance(&end->in, ring_bytes(frame.length));
    if (muster_whole_frame_complete(&end->match, &end->arrival) != MUSTER_OK) {
        return reject(end);
    }
    return frame.kind == MUSTER_FRAME_GOODBYE ? LINK_CLOSED : RECEIVED_FRAME;
}

/* Receives up to `most` frames. LINK_CLOSED also if another thread has closed the link meanwhile.
 */
static enum received receive_frames(struct muster_shm_link *end, int most)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    enum received received = RECEIVED_FRAME;
    for (int i = 0; i < most && received == RECEIVED_FRAME; i++) {
        muster_fabric_yield(link->fabric);
        if (link->end != end || link->opened != opened || link->state != MUSTER_LINK_OPEN) {
            return LINK_CLOSED;
        }
        received = receive_frame(end);
    }
    return received;
}

bool muster_shm_receive(struct muster_shm_link *end)
{
    uint64_t before = end->in.done;
    enum received received = receive_frames(end, FRAMES_MAX);
    if (received == LINK_CLOSED) {
        return false;
    }
    if (received == RECEIVED_FRAME) {
        muster_link_mark(end->link);
    }
    if (end->in.done != before) {
        wake_peer(end, SHM_WAITS_FOR_ROOM);
    }
    return true;
}

/* Messages without transfers ----------------------------------------------------------------- */

bool muster_shm_send_direct(struct muster_link *link, const struct muster_direct_message *message)
{
    struct muster_shm_link *end = link->end;
    size_t room = 0;
    size_t size = ring_bytes(message->size_bytes);
    if (end->has_next || !muster_match_can_send_direct(&end->match, message)) {
        return false;
    }
    unsigned char *to = muster_ring_reserve(&end->out, size, &room);
    if (to == NULL) {
        return false;
    }
    muster_match_encode_direct(&end->match, message, to);
    if (message->size_bytes > 0) {
        memcpy(to + MUSTER_FRAME_SIZE, message->data, message->size_bytes);
    }
    muster_ring_advance(&end->out, size);
    wake_peer(end, SHM_WAITS_FOR_DATA);
    return true;
}

/* The peer is woken once for each quarter of the ring that is read, which saves most fences. It
 * waits only where less than the longest frame is free, so at least three quarters are to be read,
 * and when the second of them has been, there is room for that frame. */
_Static_assert(SHM_RING_BYTES / 4 > MUSTER_FRAME_SIZE + SHM_PAYLOAD_MAX + MUSTER_CACHE_LINE,
               "a quarter of the ring has room for a frame");

static bool crosses_quarter(uint64_t done, size_t last)
{
    return done / (SHM_RING_BYTES / 4) != (done - last) / (SHM_RING_BYTES / 4);
}

/* The peer may change the ring at any time, so the header is copied before it is checked. What is
 * wrong with a frame is found out, and said, by the slot progress. */
enum muster_direct_result muster_shm_receive_direct(struct muster_link *link,
                                                    struct muster_direct_message *message)
{
    struct muster_shm_link *end = link->end;
    unsigned char header[MUSTER_FRAME_SIZE];
    size_t there = muster_ring_available(&end->in);
    if (there == 0) {
        return MUSTER_DIRECT_NOTHING;
    }
    if (there == MUSTER_RING_BROKEN || there < sizeof header) {
        return MUSTER_DIRECT_OTHER;
    }
    const unsigned char *front = muster_ring_front(&end->in);
    memcpy(header, front, sizeof header);
    if (ring_bytes(muster_frame_length(header)) > there ||
        !muster_match_accept_direct(&end->match, message, header)) {
        return MUSTER_DIRECT_OTHER;
    }
    if (message->size_bytes > 0) {
        memcpy(message->data, front + MUSTER_FRAME_SIZE, message->size_bytes);
    }
    muster_ring_advance(&end->in, ring_bytes(message->size_bytes));
    muster_match_received_direct(&end->match, message);
    if (crosses_quarter(end->in.done, ring_bytes(message->size_bytes))) {
        wake_peer(end, SHM_WAITS_FOR_ROOM);
    }
    return MUSTER_DIRECT_RECEIVED;
}

bool muster_shm_poll_direct(const struct muster_link *link)
{
    const struct muster_shm_link *end = link->end;
    /* A message that was taken directly may have left others that were seen with it. */
    return end->in.seen != end->in.done || muster_ring_has_changed(&end->in);
}

void muster_shm_handle_end(struct muster_shm_link *end, const char *what)
{
    enum received received = RECEIVED_FRAME;
    while (received == RECEIVED_FRAME) {
        received = receive_frames(end, FRAMES_MAX);
    }
    if (received == RECEIVED_NOTHING) {
        (void)close_link(end, what);
    }
}

/* Descriptors -------------------------------------------------------------------------------- */

static void store_descriptor(struct muster_shm_link *end, const struct muster_shm_packet *packet,
                             int *fd)
{
    const struct muster_fabric *fabric = end->link->fabric;
    if (packet->generation < fabric->generation || end->descriptor_count == SHM_DESCRIPTORS_MAX) {
        return; /* one too many: its receiver waits until its deadline */
    }
    end->descriptors[end->descriptor_count++] = (struct muster_shm_descriptor){
        .generation = packet->generation, .tag = packet->word, .fd = TAKE_FD(*fd)};
    muster_link_notify(end->link);
}

void muster_shm_handle_packet(struct muster_shm_link *end, const struct muster_shm_packet *packet,
                              int *fd)
{
    switch (packet->kind) {
    case SHM_WAKE:
        muster_link_mark(end->link);
        break;
    case SHM_DESCRIPTOR:
        store_descriptor(end, packet, fd);
        break;
    case SHM_ALLOCATION:
        muster_shm_map_allocation(end, packet, *fd);
        break;
    case SHM_FREED:
        muster_shm_unmap_allocation(end, packet->word);
        break;
    default:
        (void)close_link(end, "it sends a greeting over an open link");
    }
}
