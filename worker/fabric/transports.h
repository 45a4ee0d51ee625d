/*
 * The registry of transports, and their settings. A fabric uses the transports that its settings
 * contain. The order of the rows is the order in which a member publishes their addresses, and its
 * peers try them.
 */
#ifndef MUSTER_WORKER_FABRIC_TRANSPORTS_H
#define MUSTER_WORKER_FABRIC_TRANSPORTS_H

#include "worker/fabric/link.h"

struct muster_transport_settings {
    uint32_t count;
    struct {
        const struct muster_transport *transport;
        void *settings; /* the transport's own type; or NULL */
    } rows[MUSTER_TRANSPORTS_MAX];
};

/* transport_settings.c */
/* Adds a transport if it is required or the options ask for it. It need not be in the registry. */
MUSTER_CHECKED muster_status muster_transport_settings_add(
    struct muster_transport_settings *settings, const struct muster_transport *transport,
    const muster_options *options, bool required);
/* The settings of the transport with this name; NULL if it is not used, or has none. */
void *muster_transport_settings_find(const struct muster_transport_settings *settings,
                                     const char *name);
/* Whether a list with commas contains the name. */
bool muster_transport_is_named(const char *list, const char *name);

#endif
