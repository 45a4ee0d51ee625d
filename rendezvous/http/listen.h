/* The listening socket, and the file from which launchers read its port. */
#ifndef MUSTER_RENDEZVOUS_HTTP_LISTEN_H
#define MUSTER_RENDEZVOUS_HTTP_LISTEN_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_LISTEN_BACKLOG = 4096,
    MUSTER_LISTEN_ADDRESS_SIZE = 80, /* "[IPv6 with a zone]:PORT" */
};

/* address: "ADDRESS:PORT" or "[IPV6]:PORT"; without ADDRESS all addresses of the machine, with port
 * 0 any free port. MUSTER_INVALID names the address: malformed, in use, not of this machine. The
 * caller owns *ret_fd. */
MUSTER_CHECKED muster_status muster_listen_open(const char *address, int *ret_fd);

/* The address that the socket is bound to, as text, and its port. */
MUSTER_CHECKED muster_status muster_listen_describe(int fd,
                                                    char ret_address[MUSTER_LISTEN_ADDRESS_SIZE],
                                                    uint16_t *ret_port);

/* Whether only processes of this machine reach the socket. */
bool muster_listen_is_local(int fd);

/* Writes "PORT\n" into the file, atomically: a reader finds the whole line or no file. */
MUSTER_CHECKED muster_status muster_listen_write_port(const char *path, uint16_t port);

#endif
