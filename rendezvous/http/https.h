/*
 * The certificate that the server shows, and whose certificates it asks for. Both are read again
 * while the server runs: a handshake that has begun keeps what it began with.
 *
 * One in a process: GnuTLS gives its callbacks no argument of ours. Locks: its own, a leaf.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_HTTPS_H
#define MUSTER_RENDEZVOUS_HTTP_HTTPS_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct muster_https_files {
    const char *certificate, *key; /* PEM; the certificate first, then those that lead to a root */
    const char *client_authority;  /* PEM; NULL: callers need no certificate */
};

struct muster_https;

/* Reads and checks the files, whose names are borrowed until destroy. MUSTER_INVALID names the
 * file: missing, no PEM, expired, of another key. */
MUSTER_CHECKED muster_status muster_https_create(const struct muster_https_files *files,
                                                 struct muster_https **ret_https);
/* The server has ended. Accepts NULL. */
void muster_https_destroy(struct muster_https *https);

/* Whether a file is another one than at the last create, reload or call of this. */
bool muster_https_changed(struct muster_https *https);
/* Reads the files again. If that fails, all stays as it is. */
MUSTER_CHECKED muster_status muster_https_reload(struct muster_https *https);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK2. */
void *muster_https_callback(void);

/* session: gnutls_session_t, before its handshake. One whose client names the protocols that it
 * speaks (ALPN), and HTTP/1.1 not among them, ends with the alert no_application_protocol. */
void muster_https_require_http1(void *session);
/* How many there were. */
uint64_t muster_https_count_http2_only(const struct muster_https *https);

#endif
