/* The kernel's probes of an idle TCP connection, as both ends of a held Watch have them. */
#ifndef MUSTER_WORKER_BASE_KEEPALIVE_H
#define MUSTER_WORKER_BASE_KEEPALIVE_H

#include <stdbool.h>

enum {
    MUSTER_KEEPALIVE_IDLE_S = 10, /* without a byte, before the first probe */
    MUSTER_KEEPALIVE_INTERVAL_S = 2,
    MUSTER_KEEPALIVE_PROBES = 3, /* unanswered in a row: the connection is reset */
    /* So long after the last byte a connection to a host that is gone is reset. */
    MUSTER_KEEPALIVE_ENDS_S =
        MUSTER_KEEPALIVE_IDLE_S + MUSTER_KEEPALIVE_INTERVAL_S * MUSTER_KEEPALIVE_PROBES,
};

/* A socket that listens hands this down to those that it accepts. False: see errno; the connection
 * works without. */
bool muster_keepalive_set(int fd);

#endif
