/* Which addresses are published and dialled: a class for each address, and the order of the
 * classes. */
#include "worker/fabric/address/address_choice.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IP_BYTES_MAX = 16 };

/* Addresses as bytes ------------------------------------------------------------------------- */

struct ip {
    uint32_t size; /* 4 or 16 */
    unsigned char bytes[IP_BYTES_MAX];
};

static struct ip ip_of(const struct muster_socket_address *address)
{
    struct ip ip = {0};
    if (address->storage.ss_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, &address->storage, sizeof four);
        ip.size = sizeof four.sin_addr;
        memcpy(ip.bytes, &four.sin_addr, sizeof four.sin_addr);
    } else {
        struct sockaddr_in6 six;
        memcpy(&six, &address->storage, sizeof six);
        ip.size = sizeof six.sin6_addr;
        memcpy(ip.bytes, &six.sin6_addr, sizeof six.sin6_addr);
    }
    return ip;
}

static bool same_network(const struct ip *a, const struct ip *b, uint32_t bits)
{
    if (a->size != b->size || memcmp(a->bytes, b->bytes, bits / 8) != 0) {
        return false;
    }
    uint32_t rest = bits % 8;
    return rest == 0 || (a->bytes[bits / 8] ^ b->bytes[bits / 8]) >> (8 - rest) == 0;
}

static bool same_ip(const struct ip *a, const struct ip *b)
{
    return same_network(a, b, a->size * 8);
}

static bool is_loopback(const struct ip *ip)
{
    static const unsigned char six[IP_BYTES_MAX] = {[IP_BYTES_MAX - 1] = 1};
    return ip->size == 4 ? ip->bytes[0] == 127 : memcmp(ip->bytes, six, sizeof six) == 0;
}

bool muster_address_is_loopback(const char *host)
{
    struct muster_socket_address address;
    if (muster_address_parse_host(host, &address) != MUSTER_OK) {
        return false;
    }
    struct ip ip = ip_of(&address);
    return is_loopback(&ip);
}

/* 169.254.0.0/16 and fe80::/10. */
static bool is_link_local(const struct ip *ip)
{
    return ip->size == 4 ? ip->bytes[0] == 169 && ip->bytes[1] == 254
                         : ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

/* The option `interface` --------------------------------------------------------------------- */

/* One item of the list. */
struct item {
    const char *name; /* NULL: a network */
    bool exact;
    struct ip network;
    uint32_t bits;
};

struct items {
    char text[MUSTER_INTERFACES_SIZE];
    bool excluded; /* all but these */
    uint32_t count;
    struct item all[MUSTER_INTERFACES_SIZE / 2];
};

static bool parse_ip(const char *text, struct ip *ret_ip)
{
    if (inet_pton(AF_INET, text, ret_ip->bytes) == 1) {
        ret_ip->size = sizeof(struct in_addr);
        return true;
    }
    ret_ip->size = sizeof(struct in6_addr);
    return inet_pton(AF_INET6, text, ret_ip->bytes) == 1;
}

static bool parse_bits(const char *text, uint32_t most, uint32_t *ret_bits)
{
    char *end = NULL;
    unsigned long bits = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || bits > most) {
        return false;
    }
    *ret_bits = (uint32_t)bits;
    return true;
}

/* Writes into the text: replaces the slash by a terminator. */
static muster_status parse_item(char *text, struct item *ret_item)
{
    char *slash = strchr(text, '/');
    struct item item = {.name = NULL};
    if (slash != NULL) {
        *slash = '\0';
    }
    if (parse_ip(text, &item.network)) {
        item.bits = item.network.size * 8;
        if (slash != NULL && !parse_bits(slash + 1, item.bits, &item.bits)) {
            return muster_error_set(MUSTER_INVALID, "network \"%s/%s\": 0 to %u bits", text,
                                    slash + 1, item.bits);
        }
    } else {
        item.exact = text[0] == '=';
        item.name = text + item.exact;
        size_t length = strlen(item.name);
        if (slash != NULL || length == 0 || length >= IF_NAMESIZE ||
            strchr(item.name, '^') != NULL) {
            return muster_error_set(MUSTER_INVALID,
                                    "\"%s%s%s\" is no interface, address or network; \"^\" "
                                    "stands before the whole list only",
                                    text, slash != NULL ? "/" : "", slash != NULL ? slash + 1 : "");
        }
    }
    *ret_item = item;
    return MUSTER_OK;
}

