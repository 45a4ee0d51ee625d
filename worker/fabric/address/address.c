/* Addresses of links as text and as socket addresses. */
#include "worker/fabric/address/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static muster_status resolve(const char *host, const char *port,
                             struct muster_socket_address *ret_address)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed != 0) {
        return muster_error_set(MUSTER_INVALID, "address \"%.100s\": %s", host,
                                gai_strerror(failed));
    }
    memset(ret_address, 0, sizeof *ret_address);
    memcpy(&ret_address->storage, found->ai_addr, found->ai_addrlen);
    ret_address->size = found->ai_addrlen;
    freeaddrinfo(found);
    return MUSTER_OK;
}

bool muster_address_has_scheme(const char *address, const char *scheme)
{
    size_t length = strlen(scheme);
    return strncmp(address, scheme, length) == 0 && strncmp(address + length, "://", 3) == 0;
}

muster_status muster_address_parse_host(const char *host, struct muster_socket_address *ret_address)
{
    return resolve(host, "0", ret_address);
}

/* The colon before the ports; NULL if there are no ports. */
static const char *find_ports(const char *text)
{
    const char *colon = strchr(text, ':');
    if (text[0] == '[') {
        const char *bracket = strchr(text, ']');
        return bracket != NULL && bracket[1] == ':' ? bracket + 1 : NULL;
    }
    return colon != NULL && strchr(colon + 1, ':') == NULL ? colon : NULL;
}

static bool parse_port(const char *text, char **ret_end, uint16_t *ret_port)
{
    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtoul takes signs and spaces */
    }
    unsigned long port = strtoul(text, ret_end, 10);
    *ret_port = (uint16_t)port;
    return port >= 1 && port <= UINT16_MAX;
}

/* "7000" or "7000-7015". */
static bool parse_ports(const char *text, uint16_t *ret_first, uint16_t *ret_last)
{
    char *end = NULL;
    if (!parse_port(text, &end, ret_first)) {
        return false;
    }
    *ret_last = *ret_first;
    return *end == '\0' || (*end == '-' && parse_port(end + 1, &end, ret_last) && *end == '\0' &&
                            *ret_first <= *ret_last);
}

/* Splits the text into host and ports; brackets around the host are optional and are removed. */
muster_status muster_address_parse_listen(const char *text,
                                          struct muster_socket_address *ret_address,
                                          uint16_t *ret_first, uint16_t *ret_last)
{
    char host[MUSTER_ADDRESS_SIZE];
    const char *ports = find_ports(text);
    uint16_t first = 0;
    uint16_t last = 0;
    if (ports != NULL && !parse_ports(ports + 1, &first, &last)) {
        return muster_error_set(MUSTER_INVALID, "a port is 1 to 65535, a range FIRST-LAST");
    }
    size_t length = ports != NULL ? (size_t)(ports - text) : strlen(text);
    size_t brackets = text[0] == '[' && length >= 2 && text[length - 1] == ']';
    if (length >= sizeof host) {
        return muster_error_set(MUSTER_INVALID, "longer than an address");
    }
    memcpy(host, text + brackets, length - 2 * brackets);
    host[length - 2 * brackets] = '\0';
    if (strcmp(host, "*") == 0) {
        memset(ret_address, 0, sizeof *ret_address);
    } else {
        TRY(muster_address_parse_host(host, ret_address));
    }
    *ret_first = first;
    *ret_last = last;
    return MUSTER_OK;
}

void muster_address_set_port(struct muster_socket_address *address, uint16_t port)
{
    /* The port is at the same place in both families. */
    struct sockaddr_in four;
    memcpy(&four, &address->storage, sizeof four);
    four.sin_port = htons(port);
    memcpy(&address->storage, &four, sizeof four);
}

muster_status muster_address_parse(const char *text, struct muster_socket_address *ret_address)
{
    static const char scheme[] = "tcp://";
    char host[MUSTER_ADDRESS_SIZE];
    const char *port = strrchr(text, ':');
    size_t skipped = sizeof scheme - 1;
    if (strncmp(text, scheme, skipped) != 0 || port == NULL || port < text + skipped ||
        strlen(text) >= sizeof host) {
        return muster_error_set(MUSTER_INVALID, "address \"%.100s\": not tcp://HOST:PORT", text);
    }
    const char *begin = text + skipped;
    size_t length = (size_t)(port - begin);
    if (length >= 2 && begin[0] == '[' && begin[length - 1] == ']') {
        begin++;
        length -= 2;
    }
    memcpy(host, begin, length);
    host[length] = '\0';
    return resolve(host, port + 1, ret_address);
}

void muster_address_print(const struct muster_socket_address *address,
                          char ret_text[MUSTER_ADDRESS_SIZE])
{
    muster_address_print_as("tcp", address, ret_text);
}

void muster_address_print_as(const char *scheme, const struct muster_socket_address *address,
                             char ret_text[MUSTER_ADDRESS_SIZE])
{
    bool six = address->storage.ss_family == AF_INET6;
    if (!six && address->storage.ss_family != AF_INET) {
        (void)snprintf(ret_text, MUSTER_ADDRESS_SIZE, "%s", scheme);
        return;
    }
    char host[96] = "?";
    char port[8] = "?";
    (void)getnameinfo((const struct sockaddr *)&address->storage, address->size, host, sizeof host,
                      port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    (void)snprintf(ret_text, MUSTER_ADDRESS_SIZE, "%s://%s%s%s:%s", scheme, six ? "[" : "", host,
                   six ? "]" : "", port);
}

bool muster_address_is_any(const struct muster_socket_address *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (address->storage.ss_family == AF_INET) {
        memcpy(&four, &address->storage, sizeof four);
        return four.sin_addr.s_addr == htonl(INADDR_ANY);
    }
    memcpy(&six, &address->storage, sizeof six);
    return IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr);
}

static bool same_host(const struct muster_socket_address *a, const struct muster_socket_address *b)
{
    char texts[2][MUSTER_ADDRESS_SIZE];
    muster_address_print(a, texts[0]);
    muster_address_print(b, texts[1]);
    size_t host = (size_t)(strrchr(texts[0], ':') - texts[0]);
    return strncmp(texts[0], texts[1], host + 1) == 0;
}

bool muster_address_within_host(int fd)
{
    struct muster_socket_address here = {.size = sizeof here.storage};
    struct muster_socket_address there = {.size = sizeof there.storage};
    return getsockname(fd, (struct sockaddr *)&here.storage, &here.size) == 0 &&
           getpeername(fd, (struct sockaddr *)&there.storage, &there.size) == 0 &&
           same_host(&here, &there);
}
