/* Listens for links over RDMA: one TCP address for each device. */
#include "worker/base/cleanup.h"
#include "worker/base/fork_guard.h"
#include "worker/fabric/address/host_addresses.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* "verbs://10.0.0.1:4000" is "tcp://10.0.0.1:4000" with another scheme. */
void muster_verbs_print_address(const struct muster_socket_address *address,
                                char ret_text[MUSTER_ADDRESS_SIZE])
{
    char text[MUSTER_ADDRESS_SIZE];
    muster_address_print(address, text);
    (void)snprintf(ret_text, MUSTER_ADDRESS_SIZE, "%s%.*s", VERBS_SCHEME, MUSTER_ADDRESS_SIZE - 8,
                   text + strlen("tcp"));
}

muster_status muster_verbs_parse_address(const char *published,
                                         struct muster_socket_address *ret_address)
{
    char text[MUSTER_ADDRESS_SIZE];
    (void)snprintf(text, sizeof text, "tcp%.120s", published + strlen(VERBS_SCHEME));
    return muster_address_parse(text, ret_address);
}

uint32_t muster_verbs_addresses(const void *transport, uint32_t most,
                                char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    const struct muster_verbs *verbs = transport;
    uint32_t count = verbs->device_count < most ? verbs->device_count : most;
    for (uint32_t i = 0; i < count; i++) {
        muster_verbs_print_address(&verbs->own[i], ret_addresses[i]);
    }
    return count;
}

/* The IP address of the device, if its GID is one: a peer that reaches it can reach the device.
 */
static bool address_of_gid(const struct muster_verbs_gid *gid,
                           struct muster_socket_address *ret_address)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    memset(ret_address, 0, sizeof *ret_address);
    if (gid->type == MUSTER_VERBS_INFINIBAND || muster_verbs_gid_is_link_local(gid)) {
        return false;
    }
    if (muster_verbs_gid_is_ipv4(gid)) {
        memcpy(&four.sin_addr, gid->bytes + 12, sizeof four.sin_addr);
        memcpy(&ret_address->storage, &four, sizeof four);
        ret_address->size = sizeof four;
    } else {
        memcpy(&six.sin6_addr, gid->bytes, sizeof six.sin6_addr);
        memcpy(&ret_address->storage, &six, sizeof six);
        ret_address->size = sizeof six;
    }
    return true;
}

/* A range; 0: any. */
struct port_range {
    uint16_t first, last;
};

/* The address at which a device listens: its own, or else the one that MUSTER_LISTEN or the host's
 * interfaces give. */
static muster_status choose_address(const struct muster_verbs *verbs,
                                    const struct muster_verbs_device *device,
                                    const struct muster_verbs_settings *settings,
                                    struct muster_socket_address *ret_address,
                                    struct port_range *ret_ports)
{
    const char *first = verbs->pending_list.fabric->first_address;
    struct muster_socket_address listening = {0};
    TRY(muster_address_parse_listen(muster_listen_at(&settings->listen, first), &listening,
                                    &ret_ports->first, &ret_ports->last));
    if (address_of_gid(&device->gid, ret_address)) {
        return MUSTER_OK;
    }
    if (listening.size > 0) {
        *ret_address = listening;
        return MUSTER_OK;
    }
    AUTO_FREE struct muster_host_addresses *here = calloc(1, sizeof *here);
    uint32_t chosen = 0;
    uint32_t count = 0;
    if (here == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    TRY(muster_host_addresses_read(here));
    TRY(muster_addresses_choose(here, settings->listen.interfaces, first, 1, &chosen, &count));
    *ret_address = here->all[chosen].address;
    return MUSTER_OK;
}

/* Takes the last free port of a range, since TCP takes the first. */
static muster_status bind_within(int fd, struct muster_socket_address *address, uint16_t first,
                                 uint16_t last)
{
    if (first != 0 && first == last) {
        return muster_error_set(MUSTER_INVALID,
                                "listen (MUSTER_LISTEN) has one port, which TCP takes: RDMA needs "
                                "another one");
    }
    for (uint32_t port = last; first == 0 || port > first; port--) {
        muster_address_set_port(address, (uint16_t)port);
        if (bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0) {
            return MUSTER_OK;
        }
        if (errno != EADDRINUSE || first == 0) {
            break;
        }
    }
    char text[MUSTER_ADDRESS_SIZE];
    muster_verbs_print_address(address, text);
    return muster_error_errno(MUSTER_INVALID, "%s", text);
}

static muster_status listen_at(struct muster_verbs *verbs, uint32_t index,
                               const struct muster_verbs_settings *settings)
{
    struct muster_socket_address *own = &verbs->own[index];
    struct port_range ports = {0, 0};
    const int yes = 1;
    TRY(choose_address(verbs, &verbs->devices[index], settings, own, &ports));
    AUTO_CLOSE_GUARDED int fd = MUSTER_GUARDED(
        socket(own->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "socket");
    }
    if (ports.first != 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    }
    TRY(bind_within(fd, own, ports.first, ports.last));
    own->size = sizeof own->storage;
    if (listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&own->storage, &own->size) != 0) {
        return muster_error_errno(MUSTER_FATAL, "listen");
    }
    return muster_pending_connections_listen(&verbs->pending_list, TAKE_FD(fd));
}

muster_status muster_verbs_listen(struct muster_verbs *verbs,
                                  const struct muster_verbs_settings *settings)
{
    for (uint32_t i = 0; i < verbs->device_count; i++) {
        TRY(listen_at(verbs, i, settings));
    }
    return MUSTER_OK;
}
