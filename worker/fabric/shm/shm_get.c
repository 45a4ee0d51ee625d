/*
 * Rendezvous by get: the receiver reads a large message out of the sender's memory.
 *
 * The sender's offer says where the data is, and has a ticket, which the sender also writes to a
 * slot of the link's memory. The receiver reads piece by piece: from a mapping if the data is in
 * memory of muster_alloc(), else by process_vm_readv(). After each piece, and at the end, it checks
 * that the slot still has the ticket. The sender clears the slot before the data may change. So
 * either what was read is what was sent, or it is not delivered; and neither waits for the other.
 *
 * Where the kernel forbids process_vm_readv(), the receiver grants the message instead.
 *
 * This is the receiver; shm_offer.c has the sender, and the mappings.
 */
#include "worker/fabric/link_trace.h"
#include "worker/fabric/shm/shm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <utlist.h>

enum {
    PIECES_IN_A_ROW = 4, /* then other links have their turn */
    PARTS_MAX = 64,      /* of one call of the kernel */
};

/* False if the payload is no valid offer: the peer may write anything. */
static bool read_offer(const struct muster_unexpected *get, struct muster_shm_offer *ret_offer)
{
    if (get->frame.length != sizeof *ret_offer) {
        return false;
    }
    memcpy(ret_offer, get->data, sizeof *ret_offer);
    return ret_offer->slot < SHM_OFFERS_MAX && ret_offer->run_count <= MUSTER_RANGES_MAX &&
           (ret_offer->run_count == 0 || ret_offer->allocation == 0);
}

/* A piece of the data, to be read without the lock. */
struct reading {
    struct muster_shm_link *end;
    struct muster_transfer *receive;
    const struct muster_shm_offer *offer;
    const unsigned char *mapped; /* the data; NULL: to be read by process_vm_readv() */
    uint64_t offset;
    size_t size;
};

static void *peer_address(uint64_t address)
{
    void *pointer = NULL;
    _Static_assert(sizeof address == sizeof pointer, "addresses have 64 bits");
    memcpy(&pointer, &address, sizeof address);
    return pointer;
}

/* Where the peer's data is from this byte on: in one piece, or in runs that have been fetched. */
static struct muster_place peer_place(const struct reading *reading,
                                      const struct muster_range_list *runs)
{
    const struct muster_shm_offer *offer = reading->offer;
    if (offer->run_count == 0) {
        return (struct muster_place){.base = peer_address(offer->address + reading->offset)};
    }
    return (struct muster_place){.ranges = runs, .at_bytes = offer->offset + reading->offset};
}

/* The kernel copies as much as both lists of parts hold. */
static bool read_process(const struct reading *reading, struct muster_place to)
{
    const struct muster_range_list runs = {.runs = reading->end->runs.runs,
                                           .count = reading->end->runs.count};
    struct muster_place from = peer_place(reading, &runs);
    size_t left = reading->size;
    while (left > 0) {
        struct iovec here[PARTS_MAX];
        struct iovec there[PARTS_MAX];
        int here_count = 0;
        int there_count = 0;
        (void)muster_place_add_parts(to, left, here, PARTS_MAX, &here_count);
        (void)muster_place_add_parts(from, left, there, PARTS_MAX, &there_count);
        ssize_t got = process_vm_readv(reading->end->path->pid, here, (unsigned long)here_count,
                                       there, (unsigned long)there_count, 0);
        if (got <= 0) {
            return false;
        }
        to = muster_place_advance(to, (uint64_t)got);
        from = muster_place_advance(from, (uint64_t)got);
        left -= (size_t)got;
    }
    return true;
}

/* The runs come out of another process: each begins after the one before, and together they hold
 * the message. Their addresses are for the kernel only, which checks them. */
static bool are_valid(const struct muster_range_run *runs, const struct muster_shm_offer *offer,
                      uint64_t size_bytes)
{
    uint64_t end = 0;
    bool valid = runs[0].begin_bytes <= offer->offset &&
                 !__builtin_add_overflow(offer->offset, size_bytes, &end) &&
                 runs[offer->run_count].begin_bytes >= end;
    for (uint32_t i = 0; i < offer->run_count && valid; i++) {
        valid = runs[i].begin_bytes < runs[i + 1].begin_bytes;
    }
    return valid;
}

/* Copies the list of an offer's runs from the peer, unless it is there. False: it cannot be read.
 */
static bool fetch_runs(const struct reading *reading)
{
    struct muster_shm_runs *fetched = &reading->end->runs;
    const struct muster_shm_offer *offer = reading->offer;
    size_t count = (size_t)offer->run_count + 1;
    size_t bytes = count * sizeof *fetched->runs;
    if (offer->run_count == 0 || fetched->ticket == offer->ticket) {
        return true;
    }
    fetched->ticket = 0;
    if (count > fetched->room) {
        free(fetched->runs);
        fetched->runs = malloc(bytes);
        fetched->room = fetched->runs != NULL ? count : 0;
    }
    struct iovec here = {.iov_base = fetched->runs, .iov_len = bytes};
    struct iovec there = {.iov_base = peer_address(offer->address), .iov_len = bytes};
    if (fetched->runs == NULL ||
        process_vm_readv(reading->end->path->pid, &here, 1, &there, 1, 0) != (ssize_t)bytes ||
        !are_valid(fetched->runs, offer, reading->receive->size_bytes)) {
        return false;
    }
    fetched->ticket = offer->ticket;
    fetched->count = offer->run_count;
    return true;
}

