/* Addresses as text, and the socket of one. */
#include "rendezvous/http/listen.h"

#include "worker/base/cleanup.h"
#include "worker/base/keepalive.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct listen_address {
    char host[256]; /* "": every address */
    char port[8];
};

static muster_status split_address(const char *address, struct listen_address *ret_split)
{
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : 0;
    bool bracketed = length >= 2 && address[0] == '[' && address[length - 1] == ']';
    const char *host = bracketed ? address + 1 : address;
    length -= bracketed ? 2 : 0;
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    if (colon == NULL || digits == 0 || colon[1 + digits] != '\0' ||
        length >= sizeof ret_split->host || (!bracketed && memchr(host, ':', length) != NULL) ||
        strtoul(colon + 1, NULL, 10) > 65535) {
        return muster_error_set(MUSTER_INVALID,
                                "listen address \"%s\": use ADDRESS:PORT or [IPv6]:PORT", address);
    }
    memcpy(ret_split->host, host, length);
    ret_split->host[length] = '\0';
    (void)snprintf(ret_split->port, sizeof ret_split->port, "%lu", strtoul(colon + 1, NULL, 10));
    return MUSTER_OK;
}

/* -1 with errno: it cannot listen there. */
static int open_one(const struct addrinfo *info)
{
    const int on = 1;
    AUTO_CLOSE int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    (void)muster_keepalive_set(fd); /* connections inherit it: a host that is gone is noticed */
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, MUSTER_LISTEN_BACKLOG) != 0) {
        return -1;
    }
    return TAKE_FD(fd);
}

/* A name may have several addresses: the first that can be listened on counts. */
muster_status muster_listen_open(const char *address, int *ret_fd)
{
    struct listen_address split = {0};
    TRY(split_address(address, &split));
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *infos = NULL;
    int failed = getaddrinfo(split.host[0] != '\0' ? split.host : NULL, split.port, &hints, &infos);
    if (failed != 0) {
        return muster_error_set(MUSTER_INVALID, "listen address \"%s\": %s", address,
                                gai_strerror(failed));
    }
    int fd = -1;
    for (const struct addrinfo *info = infos; info != NULL && fd < 0; info = info->ai_next) {
        fd = open_one(info);
    }
    int why = errno;
    freeaddrinfo(infos);
    if (fd < 0) {
        errno = why;
        return muster_error_errno(MUSTER_INVALID, "cannot listen on %s", address);
    }
    *ret_fd = fd;
    return MUSTER_OK;
}

muster_status muster_listen_describe(int fd, char ret_address[MUSTER_LISTEN_ADDRESS_SIZE],
                                     uint16_t *ret_port)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char host[64];
    char port[8];
    if (getsockname(fd, (struct sockaddr *)&bound, &size) != 0) {
        return muster_error_errno(MUSTER_FATAL, "cannot read the listening address");
    }
    int failed = getnameinfo((struct sockaddr *)&bound, size, host, sizeof host, port, sizeof port,
                             NI_NUMERICHOST | NI_NUMERICSERV);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot read the listening address: %s",
                                gai_strerror(failed));
    }
    (void)snprintf(ret_address, MUSTER_LISTEN_ADDRESS_SIZE,
                   bound.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    *ret_port = (uint16_t)strtoul(port, NULL, 10);
    return MUSTER_OK;
}

bool muster_listen_is_local(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &size) != 0) {
        return false;
    }
    if (bound.ss_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)&bound)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return bound.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&bound)->sin6_addr);
}

muster_status muster_listen_write_port(const char *path, uint16_t port)
{
    char draft[PATH_MAX];
    int length = snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof draft) {
        return muster_error_set(MUSTER_INVALID, "port file: its path is too long");
    }
    FILE *file = fopen(draft, "we");
    if (file == NULL) {
        return muster_error_errno(MUSTER_INVALID, "port file %s", path);
    }
    bool written = fprintf(file, "%u\n", port) > 0;
    written = fclose(file) == 0 && written;
    if (!written || rename(draft, path) != 0) {
        muster_status status = muster_error_errno(MUSTER_INVALID, "port file %s", path);
        (void)unlink(draft);
        return status;
    }
    return MUSTER_OK;
}
