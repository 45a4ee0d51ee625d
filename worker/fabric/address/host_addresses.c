/* The addresses of this host, from getifaddrs(). */
#include "worker/fabric/address/host_addresses.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bridges only come later in the order. Without /sys no interface is taken for a bridge. */
static bool is_bridge(const char *interface)
{
    char path[64 + IF_NAMESIZE];
    (void)snprintf(path, sizeof path, "/sys/class/net/%.15s/bridge", interface);
    return access(path, F_OK) == 0;
}

static uint32_t count_bits(const unsigned char *bytes, size_t size)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) {
        bits += (uint32_t)__builtin_popcount(bytes[i]);
    }
    return bits;
}

static uint32_t prefix_of(const struct sockaddr *mask)
{
    if (mask == NULL) {
        return 0;
    }
    if (mask->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, mask, sizeof six);
        return count_bits(six.sin6_addr.s6_addr, sizeof six.sin6_addr.s6_addr);
    }
    struct sockaddr_in four;
    unsigned char bytes[sizeof four.sin_addr];
    memcpy(&four, mask, sizeof four);
    memcpy(bytes, &four.sin_addr, sizeof bytes);
    return count_bits(bytes, sizeof bytes);
}

static bool is_usable(const struct ifaddrs *each)
{
    return each->ifa_addr != NULL && (each->ifa_flags & IFF_UP) != 0 &&
           (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6);
}

static void copy_address(const struct ifaddrs *from, struct muster_host_address *to)
{
    bool six = from->ifa_addr->sa_family == AF_INET6;
    memset(to, 0, sizeof *to);
    to->address.size = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    memcpy(&to->address.storage, from->ifa_addr, to->address.size);
    muster_address_set_port(&to->address, 0);
    (void)snprintf(to->interface, sizeof to->interface, "%s", from->ifa_name);
    to->loopback = (from->ifa_flags & IFF_LOOPBACK) != 0;
    to->bridge = is_bridge(from->ifa_name);
    /* A prefix of 0 bits would contain every address. */
    uint32_t bits = prefix_of(from->ifa_netmask);
    to->prefix_bits = bits > 0 ? bits : six ? 128 : 32;
}

muster_status muster_host_addresses_read(struct muster_host_addresses *ret_here)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) {
        return muster_error_errno(MUSTER_FATAL, "this host's addresses");
    }
    ret_here->count = 0;
    for (const struct ifaddrs *each = list;
         each != NULL && ret_here->count < MUSTER_HOST_ADDRESSES_MAX; each = each->ifa_next) {
        if (is_usable(each)) {
            copy_address(each, &ret_here->all[ret_here->count++]);
        }
    }
    freeifaddrs(list);
    return MUSTER_OK;
}
