/*
 * Which addresses of a host are published, and in which order the addresses of a peer are dialled.
 * Pure: the addresses of this host are an argument (host_addresses.h reads them).
 *
 * Addresses at a short distance come first, as in RFC 6724; families take turns, as in RFC 8305,
 * section 4.
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_CHOICE_H
#define MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_CHOICE_H

#include "worker/fabric/address/address.h"

#include <net/if.h>

enum {
    MUSTER_HOST_ADDRESSES_MAX = 128, /* of a host; further ones are left out */
    MUSTER_INTERFACES_SIZE = 256,    /* MUSTER_INTERFACE and its terminator */
};

struct muster_host_address {
    char interface[IF_NAMESIZE];
    struct muster_socket_address address; /* port 0 */
    uint32_t prefix_bits;                 /* of its network */
    bool loopback;
    bool bridge; /* often of containers or virtual machines, with one address on many hosts */
};

struct muster_host_addresses {
    uint32_t count;
    struct muster_host_address all[MUSTER_HOST_ADDRESSES_MAX];
};

/* Checks the option `interface`: a list with commas. An item is an interface ("eth0"; if there is
 * none of this name, all whose names begin so; "=eth0" only that one), a network ("10.0.0.0/8",
 * "fd00::/8") or an address. "^" before the list excludes its items: "^docker,lo". MUSTER_INVALID
 * says what is wrong. */
MUSTER_CHECKED muster_status muster_interfaces_check(const char *interfaces);

/* True for a numeric loopback address, "127.0.0.1". */
bool muster_address_is_loopback(const char *host);

/* The addresses to publish, best first: indices into `here`, at most `most`. interfaces: see above;
 * NULL: all but loopback, or loopback if there is nothing else. first: an address that comes first
 * if it is among them; "" for none. Link-local IPv6 addresses are left out: they are valid only
 * together with an interface of the dialler's. MUSTER_INVALID: there is none; the text lists the
 * host's. */
MUSTER_CHECKED muster_status muster_addresses_choose(const struct muster_host_addresses *here,
                                                     const char *interfaces, const char *first,
                                                     uint32_t most, uint32_t *ret_chosen,
                                                     uint32_t *ret_count);

/* The order in which to dial the peer's TCP addresses: indices into peer->addresses. Returns their
 * number. same_host: the peer says that it is on this host. Then this host's own addresses come
 * first, else last, because they lead to this host. */
uint32_t muster_addresses_order(const struct muster_host_addresses *here,
                                const struct muster_peer *peer, bool same_host,
                                uint32_t ret_order[MUSTER_ADDRESSES_MAX]);

#endif
