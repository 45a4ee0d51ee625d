/* Listens and accepts; and handles the events of a connection in each of its phases. */
#include "worker/base/cleanup.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Accepting ---------------------------------------------------------------------------------- */

bool muster_tcp_answer(struct muster_pending_connection *pending, enum muster_verdict verdict)
{
    unsigned char bytes[MUSTER_ANSWER_SIZE];
    muster_answer_encode(verdict, bytes);
    return muster_tcp_path_send_all((struct muster_tcp_path *)pending, bytes, sizeof bytes);
}

/* The peer dials one more connection of an open link. */
static void admit_further_path(struct muster_tcp_path *path, struct muster_link *link)
{
    struct muster_tcp_link *end = muster_bundle_open_end(&path->pending, link);
    bool fits = end != NULL && end->bundle != NULL &&
                end->opening.ticket == path->pending.hello.ticket &&
                end->path_count < MUSTER_CONNECTIONS_MAX;
    if (!muster_tcp_answer(&path->pending, fits ? MUSTER_WELCOME : MUSTER_REFUSED_CROSSED) ||
        !fits) {
        muster_tcp_path_close(path);
        return;
    }
    muster_tcp_add_path(path, end);
}

void muster_tcp_admit(struct muster_pending_connection *pending, struct muster_link *link)
{
    struct muster_tcp_path *path = (struct muster_tcp_path *)pending;
    if (pending->hello.index > 0) {
        admit_further_path(path, link);
        return;
    }
    if (!muster_pending_claim_link(pending, link)) {
        return;
    }
    struct muster_tcp_link *end = link->end;
    muster_tcp_attempts_close(end, NULL);
    if (!muster_tcp_answer(pending, MUSTER_WELCOME)) {
        muster_pending_answer_failed(pending, link);
        return;
    }
    end->opening.ticket = pending->hello.ticket;
    muster_tcp_open_link(path, end, pending->hello.connections);
}

static void read_hello(struct muster_tcp_path *path)
{
    if (muster_tcp_secure_accepted(path) == TCP_TLS_PENDING) {
        return;
    }
    int got = muster_tcp_read_greeting(path, MUSTER_HELLO_SIZE);
    if (got < 0) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_SILENT);
        return;
    }
    if (!muster_hello_begins(path->header, path->have)) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_GARBAGE);
        return;
    }
    if (got == 0) {
        return;
    }
    if (path->tcp->tls != NULL && path->tls == NULL) {
        muster_pending_refuse_with(&path->pending, MUSTER_REFUSED_TLS, MUSTER_REJECTED_PLAIN);
        return;
    }
    muster_pending_check_hello(&path->pending, path->header);
}

/* Handles an event according to the phase of the connection. An open connection is read at once;
 * bytes are sent later, when the leader progresses the link. */
void muster_tcp_path_ready(struct muster_watch *watch, uint32_t events)
{
    struct muster_tcp_path *path = (struct muster_tcp_path *)watch;
    switch (path->pending.phase) {
    case MUSTER_PHASE_DIALLING:
        muster_tcp_connected(path);
        return;
    case MUSTER_PHASE_GREETING:
        muster_tcp_read_answer(path);
        return;
    case MUSTER_PHASE_HELLO:
        read_hello(path);
        return;
    case MUSTER_PHASE_PARKED:
        muster_pending_refuse(
            &path->pending,
            MUSTER_REJECTED_SILENT); /* most likely the peer has closed the connection */
        return;
    case MUSTER_PHASE_PROVING:
    case MUSTER_PHASE_OPEN:
        break;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        (void)muster_tcp_receive(path);
    }
    if ((events & EPOLLOUT) != 0 && !watch->retired) {
        if (path->end->bundle != NULL) {
            muster_watch_change(path->tcp->pending_list.fabric, watch, EPOLLIN);
        }
        muster_link_mark(path->end->link);
    }
}

/* Listening ---------------------------------------------------------------------------------- */

