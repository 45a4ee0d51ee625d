/*
 * Which addresses of a host are published, and in which order a peer's are called. Pure: the host's
 * addresses come in as a value (host_addresses.h reads them).
 *
 * The order is that of RFC 6724 in spirit: what is nearest first; families take turns as in RFC
 * 8305, section 4.
 */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_CHOICE_H
#define MUSTER_WORKER_FABRIC_ADDRESS_ADDRESS_CHOICE_H

#include "worker/fabric/address/address.h"

#include <net/if.h>

enum {
    MUSTER_HOST_ADDRESSES_MAX = 128, /* of a host that are looked at */
    MUSTER_INTERFACES_SIZE = 256,    /* MUSTER_INTERFACE and its terminator */
};

struct muster_host_address {
    char interface[IF_NAMESIZE];
    struct muster_socket_address address; /* port 0 */
    uint32_t prefix_bits;                 /* of its network */
    bool loopback;
    bool bridge; /* of containers or virtual machines, often: the same address on many hosts */
};

struct muster_host_addresses {
    uint32_t count;
    struct muster_host_address all[MUSTER_HOST_ADDRESSES_MAX];
};

/* What the option `interface` may say: a list with commas, of interfaces ("eth0", or what begins
 * so: "eth"; "=eth0" is that one only) and networks ("10.0.0.0/8", "fd00::/8", or one address).
 * "^docker,lo" is all but these. MUSTER_INVALID says what is wrong with it. */
MUSTER_CHECKED muster_status muster_interfaces_check(const char *interfaces);

/* True for a numeric address of loopback, "127.0.0.1". */
bool muster_address_is_loopback(const char *host);

/* The addresses to publish, best first: indices into `here`, at most `most`. Without `interfaces`
 * (NULL) all but loopback, or loopback if there is nothing else. `first` is an address that goes
 * first if it is among them, or "". Link-local addresses of IPv6 are left out: they mean nothing
 * without the interface of whoever calls. MUSTER_INVALID: there is none; says what there is. */
MUSTER_CHECKED muster_status muster_addresses_choose(const struct muster_host_addresses *here,
                                                     const char *interfaces, const char *first,
                                                     uint32_t most, uint32_t *ret_chosen,
                                                     uint32_t *ret_count);

/* In which order to call the peer's TCP addresses: indices into peer->addresses. Returns how many
 * there are. same_host: it says that it is on this host; then the host's own addresses are first,
 * else last, since they lead to this host and not to the peer. */
uint32_t muster_addresses_order(const struct muster_host_addresses *here,
                                const struct muster_peer *peer, bool same_host,
                                uint32_t ret_order[MUSTER_ADDRESSES_MAX]);

#endif
