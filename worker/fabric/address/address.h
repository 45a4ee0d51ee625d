/* "tcp://10.0.0.1:4000" and "tcp://[::1]:4000" <-> socket addresses. */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_H
#define MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

#include <sys/socket.h>

struct muster_socket_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

/* A numeric address without scheme and port, "10.0.0.1" or "::1" or "fe80::1%eth0"; port 0. */
MUSTER_CHECKED muster_status muster_address_parse_host(const char *host,
                                                       struct muster_socket_address *ret_address);

/* What to listen on: such an address, or "*" for all (of family AF_UNSPEC then), with a port or a
 * range of ports behind it or without: "10.0.0.1:7000-7015", "[::1]:7000". Both ports are 0 if any
 * will do. */
MUSTER_CHECKED muster_status muster_address_parse_listen(const char *text,
                                                         struct muster_socket_address *ret_address,
                                                         uint16_t *ret_first, uint16_t *ret_last);
void muster_address_set_port(struct muster_socket_address *address, uint16_t port);

/* The whole, as it is published. */
MUSTER_CHECKED muster_status muster_address_parse(const char *text,
                                                  struct muster_socket_address *ret_address);
void muster_address_print(const struct muster_socket_address *address,
                          char ret_text[MUSTER_ADDRESS_SIZE]);
/* The same with another scheme than "tcp"; and without host and port for what has none. */
void muster_address_print_as(const char *scheme, const struct muster_socket_address *address,
                             char ret_text[MUSTER_ADDRESS_SIZE]);

/* True if both ends of a connection have one address, so that it does not leave this host. */
bool muster_address_within_host(int fd);

/* True for 0.0.0.0 and ::. */
bool muster_address_is_any(const struct muster_socket_address *address);

#endif
