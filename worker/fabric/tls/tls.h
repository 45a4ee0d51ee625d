/*
 * TLS for connections of the fabric: TLS 1.3, and both ends show a certificate that the authority
 * has signed. tls_context.c reads the files, tls_channel.c speaks on one connection; both by
 * OpenSSL. Where Muster is built without it, tls_absent.c says so.
 *
 * A channel takes and gives plain bytes like sendmsg() and readv(), and never blocks. What it has
 * encrypted and the kernel has not taken yet is its backlog; while there is some, it takes nothing
 * more, so that a channel holds TLS_OUT_BYTES at most.
 *
 * Threads: one at a time: the leader, also without the fabric's lock, or who has made it settle.
 */
#ifndef MUSTER_WORKER_FABRIC_TLS_TLS_H
#define MUSTER_WORKER_FABRIC_TLS_TLS_H

#include "worker/fabric/fabric.h"

#include <sys/uio.h>

/* PEM files. All three or none: without them links are not encrypted. */
struct muster_tls_files {
    const char *certificate; /* this member's, and what leads from it to the authority */
    const char *key;         /* that belongs to it */
    const char *authority;   /* who has to have signed the peers' certificates: one or more */
    const char *name;        /* DNS name that the peers' certificates have to carry; NULL: any */
};

struct muster_tls; /* what all channels of a fabric have in common; counted */
struct muster_tls_channel;

/* Reads and checks the files. MUSTER_INVALID names the file and says what is wrong with it. The
 * caller holds it. */
MUSTER_CHECKED muster_status muster_tls_create(const struct muster_tls_files *files,
                                               struct muster_tls **ret_tls);
/* Accept NULL. */
void muster_tls_hold(struct muster_tls *tls);
void muster_tls_release(struct muster_tls *tls);

/* Looks whether the files are others than those it was made of, and makes a new one of those, with
 * which channels begin from now on. If they are no good it says so in the log, once, and stays with
 * the old. Takes NULL, and leaves it. */
void muster_tls_renew(struct muster_tls **tls);

/* False if the bytes at the beginning of a connection are not TLS's. */
bool muster_tls_begins(unsigned char first_byte);

/* The descriptor, non-blocking, is borrowed. NULL if memory is out. */
struct muster_tls_channel *muster_tls_channel_create(struct muster_tls *tls, int fd, bool dialling);
/* Accepts NULL. Says nothing to the peer. */
void muster_tls_channel_destroy(struct muster_tls_channel *channel);

/* Goes on with the handshake. MUSTER_OK: done; MUSTER_RETRY: the peer has to say something first,
 * or the backlog has to go; MUSTER_INVALID: failed, see muster_tls_reason(). */
MUSTER_CHECKED muster_status muster_tls_handshake(struct muster_tls_channel *channel);

/* How many of the bytes it has taken, 0 or more; -1 and errno: EAGAIN, or the connection is
 * useless. Without parts only the backlog goes out. */
ssize_t muster_tls_send(struct muster_tls_channel *channel, const struct iovec *parts, int count);
/* Accepts NULL: true if encrypted bytes wait for the kernel to take them. */
bool muster_tls_has_backlog(const struct muster_tls_channel *channel);

/* As readv(): 0 where the peer has ended the connection by TLS's rules, -1 and errno: EAGAIN, or
 * EPROTO, and muster_tls_reason() says why. held: only of what was read from the socket before. */
ssize_t muster_tls_receive(struct muster_tls_channel *channel, const struct iovec *parts, int count,
                           bool held);
/* Accepts NULL: true if there is something to receive that the socket no longer tells of. */
bool muster_tls_holds(const struct muster_tls_channel *channel);

/* Tells the peer that nothing more comes. Best effort. */
void muster_tls_end(struct muster_tls_channel *channel);

/* Why it failed: "its certificate is refused: certificate has expired". */
const char *muster_tls_reason(const struct muster_tls_channel *channel);
/* True if it failed because the peer or the network has cut the connection, and not by TLS: to try
 * again may help. */
bool muster_tls_is_cut(const struct muster_tls_channel *channel);

#endif
