/*
 * An RDMA device of a fabric: found, opened, and what all its links share.
 *
 * Threads: the fabric's lock, except for ibv_poll_cq(), which the leader calls without it.
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_DEVICE_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_DEVICE_H

#include "worker/fabric/verbs/registrations.h"
#include "worker/fabric/verbs/verbs_choice.h"
#include "worker/fabric/verbs/verbs_library.h"

enum {
    MUSTER_VERBS_DEVICES_MAX = 8,  /* of one fabric */
    MUSTER_VERBS_GATHERS_MAX = 12, /* entries of a send's list; more than a large frame needs */
    MUSTER_VERBS_GATHERS_MIN = 3,
};

struct muster_verbs_device {
    const struct muster_verbs_library *library;
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_comp_channel *channel;
    struct ibv_cq *queue;
    uint32_t queue_entries;
    uint32_t gathers_max; /* entries of a send's list: what the device takes, within our bounds */
    char name[MUSTER_VERBS_NAME_SIZE];
    uint8_t port;
    bool ethernet;
    uint16_t lid; /* InfiniBand */
    uint32_t mtu; /* enum ibv_mtu */
    struct muster_verbs_gid gid;
    int64_t port_check_ns;                      /* 0: the port is up; see verbs_events.c */
    uint32_t pairs;                             /* queue pairs of it */
    struct muster_registrations *registrations; /* of users' memory, to send from */
    struct muster_timeline *timeline;           /* of the fabric; borrowed; or NULL */
    uint32_t memory_refusals;                   /* of memory of another device in a row */
};

/* Reads the ports and GIDs of this machine's devices. */
MUSTER_CHECKED muster_status muster_verbs_ports_read(const struct muster_verbs_library *library,
                                                     struct muster_verbs_ports *ret_ports);

/* Into zeroed storage. MUSTER_INVALID: there is no usable device; the text says why and what to do.
 * Then there is nothing to close. */
MUSTER_CHECKED muster_status muster_verbs_device_open(
    const struct muster_verbs_selection *selection, struct muster_verbs_device *device);
/* MUSTER_INVALID: its port is not active. Queries the device, which may take a moment. */
MUSTER_CHECKED muster_status muster_verbs_check_port(const struct muster_verbs_device *device);
void muster_verbs_device_close(struct muster_verbs_device *device);

/* Registers memory to send from and receive into; remote: also for the peer to write into.
 * MUSTER_FATAL: the text names the limit, if it is one. */
MUSTER_CHECKED muster_status muster_verbs_register(const struct muster_verbs_device *device,
                                                   void *memory, size_t size_bytes, bool remote,
                                                   struct ibv_mr **ret_registered);

/* verbs_device_memory.c. Registers whole pages of another device's memory to send from: by dma-buf,
 * or else by ibv_reg_mr(), which works where a kernel module knows that memory. NULL: errno says
 * why; the first refusal is logged. */
struct ibv_mr *muster_verbs_register_device_memory(struct muster_verbs_device *device,
                                                   const struct muster_device_memory *memory,
                                                   void *base, size_t size_bytes);

#endif
