/* Messages through the rings: frames as on a byte stream, without checksums, one after the other,
 * each rounded up to a cache line. A frame is copied in and out as a whole. */
#include "worker/fabric/shm/shm.h"
#include "worker/fabric/wire/whole_frames.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { FRAMES_MAX = 32 }; /* taken in one go, then other links have their turn */

enum taken {
    TAKEN_NOTHING = 0,
    TAKEN_FRAME = 1,
    TAKEN_LAST = 2, /* the link is over */
};

static size_t room_for(uint32_t payload)
{
    return (MUSTER_FRAME_SIZE + payload + MUSTER_CACHE_LINE - 1) & -(size_t)MUSTER_CACHE_LINE;
}

/* Going out ---------------------------------------------------------------------------------- */

/* Wakes the peer if it sleeps for that. */
static void tell(struct shm_link *link, uint32_t what)
{
    struct shm_side *theirs = link->path->theirs;
    /* Either this sees that the peer sleeps, or the peer, which says so before it looks for the
     * last time, sees what was written. */
    muster_ring_fence();
    if ((atomic_load_explicit(&theirs->sleeping, memory_order_relaxed) & what) == 0 ||
        atomic_exchange(&theirs->sleeping, 0) == 0) {
        return;
    }
    const struct shm_packet packet = {.kind = SHM_WAKE};
    /* If the socket is full of packets the peer has something to wake for. */
    (void)muster_shm_packet_send(link->path->pending.watch.fd, &packet, -1);
}

static bool put(struct shm_link *link, const unsigned char *header, const unsigned char *data,
                uint32_t size)
{
    size_t room;
    unsigned char *to = muster_ring_reserve(&link->out, room_for(size), &room);
    if (to == NULL) {
        atomic_store_explicit(&link->blocked, link->out.seen, memory_order_relaxed);
        if (room == MUSTER_RING_BROKEN) {
            link->match.broken = true;
            muster_link_mark(link->link);
        }
        return false;
    }
    memcpy(to, header, MUSTER_FRAME_SIZE);
    if (size > 0) {
        memcpy(to + MUSTER_FRAME_SIZE, data, size);
    }
    muster_ring_advance(&link->out, room_for(size));
    return true;
}

static bool put_control(struct shm_link *link)
{
    struct muster_frame_queue *control = &link->match.control;
    while (control->start < control->end) {
        const unsigned char *header = control->bytes + control->start;
        uint32_t size = muster_frame_length(header);
        if (!put(link, header, header + MUSTER_FRAME_SIZE, size)) {
            return false;
        }
        control->start += MUSTER_FRAME_SIZE + size;
    }
    return true;
}

static bool put_data(struct shm_link *link)
{
    struct muster_match *match = &link->match;
    link->has_next = link->has_next || muster_match_next(match, &link->next_out);
    if (!link->has_next ||
        !put(link, link->next_out.header, link->next_out.data, link->next_out.size)) {
        return false;
    }
    const struct muster_outgoing out = link->next_out;
    link->has_next = false; /* the done function may post the next message, and so come back here */
    muster_match_sent(match, &out);
    return true;
}

void muster_shm_flush(struct shm_link *link)
{
    uint64_t before = link->out.done;
    atomic_store_explicit(&link->blocked, SHM_ROOM, memory_order_relaxed);
    if (put_control(link)) {
        while (put_data(link)) {
        }
    }
    if (link->out.done != before) {
        tell(link, SHM_SLEEPS_FOR_DATA);
    }
}

void muster_shm_flush_control(struct shm_link *link)
{
    (void)put_control(link);
    tell(link, SHM_SLEEPS_FOR_DATA);
}

/* Coming in ---------------------------------------------------------------------------------- */

static enum taken lose(struct shm_link *end, const char *what)
{
    struct muster_link *link = end->link;
    muster_link_fail(link, end->parting ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST, what);
    return TAKEN_LAST;
}

