/*
 * A job without a service, for tests: N members in one process, each with a fabric and a
 * communicator of its own, and one thread each for as long as they work.
 *
 * Helper threads must not assert (cmocka's asserts belong to the main thread): they call
 * group_fail(), and group_each() fails the test after it has joined them.
 */
#ifndef MUSTER_TESTS_SUPPORT_GROUP_H
#define MUSTER_TESTS_SUPPORT_GROUP_H

#include "worker/base/status.h"
#include "worker/communicator/communicator.h"

enum group_transport {
    GROUP_INPROC,
    GROUP_TCP,
    GROUP_SHM,
    GROUP_MEMORY, /* the same, and ranks of a host share memory for collectives */
    GROUP_VERBS,
    GROUP_BETWEEN_DEVICES, /* ranks take turns between the two RDMA devices of a guest */
};

#define GROUP_TOKEN "a token" /* of the links */

enum { GROUP_SIZE_MAX = 64, GROUP_DEADLINE_MS = 5000 };

struct group;

struct group_member {
    struct group *group;
    uint32_t rank; /* global */
    struct muster_peer peer;
    struct muster_fabric *fabric;
    struct muster_communicator *communicator;
    struct muster_context **contexts; /* the communicator's, by muster_scope */
    char failure[MUSTER_ERROR_MAX];   /* empty: none */
};

struct group {
    enum group_transport transport;
    uint32_t size;
    uint64_t generation;
    uint32_t segment_bytes;
    struct muster_topology topology;
    uint32_t orders[GROUP_SIZE_MAX];  /* logical numbers, by rank */
    uint32_t callers[GROUP_SIZE_MAX]; /* the member's rank of each rank of the topology */
    struct group_member members[GROUP_SIZE_MAX];
};

/* Hosts of these sizes; algorithm may be NULL. Asserts that all goes well. */
void group_start(struct group *group, enum group_transport transport, uint32_t hosts,
                 const uint32_t *host_sizes, const char *algorithm);
/* With other logical numbers than the ranks; and for messages in segments of at most so many bytes,
 * unless that is 0. */
void group_start_ordered(struct group *group, enum group_transport transport, uint32_t hosts,
                         const uint32_t *host_sizes, const uint32_t *orders,
                         uint32_t segment_bytes);
/* The rank of the topology i, on the host that comes from that, is member callers[i]. Such a group
 * cannot be regrouped. */
void group_start_shuffled(struct group *group, enum group_transport transport, uint32_t hosts,
                          const uint32_t *host_sizes, const uint32_t *callers,
                          const char *algorithm);
/* One host. */
void group_start_flat(struct group *group, enum group_transport transport, uint32_t size);
void group_finish(struct group *group);

/* The next generation: without the member `leaver`, whose fabric is destroyed, or with all members
 * (UINT32_MAX). Later ranks move down by one; logical numbers stay. No member may be at work. */
void group_regroup(struct group *group, uint32_t leaver, const char *algorithm);

typedef void (*group_work)(struct group_member *member, void *argument);

/* Runs work for each member in a thread of its own, joins them, and fails the test with the first
 * failure that was recorded. */
void group_each(struct group *group, group_work work, void *argument);

/* The same in a group of its own over each kind of link: inproc, TCP, shared memory. */
void group_over_links(uint32_t hosts, const uint32_t *host_sizes, group_work work, void *argument);

/* Records a failure; only a member's first one is reported. */
void group_fail(struct group_member *member, const char *format, ...) MUSTER_PRINTF(2, 3);

/* A deadline that only a hanging test reaches. */
int64_t group_deadline(void);

#endif
