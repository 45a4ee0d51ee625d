/*
 * Chooses the port of an RDMA device for links, and one of its addresses (GIDs). Pure: ports and
 * GIDs come in as values (verbs_device.c reads them).
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_CHOICE_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_CHOICE_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_VERBS_PORTS_MAX = 64, /* of a host; further ones are ignored */
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
    unsigned char
        bytes[MUSTER_VERBS_GID_BYTES]; /* on Ethernet: an IPv6 address, or a mapped IPv4 address */
};

struct muster_verbs_port {
    char device[MUSTER_VERBS_NAME_SIZE];
    uint32_t number; /* from 1 */
    bool active;
    char state[32]; /* as the device reports it */
    uint32_t gid_count;
    struct muster_verbs_gid gids[MUSTER_VERBS_GIDS_MAX];
};

struct muster_verbs_ports {
    uint32_t count;
    struct muster_verbs_port all[MUSTER_VERBS_PORTS_MAX];
};

/* The user's selection. */
struct muster_verbs_selection {
    const char *device; /* NULL: any */
    uint32_t port;      /* 0: any */
    int32_t gid;        /* index; -1: any */
};

/* The first port that is up among those that match; of its GIDs, RoCE v2 before v1, then IPv4
 * before IPv6, then link-local ones last. MUSTER_INVALID: there is none; the text says why and what
 * to do. */
MUSTER_CHECKED muster_status muster_verbs_choose(const struct muster_verbs_ports *ports,
                                                 const struct muster_verbs_selection *selection,
                                                 const struct muster_verbs_port **ret_port,
                                                 const struct muster_verbs_gid **ret_gid);

/* Whether the GID is an IPv4-mapped IPv6 address. */
bool muster_verbs_gid_is_ipv4(const struct muster_verbs_gid *gid);
/* Whether the GID is a link-local address, which needs its interface. */
bool muster_verbs_gid_is_link_local(const struct muster_verbs_gid *gid);

#endif
