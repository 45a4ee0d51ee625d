/*
 * The first bytes on a connection. The dialler's hello has its generation and rank, its UUID, the
 * UUID of the member it dials, and the job's link token; the acceptor's answer is a verdict.
 * README.md has the tables.
 *
 * Both have the wire version (fabric.h) at a place that is the same in all versions, and so are the
 * sizes. So a peer of another version is refused, and each of the two names both versions: the
 * acceptor in its log, the dialler in the reason for which the link is lost.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_HELLO_H
#define MUSTER_WORKER_FABRIC_WIRE_HELLO_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

enum {
    MUSTER_HELLO_SIZE = 232,
    MUSTER_ANSWER_SIZE = 16,
    MUSTER_HELLO_RANKS_MAX = 1 << 24, /* 3 bytes */
};

struct muster_hello {
    uint64_t generation; /* the dialler's */
    uint32_t rank;       /* its rank in it, less than MUSTER_HELLO_RANKS_MAX */
    char from[MUSTER_UUID_SIZE];
    char to[MUSTER_UUID_SIZE];
    char token[MUSTER_TOKEN_SIZE];
    uint32_t ticket;     /* the same in all connections of one opening of a link; 0: none */
    uint8_t index;       /* of this connection, at most 15; number 0 opens the link */
    uint8_t connections; /* that the link is to have, 1 to 16 */
};

/* Append only. */
enum muster_verdict {
    MUSTER_WELCOME = 1,
    MUSTER_REFUSED_VERSION = 2,
    MUSTER_REFUSED_TOKEN = 3,
    MUSTER_REFUSED_UNKNOWN = 4, /* the dialler is no member here, or dialled another member */
    MUSTER_REFUSED_CROSSED = 5, /* both members have dialled, and the other connection is used */
    MUSTER_REFUSED_LOST = 6,    /* the link was lost in this generation */
    MUSTER_REFUSED_MEMORY = 7,  /* not over shared memory: the next transport is to be tried */
    MUSTER_REFUSED_TLS = 8,     /* the dialler has no TLS, the acceptor uses it */
    MUSTER_REFUSED_PLAIN = 9,   /* the dialler has TLS, the acceptor does not use it */
    MUSTER_WAIT = 10,           /* another verdict follows when the generation begins here */
    MUSTER_REFUSED_VERBS = 11,  /* not over RDMA: the next transport is to be tried */
    MUSTER_REFUSED_RANK = 12,   /* the acceptor knows the dialler by another rank */
};

void muster_hello_encode(const struct muster_hello *hello,
                         unsigned char ret_bytes[MUSTER_HELLO_SIZE]);

/* False if a hello does not begin with these bytes. */
bool muster_hello_begins(const unsigned char *bytes, size_t size);

/* Of the peer. MUSTER_FATAL: not this member's; the text names both. */
MUSTER_CHECKED muster_status muster_wire_version_check(uint64_t version);

/* MUSTER_INVALID: not a hello. MUSTER_FATAL: a hello of another version, which is to be answered;
 * the text names both versions. */
MUSTER_CHECKED muster_status muster_hello_decode(const unsigned char bytes[MUSTER_HELLO_SIZE],
                                                 struct muster_hello *ret_hello);

void muster_answer_encode(enum muster_verdict verdict, unsigned char ret_bytes[MUSTER_ANSWER_SIZE]);
/* MUSTER_INVALID: not an answer. MUSTER_FATAL: the answer of a peer of another version, which
 * refuses this member whatever its verdict is called; the text names both versions. */
MUSTER_CHECKED muster_status muster_answer_decode(const unsigned char bytes[MUSTER_ANSWER_SIZE],
                                                  enum muster_verdict *ret_verdict);
/* Whether a plain answer begins with this byte; TLS begins with another one. */
bool muster_answer_begins(unsigned char first_byte);
/* "refused: wrong link token", for the dialler's error text. */
const char *muster_verdict_text(enum muster_verdict verdict);

/* In constant time. */
bool muster_token_equal(const char *a, const char *b);

#endif
