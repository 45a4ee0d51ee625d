/* The options of the RDMA transport: muster_options has what each is. */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_SETTINGS_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_SETTINGS_H

#include "worker/fabric/address/listen_settings.h"

#include <stdbool.h>
#include <stdint.h>

enum { MUSTER_VERBS_CONNECTIONS_MAX = 8 };

struct muster_verbs_settings {
    struct muster_listen_settings listen;
    bool required;        /* no fabric without RDMA; otherwise only a line of the log */
    bool encrypted;       /* the user wants encrypted links, which RDMA cannot provide */
    char *device;         /* a name, or several with commas; NULL: any */
    uint32_t port;        /* of each device, from 1; 0: any */
    int32_t gid;          /* index; -1: the best */
    uint32_t connections; /* queue pairs of each link that this member dials; 0: one per device */
};

/* Slots: link.h says what each does. */
void muster_verbs_read_environment(muster_options *options);
muster_status muster_verbs_parse(const muster_options *options, bool *used, void **ret_settings);
void muster_verbs_free_settings(void *settings);

#endif
