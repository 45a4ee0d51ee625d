/* The TLS handshake of a connection before its hello. The peer's first byte shows whether it uses
 * TLS. A member that refuses the other mode answers in plain text, which is only an error message.
 */
#include "worker/base/clock.h"
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <sys/socket.h>

enum { DRAIN_BYTES = 64 * 1024 };

/* Reads the peer's first byte and leaves it in the socket. 1: read; 0: not there yet; -1: the
 * connection has ended. */
static int peek_first_byte(struct muster_tcp_path *path, unsigned char *ret_first)
{
    ssize_t got = recv(path->pending.watch.fd, ret_first, 1, MSG_PEEK);
    path->first_byte_seen = got == 1;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return got == 1 ? 1 : -1;
}

/* Releases the lock for the handshake: public-key operations take long, and other threads may post
 * meanwhile. */
static enum muster_tcp_tls_state continue_handshake(struct muster_tcp_path *path)
{
    struct muster_fabric *fabric = path->tcp->pending_list.fabric;
    muster_fabric_yield(fabric);
    if (path->pending.watch.retired) {
        return TCP_TLS_PENDING;
    }
    muster_fabric_unlock(fabric);
    muster_status status = muster_tls_handshake(path->tls);
    muster_fabric_lock(fabric);
    if (path->pending.watch.retired) {
        return TCP_TLS_PENDING;
    }
    path->tls_ready = status == MUSTER_OK;
    muster_tcp_path_watch(path, false);
    return path->tls_ready          ? TCP_TLS_READY
           : status == MUSTER_RETRY ? TCP_TLS_PENDING
                                    : TCP_TLS_FAILED;
}

static bool create_channel(struct muster_tcp_path *path, bool dialling)
{
    path->tls = muster_tls_channel_create(path->tcp->tls, path->pending.watch.fd, dialling);
    return path->tls != NULL;
}

/* First reads what has arrived: the kernel resets a connection that is closed with unread bytes,
 * and the peer could lose the answer. */
static void refuse_tls(struct muster_tcp_path *path)
{
    (void)recv(path->pending.watch.fd, NULL, DRAIN_BYTES, MSG_TRUNC);
    muster_pending_refuse_with(&path->pending, MUSTER_REFUSED_PLAIN, MUSTER_REJECTED_TLS);
}

static enum muster_tcp_tls_state begin_accepted(struct muster_tcp_path *path)
{
    unsigned char first = 0;
    int peeked = peek_first_byte(path, &first);
    if (peeked <= 0) {
        return peeked == 0 ? TCP_TLS_PENDING : TCP_TLS_PLAIN; /* reading reports how it ended */
    }
    if (!muster_tls_is_handshake(first)) {
        return TCP_TLS_PLAIN;
    }
    if (path->tcp->tls == NULL) {
        refuse_tls(path);
        return TCP_TLS_PENDING;
    }
    if (!create_channel(path, false)) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_TOO_MANY);
        return TCP_TLS_PENDING;
    }
    return TCP_TLS_READY;
}

/* The first byte decides between TLS and plain text, once; then the handshake continues until it is
 * complete. TCP_TLS_PENDING is returned also when the path has been refused and closed. */
enum muster_tcp_tls_state muster_tcp_secure_accepted(struct muster_tcp_path *path)
{
    if (path->tls_ready) {
        return TCP_TLS_READY;
    }
    if (!path->first_byte_seen) {
        enum muster_tcp_tls_state begun = begin_accepted(path);
        if (begun != TCP_TLS_READY) {
            return begun;
        }
    }
    if (path->tls == NULL) {
        return TCP_TLS_PLAIN;
    }
    enum muster_tcp_tls_state state = continue_handshake(path);
    if (state == TCP_TLS_FAILED) {
        muster_pending_refuse_because(&path->pending,
                                      muster_tls_is_disconnected(path->tls)
                                          ? MUSTER_REJECTED_SILENT
                                          : MUSTER_REJECTED_HANDSHAKE,
                                      muster_tls_reason(path->tls));
        return TCP_TLS_PENDING;
    }
    return state;
}

enum muster_tcp_tls_state muster_tcp_secure_dialled(struct muster_tcp_path *path)
{
    unsigned char first = 0;
    if (path->tcp->tls == NULL) {
        return TCP_TLS_PLAIN;
    }
    if (path->tls == NULL) {
        path->pending.deadline_ns = MUSTER_NEVER; /* a peer that computes answers later */
        if (!create_channel(path, true)) {
            errno = ENOMEM;
            return TCP_TLS_FAILED;
        }
    } else if (!path->first_byte_seen && peek_first_byte(path, &first) > 0 &&
               muster_answer_begins(first)) {
        return TCP_TLS_PLAIN;
    }
    return continue_handshake(path);
}
