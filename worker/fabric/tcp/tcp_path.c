/* The record of a connection: create, close, socket options, and its bytes with or without TLS. */
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

enum { JOINED_BYTES = 2048 }; /* of small frames that are sent in one piece */

static void free_path(struct muster_watch *watch)
{
    struct muster_tcp_path *path = (struct muster_tcp_path *)watch;
    for (uint32_t i = 0; i < path->frame_count; i++) {
        free(path->frames[i].copy);
    }
    free(path->control.bytes);
    free(path->acknowledged_rest.copy);
    free(path->arriving);
    muster_tls_channel_destroy(path->tls);
    free(path);
}

static void leave_attempts(struct muster_tcp_dialling *dialling, const struct muster_tcp_path *path)
{
    for (uint32_t i = 0; i < dialling->attempt_count; i++) {
        if (dialling->attempts[i] == path) {
            dialling->attempts[i] = dialling->attempts[--dialling->attempt_count];
            return;
        }
    }
}

static void leave_paths(struct muster_tcp_link *end, const struct muster_tcp_path *path)
{
    if (end->paths[path->place] != path) {
        return;
    }
    end->paths[path->place] = NULL;
    end->path_count--;
    end->path = NULL;
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX && end->path == NULL; i++) {
        end->path = end->paths[i];
    }
}

static void leave_link(struct muster_tcp_path *path)
{
    struct muster_tcp_link *end = path->end;
    path->end = NULL;
    leave_paths(end, path);
    leave_attempts(&end->dialling, path);
}

void muster_tcp_path_close(struct muster_tcp_path *path)
{
    muster_pending_remove(&path->pending);
    muster_arrival_finish(&path->in);
    if (path->end != NULL) {
        leave_link(path);
    }
    muster_watch_retire(path->tcp->pending_list.fabric, &path->pending.watch);
}

void muster_tcp_paths_close(struct muster_tcp_link *end)
{
    struct muster_pending_connection *pending = NULL;
    struct muster_pending_connection *next = NULL;
    DL_FOREACH_SAFE(end->tcp->pending_list.list, pending, next)
    {
        struct muster_tcp_path *path = (struct muster_tcp_path *)pending;
        if (path->end == end) {
            muster_tcp_path_close(path);
        }
    }
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        if (end->paths[i] != NULL) {
            muster_tcp_path_close(end->paths[i]);
        }
    }
}

void muster_tcp_attempts_close(struct muster_tcp_link *end, const struct muster_tcp_path *except)
{
    struct muster_tcp_dialling *dialling = &end->dialling;
    dialling->next = dialling->count;
    dialling->awaiting_peer = false;
    for (uint32_t i = dialling->attempt_count; i > 0; i--) {
        if (dialling->attempts[i - 1] != except) {
            muster_tcp_path_close(dialling->attempts[i - 1]);
        }
    }
}

/* Bytes -------------------------------------------------------------------------------------- */

/* Joins parts that are small. Returns their bytes; 0: they do not fit. */
static size_t join(const struct iovec *parts, int count, unsigned char ret_bytes[JOINED_BYTES])
{
    size_t size = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > JOINED_BYTES - size) {
            return 0;
        }
        memcpy(ret_bytes + size, parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    return size;
}

/* For small frames a copy costs less than what the kernel does for a list of parts. */
ssize_t muster_tcp_path_send(struct muster_tcp_path *path, struct iovec *parts, int count)
{
    unsigned char joined[JOINED_BYTES];
    if (path->tls != NULL) {
        return muster_tls_send(path->tls, parts, count);
    }
    size_t size = join(parts, count, joined);
    if (size > 0) {
        return send(path->pending.watch.fd, joined, size, MSG_NOSIGNAL);
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    return sendmsg(path->pending.watch.fd, &message, MSG_NOSIGNAL);
}

bool muster_tcp_path_send_all(struct muster_tcp_path *path, const unsigned char *bytes, size_t size)
{
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = size}; /* only read */
    return muster_tcp_path_send(path, &part, 1) == (ssize_t)size;
}

ssize_t muster_tcp_path_receive(struct muster_tcp_path *path, const struct iovec *parts, int count,
                                bool buffered_only)
{
    if (path->tls != NULL) {
        return muster_tls_receive(path->tls, parts, count, buffered_only);
    }
    return count == 1 ? recv(path->pending.watch.fd, parts[0].iov_base, parts[0].iov_len, 0)
                      : readv(path->pending.watch.fd, parts, count);
}

const char *muster_tcp_path_error(const struct muster_tcp_path *path, int error)
{
    return path->tls != NULL && error == EPROTO ? muster_tls_reason(path->tls) : strerror(error);
}

void muster_tcp_path_shutdown(struct muster_tcp_path *path)
{
    if (path->tls != NULL) {
        muster_tls_shutdown(path->tls);
    }
    (void)shutdown(path->pending.watch.fd,
                   SHUT_WR); /* fails if the peer is gone: reading reports that */
}

void muster_tcp_path_watch(struct muster_tcp_path *path, bool room)
{
    bool out = room || muster_tls_has_backlog(path->tls);
    muster_watch_change(path->tcp->pending_list.fabric, &path->pending.watch,
                        out ? EPOLLIN | EPOLLOUT : (uint32_t)EPOLLIN);
}

/* Create ------------------------------------------------------------------------------------- */

static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},  {IPPROTO_TCP, TCP_USER_TIMEOUT, TCP_SILENCE_MS},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        /* Optional: the link also works without one of them, less well. */
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
    }
}

void muster_tcp_limit_send_buffer(int fd)
{
    const int size = TCP_LOCAL_SEND_BYTES;
    if (muster_address_within_host(fd)) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* optional: faster */
    }
}

/* TCP_USER_TIMEOUT would also end the connection to a peer that computes with a full receive
 * buffer, although its kernel answers every probe. */
void muster_tcp_disable_user_timeout(int fd)
{
    const int none = 0;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

struct muster_tcp_path *muster_tcp_path_create(struct muster_tcp *tcp, int fd,
                                               enum muster_phase phase, uint32_t events)
{
    const struct muster_watch watch = {.fd = fd, .events = events, .free = free_path};
    struct muster_tcp_path *path =
        muster_pending_create(&tcp->pending_list, sizeof *path, phase, &watch);
    if (path != NULL) {
        path->tcp = tcp;
        path->in.piece = tcp->piece;
        set_options(fd);
    }
    return path;
}