/* Whether the message is still offered: then all that has been read so far is what was sent. */
static bool is_offered(const struct muster_shm_link *end, const struct muster_shm_offer *offer)
{
    muster_ring_fence(); /* the data is read before the ticket */
    return atomic_load_explicit(&end->path->theirs->offers[offer->slot], memory_order_relaxed) ==
           offer->ticket;
}

static void trace_piece(const struct reading *reading, enum muster_timeline_stage stage,
                        int64_t started_ns)
{
    muster_link_add_part(
        reading->end->link, reading->receive,
        (struct muster_link_part){stage, started_ns, reading->offset, reading->size});
}

/* Data that is copied is checked before it is consumed. Data in a mapping is consumed where it is,
 * and checked before the message is completed; or it is copied first, if the receive asks for it.
 */
static bool read_piece(const struct reading *reading)
{
    struct muster_transfer *receive = reading->receive;
    unsigned char *piece = reading->end->shm->piece;
    const struct muster_place to = receive->consume != NULL
                                       ? (struct muster_place){.base = (char *)piece}
                                       : muster_transfer_place(receive, reading->offset);
    const unsigned char *from = reading->mapped != NULL ? reading->mapped + reading->offset : piece;
    int64_t started_ns = muster_link_clock(reading->end->link);
    bool copies = reading->mapped != NULL && receive->consume != NULL && receive->checked;
    if (copies) {
        memcpy(piece, from, reading->size);
        from = piece;
    }
    if ((reading->mapped == NULL && !(fetch_runs(reading) && read_process(reading, to))) ||
        !is_offered(reading->end, reading->offer)) {
        return false;
    }
    if (receive->consume == NULL && reading->mapped != NULL) {
        muster_place_copy(to, (struct muster_place){.base = (char *)from}, reading->size);
    }
    if (receive->consume == NULL || reading->mapped == NULL) {
        trace_piece(reading, MUSTER_TIMELINE_RECEIVE_SEGMENT, started_ns);
    }
    if (receive->consume != NULL) {
        started_ns = muster_link_clock(reading->end->link);
        receive->consume(receive, reading->offset, from, reading->size);
        trace_piece(reading, MUSTER_TIMELINE_REDUCE, started_ns);
    }
    return true;
}

static size_t piece_size(const struct muster_transfer *receive)
{
    size_t most = receive->consume != NULL ? MUSTER_PIECE_BYTES : MUSTER_SEGMENT_BYTES;
    uint64_t left = receive->size_bytes - receive->moved_bytes;
    most = most / receive->element_size_bytes * receive->element_size_bytes;
    return left < most ? (size_t)left : most;
}

/* Reads the next piece without the lock, then decides with the lock: the get continues after those
 * of other messages, is complete, or has failed. */
static void get_piece(struct muster_shm_link *end, struct muster_unexpected *get,
                      const struct muster_shm_offer *offer, struct muster_transfer *receive)
{
    struct muster_fabric *fabric = end->link->fabric;
    struct reading reading = {.end = end,
                              .receive = receive,
                              .mapped = muster_shm_find_mapping(end, offer, receive->size_bytes),
                              .offer = offer,
                              .offset = receive->moved_bytes,
                              .size = piece_size(receive)};
    bool good = reading.mapped != NULL || end->path->pid != 0;
    if (receive->begun_ns == 0) {
        receive->begun_ns = muster_link_clock(end->link);
    }
    if (good) {
        muster_fabric_unlock(fabric);
        good = read_piece(&reading);
        muster_fabric_lock(fabric);
    }
    if (!good) {
        muster_match_get_failed(&end->match, get);
        return;
    }
    receive->moved_bytes += reading.size;
    if (receive->moved_bytes < receive->size_bytes) {
        DL_DELETE(end->match.gets, get); /* to the end of the list: others have their turn */
        DL_APPEND(end->match.gets, get);
    } else if (is_offered(end, offer) &&
               (reading.mapped != NULL || !muster_pending_is_closed(&end->path->pending))) {
        /* The socket shows that the peer still lives: another process may have the PID of a dead
         * one. */
        muster_match_get_done(&end->match, get);
    } else {
        muster_match_get_failed(&end->match, get);
    }
}

/* The descriptor of an allocation is sent over the socket before the offer. False: the link is
 * closed. */
static bool receive_allocation(struct muster_shm_link *end, const struct muster_shm_offer *offer,
                               const struct muster_transfer *receive)
{
    if (offer->allocation == 0 || receive->moved_bytes > 0 ||
        muster_shm_find_mapping(end, offer, receive->size_bytes) != NULL) {
        return true;
    }
    return muster_shm_receive_packets(end->path);
}

/* After each yield the link is checked, because another thread may have closed it and opened it
 * again. */
bool muster_shm_get_offered(struct muster_shm_link *end)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    for (int i = 0; i < PIECES_IN_A_ROW; i++) {
        muster_fabric_yield(link->fabric);
        if (link->end != end || link->opened != opened || link->state != MUSTER_LINK_OPEN) {
            return false;
        }
        struct muster_unexpected *get = end->match.gets;
        if (get == NULL) {
            return true;
        }
        struct muster_shm_offer offer;
        struct muster_transfer *receive = muster_match_get_receive(&end->match, get);
        if (receive == NULL || !read_offer(get, &offer)) {
            muster_match_get_failed(&end->match, get);
        } else if (!receive_allocation(end, &offer, receive)) {
            return false;
        } else {
            get_piece(end, get, &offer, receive);
        }
    }
    if (end->match.gets != NULL) {
        muster_link_mark(link);
    }
    return true;
}
