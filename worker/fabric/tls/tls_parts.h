/* What tls_context.c and tls_channel.c share. */
#ifndef MUSTER_WORKER_FABRIC_TLS_TLS_PARTS_H
#define MUSTER_WORKER_FABRIC_TLS_TLS_PARTS_H

#include "worker/fabric/tls/tls.h"

#include <openssl/ssl.h>
#include <sys/stat.h>

enum {
    TLS_RECORD_BYTES = 16384,      /* plain bytes of a full record (RFC 8446, section 5.1) */
    TLS_RECORD_ROOM = 16384 + 512, /* a full encrypted record, and a key update before it */
    TLS_OUT_BYTES = 8 * TLS_RECORD_ROOM,
};

enum { TLS_FILES = 3 };

/* Identifies one version of a file. */
struct muster_tls_stamp {
    dev_t device;
    ino_t inode;
    struct timespec changed;
};

struct muster_tls {
    uint32_t holders;
    uint64_t records_per_key; /* written, then the key is updated; fewer in tests */
    SSL_CTX *context;
    BIO_METHOD *socket;         /* reads and writes a channel's socket */
    char *names[TLS_FILES + 1]; /* owned: certificate, key, authority; DNS name or NULL */
    struct muster_tls_stamp stamps[TLS_FILES];
    unsigned char gather[TLS_RECORD_BYTES]; /* small parts that go into one record */
    unsigned char *spare; /* TLS_OUT_BYTES, or NULL: for the next channel that needs one */
};

/* tls_channel.c */
MUSTER_CHECKED muster_status muster_tls_make_socket_method(BIO_METHOD **ret_method);

#endif
