/*
 * Large messages, straight from the sender's memory to where the receiver wants them.
 *
 * The sender offers: where the data is, and a ticket, which it also writes into a slot of the
 * link's memory. The receiver reads piece by piece: out of a mapping, if the data is in memory of
 * muster_alloc(), else by process_vm_readv(). When all of it is read it looks whether the ticket
 * still stands in the slot. The sender takes it away before the data may change: so what was read
 * is what was sent, or it is not delivered. Nobody waits for the other for that.
 *
 * Where the kernel forbids reading, the receiver asks for the message instead.
 */
#include "worker/base/allocated.h"
#include "worker/base/region.h"
#include "worker/fabric/shm.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <utlist.h>

enum { PIECES_MAX = 4 }; /* in one go, then other links have their turn */

/* The payload of an offer. */
struct offer {
    uint64_t ticket;
    uint64_t address;    /* of the data in the sender's process */
    uint64_t region;     /* the piece of muster_alloc() that it is in; 0: none */
    uint64_t offset;     /* of the data in that */
    uint64_t size_bytes; /* of the piece */
    uint32_t slot;
    uint32_t unused; /* zero */
};
_Static_assert(sizeof(struct offer) <= MUSTER_OFFER_MAX, "an offer fits into its frame");

static struct shm_link *link_of(const struct muster_match *match)
{
    return match->link->end;
}

/* The sender --------------------------------------------------------------------------------- */

/* Pieces that were freed meanwhile need not be mapped any more. */
static void forget_freed(struct shm_link *link)
{
    uint64_t freed = muster_allocated_freed();
    uint32_t kept = 0;
    if (link->freed == freed) {
        return;
    }
    link->freed = freed;
    for (uint32_t i = 0; i < link->told_count; i++) {
        const struct shm_packet packet = {.kind = SHM_FREED, .word = link->told[i]};
        if (muster_allocated_lives(link->told[i]) ||
            !muster_shm_packet_send(link->path->half.watch.fd, &packet, -1)) {
            link->told[kept++] = link->told[i];
        }
    }
    link->told_count = kept;
}

/* True if the peer can map that piece: its descriptor is on the way, ahead of the offer. */
static bool tell_piece(struct shm_link *link, const struct muster_allocated *piece)
{
    forget_freed(link);
    for (uint32_t i = 0; i < link->told_count; i++) {
        if (link->told[i] == piece->id) {
            return true;
        }
    }
    const struct shm_packet packet = {
        .kind = SHM_PIECE, .word = piece->id, .generation = piece->size_bytes};
    if (link->told_count == SHM_PIECES_MAX ||
        !muster_shm_packet_send(link->path->half.watch.fd, &packet, piece->fd)) {
        return false;
    }
    link->told[link->told_count++] = piece->id;
    return true;
}

static bool is_open(const struct shm_link *link)
{
    return link->path != NULL && link->path->half.phase == MUSTER_PHASE_OPEN;
}

static void write_ticket(struct shm_link *link, uint32_t slot)
{
    atomic_store_explicit(&link->path->mine->offers[slot], link->tickets[slot],
                          memory_order_release);
}

void muster_shm_write_tickets(struct shm_link *link)
{
    for (uint32_t slot = 0; slot < SHM_OFFERS_MAX; slot++) {
        if (link->offered[slot] != NULL) {
            write_ticket(link, slot);
        }
    }
}

static uint32_t describe(struct muster_match *match, struct muster_transfer *transfer,
                         unsigned char ret_payload[MUSTER_OFFER_MAX])
{
    struct shm_link *link = link_of(match);
    struct muster_allocated piece;
    uint32_t slot = 0;
    while (slot < SHM_OFFERS_MAX && link->offered[slot] != NULL) {
        slot++;
    }
    if (slot == SHM_OFFERS_MAX) {
        return 0;
    }
    struct offer offer = {
        .ticket = ++link->last_ticket, .address = (uintptr_t)transfer->data, .slot = slot};
    if (is_open(link) && muster_allocated_find(transfer->data, transfer->size_bytes, &piece) &&
        tell_piece(link, &piece)) {
        offer.region = piece.id;
        offer.offset = (uint64_t)((char *)transfer->data - piece.base);
        offer.size_bytes = piece.size_bytes;
    }
    link->offered[slot] = transfer;
    link->tickets[slot] = offer.ticket;
    if (is_open(link)) {
        write_ticket(link, slot);
    }
    memset(ret_payload, 0, MUSTER_OFFER_MAX);
    memcpy(ret_payload, &offer, sizeof offer);
    return sizeof offer;
}

