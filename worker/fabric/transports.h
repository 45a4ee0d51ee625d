/*
 * The registry of transports, and what they have made of the options. A fabric uses those rows that
 * its settings name. Rows stand in the order in which a member publishes their addresses, which is
 * the order in which its peers try them.
 */
#ifndef MUSTER_WORKER_FABRIC_TRANSPORTS_H
#define MUSTER_WORKER_FABRIC_TRANSPORTS_H

#include "worker/fabric/link.h"

struct muster_transport_settings {
    uint32_t count;
    struct {
        const struct muster_transport *transport;
        void *settings; /* its own; or NULL */
    } rows[MUSTER_TRANSPORTS_MAX];
};

/* transport_settings.c */
/* A row more, if the options ask for it, or if it is required; the registry's, or one that a test
 * has. */
MUSTER_CHECKED muster_status muster_transport_settings_add(
    struct muster_transport_settings *settings, const struct muster_transport *transport,
    const muster_options *options, bool required);
/* What the transport of that name has made of the options; NULL if it is not used. */
void *muster_transport_settings_find(const struct muster_transport_settings *settings,
                                     const char *name);
/* Whether a list with commas has the name. */
bool muster_transport_is_named(const char *list, const char *name);

#endif
