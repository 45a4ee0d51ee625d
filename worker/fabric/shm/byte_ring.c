/* A ring of bytes in shared memory; byte_ring.h has the protocol. */
#include "worker/fabric/shm/byte_ring.h"

void muster_ring_init(struct muster_ring *ring, struct muster_ring_count *mine,
                      struct muster_ring_count *theirs, unsigned char *data, size_t size_bytes)
{
    ring->mine = mine;
    ring->theirs = theirs;
    ring->data = data;
    ring->size_bytes = size_bytes;
    ring->done = 0;
    ring->seen = 0;
}

static void load_count(struct muster_ring *ring)
{
    ring->seen = atomic_load_explicit(&ring->theirs->bytes, memory_order_acquire);
}

unsigned char *muster_ring_reserve(struct muster_ring *ring, size_t size_bytes, size_t *ret_room)
{
    uint64_t used = ring->done - ring->seen;
    if (used > ring->size_bytes || ring->size_bytes - used < size_bytes) {
        load_count(ring);
        used = ring->done - ring->seen;
    }
    if (used > ring->size_bytes) { /* the reader has read more than was written */
        *ret_room = MUSTER_RING_BROKEN;
        return NULL;
    }
    *ret_room = ring->size_bytes - (size_t)used;
    return *ret_room < size_bytes ? NULL : ring->data + (ring->done & (ring->size_bytes - 1));
}

size_t muster_ring_available(struct muster_ring *ring)
{
    if (ring->seen == ring->done) {
        load_count(ring);
    }
    uint64_t there = ring->seen - ring->done;
    return there > ring->size_bytes ? MUSTER_RING_BROKEN : (size_t)there;
}

const unsigned char *muster_ring_front(const struct muster_ring *ring)
{
    return ring->data + (ring->done & (ring->size_bytes - 1));
}

void muster_ring_advance(struct muster_ring *ring, size_t size_bytes)
{
    ring->done += size_bytes;
    atomic_store_explicit(&ring->mine->bytes, ring->done, memory_order_release);
}

bool muster_ring_has_changed(const struct muster_ring *ring)
{
    return atomic_load_explicit(&ring->theirs->bytes, memory_order_acquire) != ring->seen;
}