static void take_ticket(struct shm_link *link, uint32_t slot)
{
    link->offered[slot] = NULL;
    link->tickets[slot] = 0;
    if (is_open(link)) {
        write_ticket(link, slot);
    }
    /* Before anything that is written to the data from now on. */
    muster_ring_fence();
}

static void release(struct muster_match *match, const struct muster_transfer *transfer)
{
    struct shm_link *link = link_of(match);
    for (uint32_t slot = 0; slot < SHM_OFFERS_MAX; slot++) {
        if (link->offered[slot] == transfer) {
            take_ticket(link, slot);
        }
    }
}

void muster_shm_release_all(struct shm_link *link)
{
    for (uint32_t slot = 0; slot < SHM_OFFERS_MAX; slot++) {
        if (link->offered[slot] != NULL) {
            take_ticket(link, slot);
        }
    }
}

const struct muster_match_direct muster_shm_direct = {.describe = describe, .release = release};

/* The receiver's mappings -------------------------------------------------------------------- */

void muster_shm_map_piece(struct shm_link *link, const struct shm_packet *packet, int fd)
{
    void *base = NULL;
    if (link->piece_count == SHM_PIECES_MAX ||
        muster_region_check(fd, packet->generation) != MUSTER_OK) {
        return; /* it is read otherwise, then */
    }
    base = mmap(NULL, packet->generation, PROT_READ, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) {
        link->pieces[link->piece_count++] =
            (struct shm_piece){.id = packet->word, .base = base, .size_bytes = packet->generation};
    }
}

void muster_shm_unmap_piece(struct shm_link *link, uint64_t id)
{
    for (uint32_t i = 0; i < link->piece_count; i++) {
        if (link->pieces[i].id == id) {
            munmap(link->pieces[i].base, link->pieces[i].size_bytes);
            link->pieces[i] = link->pieces[--link->piece_count];
            return;
        }
    }
}

void muster_shm_unmap_pieces(struct shm_link *link)
{
    while (link->piece_count > 0) {
        muster_shm_unmap_piece(link, link->pieces[0].id);
    }
}

/* Where the data is mapped here; NULL if it is not, or not all of it. */
static const unsigned char *find_mapped(const struct shm_link *link, const struct offer *offer,
                                        uint64_t size_bytes)
{
    for (uint32_t i = 0; i < link->piece_count; i++) {
        const struct shm_piece *piece = &link->pieces[i];
        if (offer->region != 0 && piece->id == offer->region &&
            offer->offset <= piece->size_bytes && size_bytes <= piece->size_bytes - offer->offset) {
            return piece->base + offer->offset;
        }
    }
    return NULL;
}

/* The receiver ------------------------------------------------------------------------------- */

/* False if it does not say where the data is: the peer may write what it likes. */
static bool read_offer(const struct muster_early *take, struct offer *ret_offer)
{
    if (take->frame.length != sizeof *ret_offer) {
        return false;
    }
    memcpy(ret_offer, take->data, sizeof *ret_offer);
    return ret_offer->slot < SHM_OFFERS_MAX;
}

/* A piece of the data, without the lock. */
struct reading {
    struct shm_link *link;
    struct muster_transfer *receive;
    const struct offer *offer;
    const unsigned char *mapped; /* the data, or NULL: read from the address */
    uint64_t offset;
    size_t size;
};

static bool read_process(const struct reading *reading, void *to)
{
    uint64_t address = reading->offer->address + reading->offset;
    struct iovec here = {.iov_base = to, .iov_len = reading->size};
    struct iovec there = {.iov_len = reading->size};
    _Static_assert(sizeof address == sizeof there.iov_base, "addresses have 64 bits");
    memcpy(&there.iov_base, &address, sizeof address);
    return process_vm_readv(reading->link->path->pid, &here, 1, &there, 1, 0) ==
           (ssize_t)reading->size;
}

