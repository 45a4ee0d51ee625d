/*
 * Introductions: what each member of a communicator without a service tells the others through the
 * program's exchange function, as bytes of one size; encoded, decoded with checks, compared. Pure.
 *
 *   at   bytes
 *   0    8     "MUSTERat"                    84   64  host, filled up with zeros, as all texts
 *   8    2     wire version                  148  64  rack
 *   10   2     bits: reproducible, failed    212  64  the member's draw for the link token
 *   12   4     CRC-32 of the other bytes     276  64  the option `algorithm`, or its beginning
 *   16   4     rank                          340  4   number of addresses
 *   20   4     size                          344  1704  the addresses, each with a zero at its
 *   24   4     order                                    end; of a member that has failed: why
 *   28   4     CRC-32 of `algorithm`
 *   32   16    version of the library
 *   48   36    member
 *
 * Numbers are little-endian. The first ten bytes are the same in all versions. A change is a new
 * wire version (fabric/fabric.h).
 *
 * May use: fabric.h, collectives/call, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_INTRODUCTION_H
#define MUSTER_WORKER_COMMUNICATOR_INTRODUCTION_H

#include "collectives/call/topology.h"
#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

enum {
    MUSTER_INTRODUCTION_SIZE = 2048,
    MUSTER_INTRODUCTION_TEXT_SIZE = 64,
    MUSTER_LIBRARY_VERSION_SIZE = 17,
    MUSTER_DRAWN_TOKEN_SIZE = 65, /* 32 random bytes in hex, and the terminator */
};

struct muster_introduction {
    uint32_t rank, size;
    uint32_t order; /* the option `order` */
    bool reproducible;
    uint32_t algorithm_digest;
    char algorithm[MUSTER_INTRODUCTION_TEXT_SIZE + 1]; /* for texts; may be cut */
    char rack[MUSTER_INTRODUCTION_TEXT_SIZE];
    char token[MUSTER_DRAWN_TOKEN_SIZE]; /* that of rank 0 is used */
    char library[MUSTER_LIBRARY_VERSION_SIZE];
    char failure[MUSTER_ERROR_MAX]; /* why this member cannot take part; "": it can */
    struct muster_peer peer;
};

/* Sets the option `algorithm`, which may be NULL. */
void muster_introduction_set_algorithm(struct muster_introduction *introduction,
                                       const char *algorithm);

/* Addresses that do not fit are left out, those at the end first. */
void muster_introduction_encode(const struct muster_introduction *introduction,
                                unsigned char ret_bytes[MUSTER_INTRODUCTION_SIZE]);

/* MUSTER_INVALID: not an introduction, or one of another version; the text names the rank. */
MUSTER_CHECKED muster_status
muster_introduction_decode(const unsigned char bytes[MUSTER_INTRODUCTION_SIZE], uint32_t rank,
                           struct muster_introduction *ret_introduction);

/* Whether the members can form a communicator; `own` is that of this member, as it was sent.
 * MUSTER_INVALID: ranks, sizes or options differ; the text names the rank and both values.
 * MUSTER_RETRY: a member cannot take part; the text is its own. */
MUSTER_CHECKED muster_status muster_introductions_check(const struct muster_introduction *all,
                                                        uint32_t size,
                                                        const struct muster_introduction *own);

/* The topology of the members by their hosts and racks. ret_callers: [size], as in
 * muster_host_order(). */
MUSTER_CHECKED muster_status muster_introductions_place(const struct muster_introduction *all,
                                                        uint32_t size, uint32_t *ret_callers,
                                                        struct muster_topology *ret_topology);

#endif