static muster_status parse_items(const char *interfaces, struct items *ret_items)
{
    size_t length = strlen(interfaces);
    if (length >= sizeof ret_items->text) {
        return muster_error_set(MUSTER_INVALID, "longer than %zu characters",
                                sizeof ret_items->text - 1);
    }
    ret_items->excluded = interfaces[0] == '^';
    memcpy(ret_items->text, interfaces, length + 1);
    ret_items->count = 0;
    char *next = ret_items->text + ret_items->excluded;
    while (next != NULL) {
        char *text = strsep(&next, ",");
        TRY(parse_item(text, &ret_items->all[ret_items->count++]));
    }
    return MUSTER_OK;
}

muster_status muster_interfaces_check(const char *interfaces)
{
    struct items items;
    return parse_items(interfaces, &items);
}

static bool is_interface(const struct muster_host_addresses *here, const char *name)
{
    for (uint32_t i = 0; i < here->count; i++) {
        if (strcmp(here->all[i].interface, name) == 0) {
            return true;
        }
    }
    return false;
}

/* "eth1" is the interface of this name; if there is none, all whose names begin so: "eth10". */
static bool item_matches(const struct item *item, const struct muster_host_addresses *here,
                         const struct muster_host_address *each)
{
    if (item->name == NULL) {
        struct ip ip = ip_of(&each->address);
        return same_network(&item->network, &ip, item->bits);
    }
    if (item->exact || is_interface(here, item->name)) {
        return strcmp(item->name, each->interface) == 0;
    }
    return strncmp(item->name, each->interface, strlen(item->name)) == 0;
}

static bool is_selected(const struct items *items, const struct muster_host_addresses *here,
                        const struct muster_host_address *each)
{
    bool found = false;
    for (uint32_t i = 0; i < items->count && !found; i++) {
        found = item_matches(&items->all[i], here, each);
    }
    return found != items->excluded;
}

/* Publishing --------------------------------------------------------------------------------- */

/* Best first. */
enum publish {
    PUBLISH_FIRST = 0,
    PUBLISH_USUAL = 1,
    PUBLISH_BRIDGE = 2,
    PUBLISH_LINK_LOCAL = 3, /* of IPv4 */
    PUBLISH_LOOPBACK = 4,
    PUBLISH_NOT = 5,
};

static enum publish publish_class(const struct muster_host_address *each,
                                  const struct muster_socket_address *first)
{
    struct ip ip = ip_of(&each->address);
    if (is_link_local(&ip)) {
        return ip.size == 4 ? PUBLISH_LINK_LOCAL : PUBLISH_NOT;
    }
    if (first != NULL) {
        struct ip wanted = ip_of(first);
        if (same_ip(&ip, &wanted)) {
            return PUBLISH_FIRST;
        }
    }
    if (each->loopback || is_loopback(&ip)) {
        return PUBLISH_LOOPBACK;
    }
    return each->bridge ? PUBLISH_BRIDGE : PUBLISH_USUAL;
}

static void print_addresses(const struct muster_host_addresses *here, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (uint32_t i = 0; i < here->count && used < size; i++) {
        struct ip ip = ip_of(&here->all[i].address);
        char address[INET6_ADDRSTRLEN] = "?";
        (void)inet_ntop(ip.size == 4 ? AF_INET : AF_INET6, ip.bytes, address, sizeof address);
        int added = snprintf(ret_text + used, size - used, "%s%s %s", i == 0 ? "" : ", ",
                             here->all[i].interface, address);
        used += added > 0 ? (size_t)added : 0;
    }
}

static muster_status no_address(const struct muster_host_addresses *here, const char *interfaces)
{
    char there[MUSTER_ERROR_MAX / 2];
    print_addresses(here, there, sizeof there);
    if (interfaces == NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "this host has no address that peers can use; "
                                "there is: %s",
                                here->count > 0 ? there : "none");
    }
    return muster_error_set(MUSTER_INVALID, "\"%s\" leaves no address; there is: %s", interfaces,
                            here->count > 0 ? there : "none");
}

/* Goes through the classes of addresses, best first, and in each through the addresses in the order
 * of the host. */
