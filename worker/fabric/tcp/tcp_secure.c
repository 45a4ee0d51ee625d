/* TLS before a connection is open. The peer's first byte tells whether it speaks TLS; members that
 * do not agree on that tell each other so in plain text, which nobody else relies on. */
#include "worker/base/clock.h"
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <sys/socket.h>

enum { DRAIN_BYTES = 64 * 1024 };

/* Looks at the peer's first byte and leaves it there. 1: it is there; 0: not yet; -1: never. */
static int hear(struct tcp_path *path, unsigned char *ret_first)
{
    ssize_t got = recv(path->pending.watch.fd, ret_first, 1, MSG_PEEK);
    path->heard = got == 1;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return got == 1 ? 1 : -1;
}

/* Public keys take a while, so others may post meanwhile. */
static enum muster_tcp_secured shake_hands(struct tcp_path *path)
{
    struct muster_fabric *fabric = path->tcp->pending_list.fabric;
    muster_fabric_yield(fabric);
    if (path->pending.watch.retired) {
        return TCP_UNSECURED;
    }
    muster_fabric_unlock(fabric);
    muster_status status = muster_tls_handshake(path->tls);
    muster_fabric_lock(fabric);
    if (path->pending.watch.retired) {
        return TCP_UNSECURED;
    }
    path->secured = status == MUSTER_OK;
    muster_tcp_path_watch(path, false);
    return path->secured ? TCP_SECURED : status == MUSTER_RETRY ? TCP_UNSECURED : TCP_BROKEN;
}

static bool begin(struct tcp_path *path, bool dialling)
{
    path->tls = muster_tls_channel_create(path->tcp->tls, path->pending.watch.fd, dialling);
    return path->tls != NULL;
}

/* What was not read would have the kernel reset the connection, and our answer might be lost. */
static void refuse_tls(struct tcp_path *path)
{
    (void)recv(path->pending.watch.fd, NULL, DRAIN_BYTES, MSG_TRUNC);
    muster_pending_turn_away(&path->pending, MUSTER_REFUSED_PLAIN, MUSTER_REJECTED_TLS);
}

static enum muster_tcp_secured hear_accepted(struct tcp_path *path)
{
    unsigned char first = 0;
    int heard = hear(path, &first);
    if (heard <= 0) {
        return heard == 0 ? TCP_UNSECURED : TCP_INSECURE; /* reading says how it ended */
    }
    if (!muster_tls_is_handshake(first)) {
        return TCP_INSECURE;
    }
    if (path->tcp->tls == NULL) {
        refuse_tls(path);
        return TCP_UNSECURED;
    }
    if (!begin(path, false)) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_PUSHED);
        return TCP_UNSECURED;
    }
    return TCP_SECURED;
}

enum muster_tcp_secured muster_tcp_secure_accepted(struct tcp_path *path)
{
    if (path->secured) {
        return TCP_SECURED;
    }
    if (!path->heard) {
        enum muster_tcp_secured heard = hear_accepted(path);
        if (heard != TCP_SECURED) {
            return heard;
        }
    }
    if (path->tls == NULL) {
        return TCP_INSECURE;
    }
    enum muster_tcp_secured secured = shake_hands(path);
    if (secured == TCP_BROKEN) {
        muster_pending_refuse_because(&path->pending,
                                      muster_tls_is_disconnected(path->tls)
                                          ? MUSTER_REJECTED_SILENT
                                          : MUSTER_REJECTED_HANDSHAKE,
                                      muster_tls_reason(path->tls));
        return TCP_UNSECURED;
    }
    return secured;
}

enum muster_tcp_secured muster_tcp_secure_dialled(struct tcp_path *path)
{
    unsigned char first = 0;
    if (path->tcp->tls == NULL) {
        return TCP_INSECURE;
    }
    if (path->tls == NULL) {
        path->pending.deadline_ns = MUSTER_NEVER; /* the peer answers when it looks */
        if (!begin(path, true)) {
            errno = ENOMEM;
            return TCP_BROKEN;
        }
    } else if (!path->heard && hear(path, &first) > 0 && muster_answer_begins(first)) {
        return TCP_INSECURE;
    }
    return shake_hands(path);
}
