/* The server's address: the listening socket, and the file that tells launchers its port. */
#ifndef MUSTER_RENDEZVOUS_HTTP_LISTEN_H
#define MUSTER_RENDEZVOUS_HTTP_LISTEN_H

#include "worker/base/status.h"

#include <stdint.h>

enum {
    MUSTER_LISTEN_BACKLOG = 4096,
    MUSTER_LISTEN_ADDRESS_SIZE = 80, /* "[IPv6 with a zone]:PORT" */
};

/* "ADDRESS:PORT" or "[ADDRESS]:PORT"; an empty address is every one of this machine; port 0 is any
 * free one. MUSTER_INVALID names the address: not of this shape, in use, not this machine's.
 * ret_fd is the caller's. */
MUSTER_CHECKED muster_status muster_listen_open(const char *address, int *ret_fd);

/* What the socket is bound to, as people write it; and its port. */
MUSTER_CHECKED muster_status muster_listen_describe(int fd,
                                                    char ret_address[MUSTER_LISTEN_ADDRESS_SIZE],
                                                    uint16_t *ret_port);

/* Makes the file hold "PORT\n", whole from the first moment on. */
MUSTER_CHECKED muster_status muster_listen_write_port(const char *path, uint16_t port);

#endif