muster_status muster_addresses_choose(const struct muster_host_addresses *here,
                                      const char *interfaces, const char *first, uint32_t most,
                                      uint32_t *ret_chosen, uint32_t *ret_count)
{
    struct items items = {.excluded = true}; /* nothing */
    struct muster_socket_address wanted;
    if (interfaces != NULL) {
        TRY(parse_items(interfaces, &items));
    }
    if (first[0] != '\0') {
        TRY(muster_address_parse_host(first, &wanted));
    }
    uint32_t count = 0;
    bool listed = interfaces != NULL && !items.excluded;
    for (enum publish class = PUBLISH_FIRST; class < PUBLISH_NOT; class ++) {
        if (class == PUBLISH_LOOPBACK && count > 0 && !listed) {
            break; /* loopback is for hosts without other addresses */
        }
        for (uint32_t i = 0; i < here->count && count < most; i++) {
            const struct muster_host_address *each = &here->all[i];
            if (publish_class(each, first[0] != '\0' ? &wanted : NULL) == class &&
                is_selected(&items, here, each)) {
                ret_chosen[count++] = i;
            }
        }
    }
    if (count == 0) {
        return no_address(here, interfaces);
    }
    *ret_count = count;
    return MUSTER_OK;
}

/* Dialling ----------------------------------------------------------------------------------- */

/* In the order in which addresses are dialled. */
enum distance {
    DISTANCE_THIS_HOST = 0, /* this host's, and the peer is on it */
    DISTANCE_NETWORK = 1,   /* in a network of this host */
    DISTANCE_ROUTED = 2,
    DISTANCE_LINK_LOCAL = 3, /* of a network that this host may not be in */
    DISTANCE_NO_FAMILY = 4,  /* this host has no address of its family */
    DISTANCE_OWN = 5,        /* this host's, and the peer is on another one */
    DISTANCE_UNREADABLE = 6, /* last, so that the error text names it */
    DISTANCE_COUNT = 7,
};

static enum distance distance_of(const struct muster_host_addresses *here, const struct ip *ip,
                                 bool same_host)
{
    bool own = is_loopback(ip);
    bool network = false;
    bool family = false;
    for (uint32_t i = 0; i < here->count; i++) {
        const struct muster_host_address *each = &here->all[i];
        struct ip mine = ip_of(&each->address);
        own = own || same_ip(&mine, ip);
        network = network || same_network(&mine, ip, each->prefix_bits);
        family = family || (mine.size == ip->size && !each->loopback && !is_link_local(&mine));
    }
    if (own) {
        return same_host ? DISTANCE_THIS_HOST : DISTANCE_OWN;
    }
    if (network) {
        return DISTANCE_NETWORK;
    }
    if (!family) {
        return DISTANCE_NO_FAMILY;
    }
    return is_link_local(ip) ? DISTANCE_LINK_LOCAL : DISTANCE_ROUTED;
}

/* One address of the peer. */
struct candidate {
    enum distance distance;
    uint32_t family; /* the size of its addresses; 0: no TCP address, or in the order already */
};

/* Finds the next address at this distance: the first of another family than *last_family, otherwise
 * the first that is left. Marks it as used by family 0. False: none is left. */
static bool next_candidate(struct candidate *all, uint32_t count, enum distance distance,
                           uint32_t *last_family, uint32_t *ret_index)
{
    uint32_t found = count;
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].family == 0 || all[i].distance != distance) {
            continue;
        }
        if (found == count || all[i].family != *last_family) {
            found = i;
        }
        if (all[i].family != *last_family) {
            break;
        }
    }
    if (found == count) {
        return false;
    }
    *last_family = all[found].family;
    all[found].family = 0;
    *ret_index = found;
    return true;
}

/* First finds the distance of each address, then writes the addresses by distance; addresses at one
 * distance alternate between the families. */
uint32_t muster_addresses_order(const struct muster_host_addresses *here,
                                const struct muster_peer *peer, bool same_host,
                                uint32_t ret_order[MUSTER_ADDRESSES_MAX])
{
    struct candidate all[MUSTER_ADDRESSES_MAX] = {{0}};
    for (uint32_t i = 0; i < peer->address_count; i++) {
        struct muster_socket_address address;
        if (!muster_address_has_scheme(peer->addresses[i], "tcp")) {
            continue;
        }
        if (muster_address_parse(peer->addresses[i], &address) != MUSTER_OK) {
            all[i] = (struct candidate){.distance = DISTANCE_UNREADABLE, .family = IP_BYTES_MAX};
            continue;
        }
        struct ip ip = ip_of(&address);
        all[i].family = ip.size;
        all[i].distance = distance_of(here, &ip, same_host);
    }
    uint32_t count = 0;
    for (enum distance distance = DISTANCE_THIS_HOST; distance < DISTANCE_COUNT; distance++) {
        uint32_t last_family = 0;
        while (
            next_candidate(all, peer->address_count, distance, &last_family, &ret_order[count])) {
            count++;
        }
    }
    return count;
}
