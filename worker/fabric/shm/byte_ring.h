/*
 * A ring of bytes with one writer and one reader, which share nothing but its memory. The writer
 * counts the bytes that it has written, the reader those that it has read, since the beginning.
 * There is no lock.
 *
 * A count is stored with release and loaded with acquire: a thread that loads the count sees the
 * bytes before it, and a writer that sees room knows that the reader has finished with it. The
 * protocol is Lamport's, "Specifying Concurrent Program Modules" (1983). Acquire and release
 * suffice: Lê, Guatto, Cohen and Pop, "Correct and Efficient Bounded FIFO Queues" (2013).
 *
 * Neither side trusts the other's count: an impossible one is reported as MUSTER_RING_BROKEN.
 *
 * The data is mapped twice, the second mapping right after the first, so that all that fits into
 * the ring is contiguous.
 *
 * Threads: each side is used by one thread at a time.
 */
#ifndef MUSTER_WORKER_FABRIC_SHM_BYTE_RING_H
#define MUSTER_WORKER_FABRIC_SHM_BYTE_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MUSTER_CACHE_LINE = 64 };

#define MUSTER_RING_BROKEN SIZE_MAX

/* A count that one side writes and the other reads, on a cache line of its own. */
struct muster_ring_count {
    alignas(MUSTER_CACHE_LINE) _Atomic uint64_t bytes;
};

/* One side. */
struct muster_ring {
    struct muster_ring_count *mine, *theirs;
    unsigned char *data; /* 2 x size_bytes */
    size_t size_bytes;   /* a power of two */
    uint64_t done;       /* bytes that this side has written, or read */
    uint64_t seen;       /* the other side's count when it was last loaded */
};

/* Both counts are 0. */
void muster_ring_init(struct muster_ring *ring, struct muster_ring_count *mine,
                      struct muster_ring_count *theirs, unsigned char *data, size_t size_bytes);

/* Writer: where to write size_bytes bytes; NULL if they do not fit. *ret_room: how many bytes fit,
 * or MUSTER_RING_BROKEN. */
unsigned char *muster_ring_reserve(struct muster_ring *ring, size_t size_bytes, size_t *ret_room);

/* Reader: how many bytes can be read, at most the ring's size; or MUSTER_RING_BROKEN. */
size_t muster_ring_available(struct muster_ring *ring);
const unsigned char *muster_ring_front(const struct muster_ring *ring);

/* Writer: size_bytes of the reserved bytes have been written. Reader: size_bytes have been read. */
void muster_ring_advance(struct muster_ring *ring, size_t size_bytes);

/* A full fence between this thread's accesses before and after. The thread sanitizer does not know
 * fences, but it takes an atomic read-modify-write for one, and so does the processor. */
static inline void muster_ring_fence(void)
{
#if defined(__SANITIZE_THREAD__)
    _Atomic int anything = 0;
    atomic_fetch_add(&anything, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* True if the other side's count has changed since it was last loaded. Changes nothing. */
bool muster_ring_has_changed(const struct muster_ring *ring);

#endif
