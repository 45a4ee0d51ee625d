/* Addresses of links as text, "tcp://10.0.0.1:4000" or "tcp://[::1]:4000", and as socket addresses.
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_H
#define MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

#include <sys/socket.h>

struct muster_socket_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

/* Whether the address begins with "SCHEME://". */
bool muster_address_has_scheme(const char *address, const char *scheme);

/* A numeric address without scheme and port: "10.0.0.1", "::1", "fe80::1%eth0". The port is 0. */
MUSTER_CHECKED muster_status muster_address_parse_host(const char *host,
                                                       struct muster_socket_address *ret_address);

/* Where to listen: such an address, or "*" for all (then the family is AF_UNSPEC); alone, or with a
 * port or a range of ports: "10.0.0.1:7000-7015", "[::1]:7000". Without ports both are 0. */
MUSTER_CHECKED muster_status muster_address_parse_listen(const char *text,
                                                         struct muster_socket_address *ret_address,
                                                         uint16_t *ret_first, uint16_t *ret_last);
void muster_address_set_port(struct muster_socket_address *address, uint16_t port);

/* A whole address of TCP, as it is published. */
MUSTER_CHECKED muster_status muster_address_parse(const char *text,
                                                  struct muster_socket_address *ret_address);
void muster_address_print(const struct muster_socket_address *address,
                          char ret_text[MUSTER_ADDRESS_SIZE]);
/* The same with another scheme than "tcp". Only the scheme for an address of another family than
 * IP. */
void muster_address_print_as(const char *scheme, const struct muster_socket_address *address,
                             char ret_text[MUSTER_ADDRESS_SIZE]);

/* True if a connection does not leave this host: its two ends have one address. */
bool muster_address_within_host(int fd);

/* True for 0.0.0.0 and ::. */
bool muster_address_is_any(const struct muster_socket_address *address);

#endif
