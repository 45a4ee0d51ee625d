/*
 * Which port of which RDMA device links use, and by which of its addresses (GIDs). Pure: what the
 * devices say comes in as a value (verbs_device.c reads it).
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_CHOICE_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_CHOICE_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_VERBS_PORTS_MAX = 64, /* of a host that are looked at */
    MUSTER_VERBS_GIDS_MAX = 32,  /* of a port */
    MUSTER_VERBS_NAME_SIZE = 64,
    MUSTER_VERBS_GID_BYTES = 16,
};

enum muster_verbs_gid_type {
    MUSTER_VERBS_INFINIBAND = 0,
    MUSTER_VERBS_ROCE_1 = 1, /* within one Ethernet only */
    MUSTER_VERBS_ROCE_2 = 2, /* over UDP: routed like other traffic */
};

struct muster_verbs_gid {
    uint32_t index;
    enum muster_verbs_gid_type type;
    unsigned char bytes[MUSTER_VERBS_GID_BYTES]; /* of Ethernet: an address of IPv6, or of IPv4 */
};

struct muster_verbs_port {
    char device[MUSTER_VERBS_NAME_SIZE];
    uint32_t number; /* from 1 */
    bool active;
    char state[32]; /* in the device's words */
    uint32_t gid_count;
    struct muster_verbs_gid gids[MUSTER_VERBS_GIDS_MAX];
};

struct muster_verbs_ports {
    uint32_t count;
    struct muster_verbs_port all[MUSTER_VERBS_PORTS_MAX];
};

/* What the user asks for. */
struct muster_verbs_wish {
    const char *device; /* NULL: any */
    uint32_t port;      /* 0: any */
    int32_t gid;        /* index; -1: any */
};

/* The first port that is up, of those that are wished for; of its GIDs one of RoCE v2 rather than
 * of v1, of IPv4 rather than of IPv6, link-local ones last. MUSTER_INVALID: there is none, and the
 * text says why, and what to do. */
MUSTER_CHECKED muster_status muster_verbs_choose(const struct muster_verbs_ports *ports,
                                                 const struct muster_verbs_wish *wish,
                                                 const struct muster_verbs_port **ret_port,
                                                 const struct muster_verbs_gid **ret_gid);

/* True for an address of IPv4 in the form that IPv6 has for it. */
bool muster_verbs_gid_is_ipv4(const struct muster_verbs_gid *gid);
/* True for one that means nothing without its interface. */
bool muster_verbs_gid_is_link_local(const struct muster_verbs_gid *gid);

#endif
