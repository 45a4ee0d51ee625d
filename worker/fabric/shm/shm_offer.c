/* Rendezvous by get: the sender's offers, and the mappings of allocations at the receiver.
 * shm_get.c has the protocol, and the rest of the receiver. */
#include "worker/fabric/shm/shm.h"
#include "worker/memory/allocation_registry.h"
#include "worker/memory/shared_memory.h"

#include <string.h>
#include <sys/mman.h>

static struct muster_shm_link *link_of(const struct muster_match *match)
{
    return match->link->end;
}

/* Offering ----------------------------------------------------------------------------------- */

/* Allocations that have been freed: makes the peer unmap them. */
static void unshare_freed(struct muster_shm_link *end)
{
    uint64_t freed = muster_allocation_freed_count();
    uint32_t count = 0;
    if (end->freed == freed) {
        return;
    }
    end->freed = freed;
    for (uint32_t i = 0; i < end->shared_count; i++) {
        const struct muster_shm_packet packet = {.kind = SHM_FREED, .word = end->shared_ids[i]};
        if (muster_allocation_is_live(end->shared_ids[i]) ||
            !muster_shm_packet_send(end->path->pending.watch.fd, &packet, -1)) {
            end->shared_ids[count++] = end->shared_ids[i];
        }
    }
    end->shared_count = count;
}

/* Sends the descriptor of the allocation, unless the peer has it. True if the peer can map it
 * before it handles the offer. */
static bool share_allocation(struct muster_shm_link *end,
                             const struct muster_allocation *allocation)
{
    unshare_freed(end);
    for (uint32_t i = 0; i < end->shared_count; i++) {
        if (end->shared_ids[i] == allocation->id) {
            return true;
        }
    }
    const struct muster_shm_packet packet = {
        .kind = SHM_ALLOCATION, .word = allocation->id, .generation = allocation->size_bytes};
    if (end->shared_count == SHM_MAPPINGS_MAX ||
        !muster_shm_packet_send(end->path->pending.watch.fd, &packet, allocation->fd)) {
        return false;
    }
    end->shared_ids[end->shared_count++] = allocation->id;
    return true;
}

static bool is_open(const struct muster_shm_link *end)
{
    return end->path != NULL && end->path->pending.phase == MUSTER_PHASE_OPEN;
}

static void write_ticket(struct muster_shm_link *end, uint32_t slot)
{
    atomic_store_explicit(&end->path->mine->offers[slot], end->tickets[slot], memory_order_release);
}

void muster_shm_write_tickets(struct muster_shm_link *end)
{
    for (uint32_t slot = 0; slot < SHM_OFFERS_MAX; slot++) {
        if (end->offered[slot] != NULL) {
            write_ticket(end, slot);
        }
    }
}

/* The runs that the message begins and ends in, and those between. The list stays where it is as
 * long as the data does. */
static void describe_ranges(const struct muster_transfer *transfer, struct muster_shm_offer *offer)
{
    const struct muster_range_list *list = transfer->ranges;
    uint64_t end_bytes = transfer->ranges_at_bytes + transfer->size_bytes;
    size_t first = muster_range_find(list->runs, list->count, transfer->ranges_at_bytes);
    size_t last = muster_range_find(list->runs, list->count, end_bytes - 1);
    offer->address = (uintptr_t)&list->runs[first];
    offer->offset = transfer->ranges_at_bytes;
    offer->run_count = (uint32_t)(last - first + 1);
}

/* The offer gets a free slot and a new ticket. Data in memory of muster_alloc() is described by its
 * allocation, if the peer can map it; other data by its address; data in several ranges by the
 * address of their list. */