static enum taken lose_by_rule(struct shm_link *end)
{
    muster_whole_frame_reject(end->link, end->parting);
    return TAKEN_LAST;
}

/* The peer may write into the ring what it likes at any time: the header is copied first, then
 * checked. */
static enum taken take_frame(struct shm_link *end)
{
    unsigned char header[MUSTER_FRAME_SIZE];
    struct muster_frame frame;
    size_t there = muster_ring_available(&end->in);
    if (there == 0) {
        return TAKEN_NOTHING;
    }
    if (there == MUSTER_RING_BROKEN || there < sizeof header) {
        return lose(end, "the counts of its ring cannot be");
    }
    const unsigned char *front = muster_ring_front(&end->in);
    memcpy(header, front, sizeof header);
    if (muster_frame_decode_unchecked(header, &frame) != MUSTER_OK) {
        return lose_by_rule(end);
    }
    if (room_for(frame.length) > there) {
        return lose(end, "the counts of its ring cannot be");
    }
    if (muster_whole_frame_consume(&end->match, &end->arrival, &frame, front + MUSTER_FRAME_SIZE) !=
        MUSTER_OK) {
        return lose_by_rule(end);
    }
    muster_ring_advance(&end->in, room_for(frame.length));
    if (muster_whole_frame_complete(&end->match, &end->arrival) != MUSTER_OK) {
        return lose_by_rule(end);
    }
    return frame.kind == MUSTER_FRAME_GOODBYE ? TAKEN_LAST : TAKEN_FRAME;
}

/* Up to so many; TAKEN_LAST if the link is over, or was closed meanwhile. */
static enum taken take_frames(struct shm_link *end, int most)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    enum taken taken = TAKEN_FRAME;
    for (int i = 0; i < most && taken == TAKEN_FRAME; i++) {
        muster_fabric_yield(link->fabric);
        if (link->end != end || link->opened != opened || link->state != MUSTER_LINK_OPEN) {
            return TAKEN_LAST;
        }
        taken = take_frame(end);
    }
    return taken;
}

bool muster_shm_receive(struct shm_link *link)
{
    uint64_t before = link->in.done;
    enum taken taken = take_frames(link, FRAMES_MAX);
    if (taken == TAKEN_LAST) {
        return false;
    }
    if (taken == TAKEN_FRAME) {
        muster_link_mark(link->link);
    }
    if (link->in.done != before) {
        tell(link, SHM_SLEEPS_FOR_ROOM);
    }
    return true;
}

void muster_shm_ended(struct shm_link *end, const char *what)
{
    enum taken taken = TAKEN_FRAME;
    while (taken == TAKEN_FRAME) {
        taken = take_frames(end, FRAMES_MAX);
    }
    if (taken == TAKEN_NOTHING) {
        (void)lose(end, what);
    }
}

/* Descriptors -------------------------------------------------------------------------------- */

static void keep_descriptor(struct shm_link *link, const struct shm_packet *packet, int *fd)
{
    const struct muster_fabric *fabric = link->link->fabric;
    if (packet->generation < fabric->generation || link->descriptor_count == SHM_DESCRIPTORS_MAX) {
        return; /* whoever waits for one too many comes to its deadline */
    }
    link->descriptors[link->descriptor_count++] = (struct shm_descriptor){
        .generation = packet->generation, .tag = packet->word, .fd = TAKE_FD(*fd)};
    muster_link_notify(link->link);
}

void muster_shm_packet_came(struct shm_link *link, const struct shm_packet *packet, int *fd)
{
    switch (packet->kind) {
    case SHM_WAKE:
        muster_link_mark(link->link);
        break;
    case SHM_DESCRIPTOR:
        keep_descriptor(link, packet, fd);
        break;
    case SHM_ALLOCATION:
        muster_shm_map_allocation(link, packet, *fd);
        break;
    case SHM_FREED:
        muster_shm_unmap_allocation(link, packet->word);
        break;
    default:
        (void)lose(link, "it sends a greeting over an open link");
    }
}
