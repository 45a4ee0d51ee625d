/*
 * The first bytes on a connection: the dialler's hello says who it is, whom it wants, and that it
 * knows the job's link token; the acceptor's answer is a verdict. README.md has the tables.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_HELLO_H
#define MUSTER_WORKER_FABRIC_WIRE_HELLO_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

enum {
    MUSTER_HELLO_SIZE = 232,
    MUSTER_ANSWER_SIZE = 16,
};

struct muster_hello {
    uint64_t generation; /* the dialler's */
    char from[MUSTER_UUID_SIZE];
    char to[MUSTER_UUID_SIZE];
    char token[MUSTER_TOKEN_SIZE];
    uint32_t ticket;     /* the same in all connections of one opening of a link; 0: none */
    uint8_t index;       /* of this connection; the first, 0, opens the link */
    uint8_t connections; /* how many the link is to have */
};

/* Append only. */
enum muster_verdict {
    MUSTER_WELCOME = 1,
    MUSTER_REFUSED_VERSION = 2,
    MUSTER_REFUSED_TOKEN = 3,
    MUSTER_REFUSED_UNKNOWN = 4, /* you are no member here, or want somebody else */
    MUSTER_REFUSED_CROSSED = 5, /* both have dialled: wait for my call */
    MUSTER_REFUSED_LOST = 6,    /* this link was lost in this generation */
    MUSTER_REFUSED_MEMORY = 7,  /* not by shared memory: another transport may do */
    MUSTER_REFUSED_TLS = 8,     /* you came without TLS, and this member uses it */
    MUSTER_REFUSED_PLAIN = 9,   /* you came with TLS, and this member does without */
    MUSTER_WAIT = 10, /* this is who you want; the answer comes when its generation begins here */
    MUSTER_REFUSED_VERBS = 11, /* not over RDMA: another transport may do */
};

void muster_hello_encode(const struct muster_hello *hello,
                         unsigned char ret_bytes[MUSTER_HELLO_SIZE]);

/* False if these first bytes are not a hello's. */
bool muster_hello_begins(const unsigned char *bytes, size_t size);

/* MUSTER_INVALID: not a hello. MUSTER_FATAL: one of another version (answer it). */
MUSTER_CHECKED muster_status muster_hello_decode(const unsigned char bytes[MUSTER_HELLO_SIZE],
                                                 struct muster_hello *ret_hello);

void muster_answer_encode(enum muster_verdict verdict, unsigned char ret_bytes[MUSTER_ANSWER_SIZE]);
MUSTER_CHECKED muster_status muster_answer_decode(const unsigned char bytes[MUSTER_ANSWER_SIZE],
                                                  enum muster_verdict *ret_verdict);
/* Whether a connection that begins like this carries a plain answer; TLS begins otherwise. */
bool muster_answer_begins(unsigned char first_byte);
/* "refused: wrong link token", for the dialler's error. */
const char *muster_verdict_text(enum muster_verdict verdict);

/* Takes as long for a near miss as for a match. */
bool muster_token_equal(const char *a, const char *b);

#endif