/* Returns 0, or an error number. */
static int listen_at(int fd, struct muster_socket_address *address, uint16_t port)
{
    const int yes = 1;
    muster_address_set_port(address, port);
    if (address->storage.ss_family == AF_INET6) {
        /* IPv4 addresses have sockets of their own. */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    }
    if (port != 0) {
        /* Connections of an earlier process on that port may be in TIME_WAIT. */
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    }
    socklen_t size = sizeof address->storage;
    return bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0 &&
                   listen(fd, SOMAXCONN) == 0 &&
                   getsockname(fd, (struct sockaddr *)&address->storage, &size) == 0
               ? 0
               : errno;
}

/* Listens at the address, on the first free port of the range. */
static muster_status listen_within(struct muster_tcp *tcp,
                                   const struct muster_socket_address *address,
                                   const struct muster_tcp_ports *ports)
{
    struct muster_socket_address own = *address;
    AUTO_CLOSE_GUARDED int fd = MUSTER_GUARDED(
        socket(own.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "socket");
    }
    int error = EADDRINUSE;
    for (uint32_t port = ports->first; port <= ports->last && error == EADDRINUSE; port++) {
        error = listen_at(fd, &own, (uint16_t)port);
    }
    if (error != 0) {
        char text[MUSTER_ADDRESS_SIZE];
        muster_address_print(&own, text);
        return muster_error_set(
            MUSTER_INVALID, "%s: %s%s", text,
            error == EADDRINUSE && ports->last > ports->first ? "every port of the range: " : "",
            strerror(error));
    }
    TRY(muster_pending_connections_listen(&tcp->pending_list, TAKE_FD(fd)));
    tcp->listen_addresses[tcp->listen_count++] = own;
    return MUSTER_OK;
}

/* Fails only if listening fails at every address: a single address may not be ready yet, or have no
 * free port. */
static muster_status listen_everywhere(struct muster_tcp *tcp, const uint32_t *chosen,
                                       uint32_t count, const struct muster_tcp_ports *ports)
{
    muster_status status = MUSTER_OK;
    for (uint32_t i = 0; i < count; i++) {
        muster_status each = listen_within(tcp, &tcp->host_addresses.all[chosen[i]].address, ports);
        if (each != MUSTER_OK) {
            muster_log(MUSTER_LOG_INFO, "not listening at an address: %s", muster_last_error());
            status = each;
        }
    }
    return tcp->listen_count > 0 ? MUSTER_OK : status;
}

static muster_status listen_at_all(struct muster_tcp *tcp,
                                   const struct muster_tcp_settings *settings,
                                   const struct muster_tcp_ports *ports)
{
    uint32_t chosen[TCP_LISTEN_MAX];
    uint32_t count = 0;
    muster_status status = muster_addresses_choose(
        &tcp->host_addresses, settings->listen.interfaces, tcp->pending_list.fabric->first_address,
        TCP_LISTEN_MAX, chosen, &count);
    return status == MUSTER_OK ? listen_everywhere(tcp, chosen, count, ports)
                               : muster_error_prefix(status, "interface (MUSTER_INTERFACE)");
}

muster_status muster_tcp_listen(struct muster_tcp *tcp, const struct muster_tcp_settings *settings)
{
    struct muster_socket_address address;
    struct muster_tcp_ports ports;
    const char *where =
        muster_listen_at(&settings->listen, tcp->pending_list.fabric->first_address);
    TRY(muster_host_addresses_read(&tcp->host_addresses));
    muster_status status = muster_address_parse_listen(where, &address, &ports.first, &ports.last);
    if (status == MUSTER_OK && address.storage.ss_family == AF_UNSPEC) {
        return listen_at_all(tcp, settings, &ports);
    }
    if (status == MUSTER_OK && muster_address_is_any(&address)) {
        status = muster_error_set(MUSTER_INVALID,
                                  "peers need a real address; \"*\" is all of this host's");
    } else if (status == MUSTER_OK) {
        status = listen_within(tcp, &address, &ports);
    }
    return status == MUSTER_OK
               ? MUSTER_OK
               : muster_error_prefix(status, "listen (MUSTER_LISTEN) \"%.100s\"", where);
}
