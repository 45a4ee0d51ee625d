/*
 * Sweeps: every algorithm of every collective on a job of threads, each call with another type,
 * operation, root and place of its buffers, checked against a reference.
 */
#ifndef MUSTER_TESTS_SUPPORT_SWEEP_H
#define MUSTER_TESTS_SUPPORT_SWEEP_H

#include "tests/support/group.h"

enum { SWEEP_HOSTS_MAX = 4 };

struct sweep_shape {
    uint32_t hosts;
    uint32_t host_sizes[SWEEP_HOSTS_MAX];
};

/* The transport of the messages, or MEMORY: the ranks of each host share memory. Those of
 * RDMA need devices. */
enum sweep_place {
    SWEEP_INPROC,
    SWEEP_TCP,
    SWEEP_SHM,
    SWEEP_MEMORY,
    SWEEP_VERBS,
    SWEEP_BETWEEN_DEVICES,
    SWEEP_PLACES
};

/* How members' inputs and outputs are allocated; NULL: by malloc(). */
struct sweep_memory {
    /* Returns the address that the test uses. */
    void *(*allocate)(size_t size_bytes, uint32_t rank, bool output);
    void (*release)(void *memory);
    /* The address of the same byte that the library is called with. */
    void *(*for_library)(const void *memory);
};

struct sweep {
    const uint64_t *counts;
    size_t count_count;
    bool brief; /* each algorithm with one count and one way of placing buffers, others each time */
    bool in_flight; /* each call is started, and then ended */
    enum sweep_place place;
    const uint32_t *callers; /* as in group_start_shuffled(); NULL: ranks are in order */
    const struct sweep_memory *memory;
};

/* Fails the test with the first call that failed or has a wrong result. */
void sweep_shape(const struct sweep_shape *shape, const struct sweep *sweep);
/* So many ranks on so many hosts, as evenly as can be. */
void sweep_even(uint32_t ranks, uint32_t hosts, const struct sweep *sweep);

/* Whether the sweeps of this program so far have made such a call. */
bool sweep_has_called(enum sweep_place place, enum muster_collective collective, muster_type type,
                      muster_op op);

/* Allreduces of each pair of type and operation by the algorithm that the context chooses. */
void sweep_pairs(enum group_transport transport, uint32_t ranks);

#endif
