/*
 * A ring of bytes with one writer and one reader, which share nothing but its memory: the writer
 * counts the bytes it has written, the reader those it has read, ever. Neither waits for a lock.
 *
 * Publishing stores the count with release, looking loads it with acquire: whoever sees the count
 * sees the bytes before it, and whoever sees room knows that the reader is done with it. The source
 * of the protocol is Lamport, "Specifying Concurrent Program Modules" (1983); that acquire and
 * release are enough is shown in Lê, Guatto, Cohen and Pop, "Correct and Efficient Bounded FIFO
 * Queues" (2013).
 *
 * Neither end believes the other's count: one that cannot be is MUSTER_RING_BROKEN.
 *
 * The data is mapped twice in a row, so that whatever fits into the ring stands in one piece.
 *
 * Threads: each end has one thread at a time.
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

/* A count that one end writes and the other reads, on a cache line of its own. */
struct muster_ring_count {
    alignas(MUSTER_CACHE_LINE) _Atomic uint64_t bytes;
};

/* One end. */
struct muster_ring {
    struct muster_ring_count *mine, *theirs;
    unsigned char *data; /* 2 x size_bytes */
    size_t size_bytes;   /* a power of two */
    uint64_t done;       /* bytes this end has written, or read */
    uint64_t seen;       /* bytes the other end had read, or written, at the last look */
};

/* Both counts are 0. */
void muster_ring_init(struct muster_ring *ring, struct muster_ring_count *mine,
                      struct muster_ring_count *theirs, unsigned char *data, size_t size_bytes);

/* Writer: where to write, if so many bytes fit now; *ret_room says how many would. */
unsigned char *muster_ring_reserve(struct muster_ring *ring, size_t size_bytes, size_t *ret_room);

/* Reader: the bytes that are there, at most the ring's size; or BROKEN. */
size_t muster_ring_available(struct muster_ring *ring);
const unsigned char *muster_ring_front(const struct muster_ring *ring);

/* Writer: the bytes that were reserved are written. Reader: so many are read. */
void muster_ring_advance(struct muster_ring *ring, size_t size_bytes);

/* A full fence between what this thread did before and what it does after. The thread sanitizer
 * knows no fences, but takes an atomic change of anything for one, and so does the processor. */
static inline void muster_ring_fence(void)
{
#if defined(__SANITIZE_THREAD__)
    _Atomic int anything = 0;
    atomic_fetch_add(&anything, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* True if the other end has gone on since this one looked last. Changes nothing. */
bool muster_ring_has_changed(const struct muster_ring *ring);

#endif