static uint32_t describe(struct muster_match *match, struct muster_transfer *transfer,
                         unsigned char ret_payload[MUSTER_OFFER_MAX])
{
    struct muster_shm_link *end = link_of(match);
    struct muster_allocation allocation;
    uint32_t slot = 0;
    while (slot < SHM_OFFERS_MAX && end->offered[slot] != NULL) {
        slot++;
    }
    if (slot == SHM_OFFERS_MAX) {
        return 0;
    }
    struct muster_shm_offer offer = {
        .ticket = ++end->last_ticket, .address = (uintptr_t)transfer->data, .slot = slot};
    if (transfer->ranges != NULL) {
        describe_ranges(transfer, &offer);
    } else if (is_open(end) &&
               muster_allocation_find(transfer->data, transfer->size_bytes, &allocation) &&
               share_allocation(end, &allocation)) {
        offer.allocation = allocation.id;
        offer.offset = (uint64_t)((char *)transfer->data - allocation.base);
        offer.size_bytes = allocation.size_bytes;
    }
    end->offered[slot] = transfer;
    end->tickets[slot] = offer.ticket;
    if (is_open(end)) {
        write_ticket(end, slot);
    }
    memset(ret_payload, 0, MUSTER_OFFER_MAX);
    memcpy(ret_payload, &offer, sizeof offer);
    return sizeof offer;
}

static void clear_ticket(struct muster_shm_link *end, uint32_t slot)
{
    end->offered[slot] = NULL;
    end->tickets[slot] = 0;
    if (is_open(end)) {
        write_ticket(end, slot);
    }
    /* Before anything is written to the data. */
    muster_ring_fence();
}

static void retract(struct muster_match *match, const struct muster_transfer *transfer)
{
    struct muster_shm_link *end = link_of(match);
    for (uint32_t slot = 0; slot < SHM_OFFERS_MAX; slot++) {
        if (end->offered[slot] == transfer) {
            clear_ticket(end, slot);
        }
    }
}

void muster_shm_retract_all(struct muster_shm_link *end)
{
    for (uint32_t slot = 0; slot < SHM_OFFERS_MAX; slot++) {
        if (end->offered[slot] != NULL) {
            clear_ticket(end, slot);
        }
    }
}

const struct muster_rendezvous_get muster_shm_get_ops = {.describe = describe, .retract = retract};

/* Mappings of the peer's memory -------------------------------------------------------------- */

void muster_shm_map_allocation(struct muster_shm_link *end, const struct muster_shm_packet *packet,
                               int fd)
{
    void *base = NULL;
    if (end->mapping_count == SHM_MAPPINGS_MAX ||
        muster_shared_memory_check(fd, packet->generation) != MUSTER_OK) {
        return; /* process_vm_readv() is used instead */
    }
    base = mmap(NULL, packet->generation, PROT_READ, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) {
        end->mappings[end->mapping_count++] = (struct muster_shm_mapping){
            .id = packet->word, .base = base, .size_bytes = packet->generation};
    }
}

void muster_shm_unmap_allocation(struct muster_shm_link *end, uint64_t id)
{
    for (uint32_t i = 0; i < end->mapping_count; i++) {
        if (end->mappings[i].id == id) {
            munmap(end->mappings[i].base, end->mappings[i].size_bytes);
            end->mappings[i] = end->mappings[--end->mapping_count];
            return;
        }
    }
}

void muster_shm_unmap_allocations(struct muster_shm_link *end)
{
    while (end->mapping_count > 0) {
        muster_shm_unmap_allocation(end, end->mappings[0].id);
    }
}

const unsigned char *muster_shm_find_mapping(const struct muster_shm_link *end,
                                             const struct muster_shm_offer *offer,
                                             uint64_t size_bytes)
{
    for (uint32_t i = 0; i < end->mapping_count; i++) {
        const struct muster_shm_mapping *allocation = &end->mappings[i];
        if (offer->allocation != 0 && allocation->id == offer->allocation &&
            offer->offset <= allocation->size_bytes &&
            size_bytes <= allocation->size_bytes - offer->offset) {
            return allocation->base + offer->offset;
        }
    }
    return NULL;
}