/* What has been read until now is what was sent. */
static bool is_offered(const struct shm_link *link, const struct offer *offer)
{
    muster_ring_fence(); /* the data was read before the ticket is */
    return atomic_load_explicit(&link->path->theirs->offers[offer->slot], memory_order_relaxed) ==
           offer->ticket;
}

/* Of memory that is read by a system call nothing is consumed that was withdrawn before. */
static bool read_piece(const struct reading *reading)
{
    struct muster_transfer *receive = reading->receive;
    unsigned char *piece = reading->link->shm->piece;
    unsigned char *to =
        receive->consume != NULL ? piece : (unsigned char *)receive->data + reading->offset;
    const unsigned char *from = reading->mapped != NULL ? reading->mapped + reading->offset : piece;
    if ((reading->mapped == NULL && !read_process(reading, to)) ||
        !is_offered(reading->link, reading->offer)) {
        return false;
    }
    if (receive->consume != NULL) {
        receive->consume(receive, reading->offset, from, reading->size);
    } else if (reading->mapped != NULL) {
        memcpy(to, from, reading->size);
    }
    return true;
}

/* Another process may have the number of one that is dead; its socket tells. */
static bool peer_lives(const struct shm_path *path)
{
    struct pollfd look = {.fd = path->half.watch.fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) == 0 || (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

static size_t piece_size(const struct muster_transfer *receive)
{
    size_t most = receive->consume != NULL ? MUSTER_PIECE_BYTES : MUSTER_SEGMENT_BYTES;
    uint64_t left = receive->size_bytes - receive->moved_bytes;
    most = most / receive->element_size_bytes * receive->element_size_bytes;
    return left < most ? (size_t)left : most;
}

static void take_piece(struct shm_link *link, struct muster_early *take, const struct offer *offer,
                       struct muster_transfer *receive)
{
    struct muster_fabric *fabric = link->link->fabric;
    struct reading reading = {.link = link,
                              .receive = receive,
                              .mapped = find_mapped(link, offer, receive->size_bytes),
                              .offer = offer,
                              .offset = receive->moved_bytes,
                              .size = piece_size(receive)};
    bool good = reading.mapped != NULL || link->path->pid != 0;
    if (good) {
        muster_fabric_unlock(fabric);
        good = read_piece(&reading);
        muster_fabric_lock(fabric);
    }
    if (!good) {
        muster_match_not_taken(&link->match, take);
        return;
    }
    receive->moved_bytes += reading.size;
    if (receive->moved_bytes < receive->size_bytes) {
        DL_DELETE(link->match.takes, take); /* the others have their turn */
        DL_APPEND(link->match.takes, take);
    } else if (is_offered(link, offer) && (reading.mapped != NULL || peer_lives(link->path))) {
        muster_match_taken(&link->match, take);
    } else {
        muster_match_not_taken(&link->match, take);
    }
}

/* The descriptor of a piece is on its way before the offer, over the socket. False if the link is
 * over. */
static bool fetch_piece(struct shm_link *link, const struct offer *offer,
                        const struct muster_transfer *receive)
{
    if (offer->region == 0 || receive->moved_bytes > 0 ||
        find_mapped(link, offer, receive->size_bytes) != NULL) {
        return true;
    }
    return muster_shm_packets(link->path);
}

bool muster_shm_take_offers(struct shm_link *end)
{
    struct muster_link *link = end->link;
    uint64_t opened = link->opened;
    for (int i = 0; i < PIECES_MAX; i++) {
        muster_fabric_yield(link->fabric);
        if (link->end != end || link->opened != opened || link->state != MUSTER_LINK_OPEN) {
            return false;
        }
        struct muster_early *take = end->match.takes;
        if (take == NULL) {
            return true;
        }
        struct offer offer;
        struct muster_transfer *receive = muster_match_take_receive(&end->match, take);
        if (receive == NULL || !read_offer(take, &offer)) {
            muster_match_not_taken(&end->match, take);
        } else if (!fetch_piece(end, &offer, receive)) {
            return false;
        } else {
            take_piece(end, take, &offer, receive);
        }
    }
    if (end->match.takes != NULL) {
        muster_link_mark(link);
    }
    return true;
}
