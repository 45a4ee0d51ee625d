/*
 * TLS for TCP connections of the fabric: TLS 1.3, and both ends show a certificate that the
 * authority has signed. tls_context.c reads the files, tls_channel.c handles one connection; both
 * use OpenSSL. tls_absent.c replaces them in a build without OpenSSL.
 *
 * A channel sends and receives plain bytes like sendmsg() and readv(), and never blocks. Encrypted
 * bytes that the kernel has not accepted yet are the channel's backlog. While there is a backlog,
 * the channel accepts no more bytes, so it holds TLS_OUT_BYTES at most.
 *
 * Threads: one at a time: the leader, also without the fabric's lock, or a thread for which the
 * leader pauses (muster_fabric_quiesce()).
 */
#ifndef MUSTER_WORKER_FABRIC_TLS_TLS_H
#define MUSTER_WORKER_FABRIC_TLS_TLS_H

#include "worker/fabric/fabric.h"

#include <sys/uio.h>

/* PEM files. All three or none; without them links are not encrypted. */
struct muster_tls_files {
    const char *certificate; /* this member's certificate, and its chain up to the authority */
    const char *key;         /* of the certificate */
    const char *authority;   /* certificates, one of which must have signed those of the peers */
    const char *name;        /* DNS name that the peers' certificates must contain; NULL: any */
};

struct muster_tls; /* shared by all channels of a fabric; counted */
struct muster_tls_channel;

/* Reads and checks the files; the caller holds the result. MUSTER_INVALID: the text names the file
 * and what is wrong with it. */
MUSTER_CHECKED muster_status muster_tls_create(const struct muster_tls_files *files,
                                               struct muster_tls **ret_tls);
/* Accept NULL. */
void muster_tls_hold(struct muster_tls *tls);
void muster_tls_release(struct muster_tls *tls);

/* If the files have changed, replaces *tls by one made from the new files, for channels created
 * from now on. If the new files are wrong, logs that once and keeps *tls. Accepts NULL in *tls. */
void muster_tls_reload(struct muster_tls **tls);

/* Whether a connection that begins with this byte begins with a TLS handshake. */
bool muster_tls_is_handshake(unsigned char first_byte);

/* The descriptor, non-blocking, is borrowed. NULL: out of memory. */
struct muster_tls_channel *muster_tls_channel_create(struct muster_tls *tls, int fd, bool dialling);
/* Accepts NULL. Sends nothing to the peer. */
void muster_tls_channel_destroy(struct muster_tls_channel *channel);

/* Continues the handshake. MUSTER_OK: done; MUSTER_RETRY: bytes of the peer are missing, or there
 * is a backlog; MUSTER_INVALID: failed, see muster_tls_reason(). */
MUSTER_CHECKED muster_status muster_tls_handshake(struct muster_tls_channel *channel);

/* Returns how many bytes it has accepted, 0 or more; or -1 and errno: EAGAIN, or the connection has
 * failed. Without parts it only writes the backlog. */
ssize_t muster_tls_send(struct muster_tls_channel *channel, const struct iovec *parts, int count);
/* Whether the kernel has not accepted all encrypted bytes. Accepts NULL. */
bool muster_tls_has_backlog(const struct muster_tls_channel *channel);

/* Like readv(): 0 if the peer has closed the connection by close_notify; -1 and errno: EAGAIN, or
 * EPROTO, see muster_tls_reason(). buffered_only: the socket is not read, only what was read from
 * it before. */
ssize_t muster_tls_receive(struct muster_tls_channel *channel, const struct iovec *parts, int count,
                           bool buffered_only);
/* Whether there is something to receive that epoll does not report, because it was already read
 * from the socket. Accepts NULL. */
bool muster_tls_has_buffered(const struct muster_tls_channel *channel);

/* Sends close_notify. Best effort. */
void muster_tls_shutdown(struct muster_tls_channel *channel);

/* The failure: "its certificate is refused: certificate has expired". */
const char *muster_tls_reason(const struct muster_tls_channel *channel);
/* Whether the connection failed below TLS, by the peer or the network: a retry may succeed. */
bool muster_tls_is_disconnected(const struct muster_tls_channel *channel);

#endif
