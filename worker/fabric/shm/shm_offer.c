/* Large messages that stay where they are: the sender's offers, and the memory that the peer maps
 * to read them. shm_get.c has the receiver, and how the two agree. */
#include "worker/fabric/shm/shm.h"
#include "worker/memory/allocation_registry.h"
#include "worker/memory/shared_memory.h"

#include <string.h>
#include <sys/mman.h>

static struct shm_link *link_of(const struct muster_match *match)
{
    return match->link->end;
}

/* Offering ----------------------------------------------------------------------------------- */

/* Pieces that were freed meanwhile need not be mapped any more. */
static void forget_freed(struct shm_link *link)
{
    uint64_t freed = muster_allocation_freed_count();
    uint32_t kept = 0;
    if (link->freed == freed) {
        return;
    }
    link->freed = freed;
    for (uint32_t i = 0; i < link->told_count; i++) {
        const struct shm_packet packet = {.kind = SHM_FREED, .word = link->told[i]};
        if (muster_allocation_is_live(link->told[i]) ||
            !muster_shm_packet_send(link->path->pending.watch.fd, &packet, -1)) {
            link->told[kept++] = link->told[i];
        }
    }
    link->told_count = kept;
}

/* True if the peer can map that piece: its descriptor is on the way, ahead of the offer. */
static bool tell_piece(struct shm_link *link, const struct muster_allocation *piece)
{
    forget_freed(link);
    for (uint32_t i = 0; i < link->told_count; i++) {
        if (link->told[i] == piece->id) {
            return true;
        }
    }
    const struct shm_packet packet = {
        .kind = SHM_ALLOCATION, .word = piece->id, .generation = piece->size_bytes};
    if (link->told_count == SHM_MAPPINGS_MAX ||
        !muster_shm_packet_send(link->path->pending.watch.fd, &packet, piece->fd)) {
        return false;
    }
    link->told[link->told_count++] = piece->id;
    return true;
}

static bool is_open(const struct shm_link *link)
{
    return link->path != NULL && link->path->pending.phase == MUSTER_PHASE_OPEN;
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
    struct muster_allocation piece;
    uint32_t slot = 0;
    while (slot < SHM_OFFERS_MAX && link->offered[slot] != NULL) {
        slot++;
    }
    if (slot == SHM_OFFERS_MAX) {
        return 0;
    }
    struct shm_offer offer = {
        .ticket = ++link->last_ticket, .address = (uintptr_t)transfer->data, .slot = slot};
    if (is_open(link) && muster_allocation_find(transfer->data, transfer->size_bytes, &piece) &&
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

static void retract(struct muster_match *match, const struct muster_transfer *transfer)
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

const struct muster_rendezvous_get muster_shm_get_ops = {.describe = describe, .retract = retract};

/* Mappings of the peer's memory -------------------------------------------------------------- */

void muster_shm_map_allocation(struct shm_link *link, const struct shm_packet *packet, int fd)
{
    void *base = NULL;
    if (link->piece_count == SHM_MAPPINGS_MAX ||
        muster_shared_memory_check(fd, packet->generation) != MUSTER_OK) {
        return; /* it is read otherwise, then */
    }
    base = mmap(NULL, packet->generation, PROT_READ, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) {
        link->pieces[link->piece_count++] = (struct shm_mapping){
            .id = packet->word, .base = base, .size_bytes = packet->generation};
    }
}

void muster_shm_unmap_allocation(struct shm_link *link, uint64_t id)
{
    for (uint32_t i = 0; i < link->piece_count; i++) {
        if (link->pieces[i].id == id) {
            munmap(link->pieces[i].base, link->pieces[i].size_bytes);
            link->pieces[i] = link->pieces[--link->piece_count];
            return;
        }
    }
}

void muster_shm_unmap_allocations(struct shm_link *link)
{
    while (link->piece_count > 0) {
        muster_shm_unmap_allocation(link, link->pieces[0].id);
    }
}

const unsigned char *muster_shm_find_mapping(const struct shm_link *link,
                                             const struct shm_offer *offer, uint64_t size_bytes)
{
    for (uint32_t i = 0; i < link->piece_count; i++) {
        const struct shm_mapping *piece = &link->pieces[i];
        if (offer->region != 0 && piece->id == offer->region &&
            offer->offset <= piece->size_bytes && size_bytes <= piece->size_bytes - offer->offset) {
            return piece->base + offer->offset;
        }
    }
    return NULL;
}
