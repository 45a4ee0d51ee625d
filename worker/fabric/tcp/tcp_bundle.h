/*
 * A link of several connections: its frames are numbered, any connection takes the next ones, and
 * the other end puts them in order again before it looks at them. Each frame is kept until the peer
 * has acknowledged it, so that the others carry on when a connection breaks: what was on it and is
 * not acknowledged goes again, and what comes twice is dropped. A link of one connection has none
 * of this.
 *
 * Before each frame stands an envelope (README.md has the table). One with number 0 only
 * acknowledges: the frame behind it says nothing.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_TCP_TCP_BUNDLE_H
#define MUSTER_WORKER_FABRIC_TCP_TCP_BUNDLE_H

#include "worker/fabric/wire/bundle.h"
#include "worker/fabric/wire/match.h"

enum {
    TCP_ENVELOPE_SIZE = 24,
    TCP_WINDOW_BYTES = 2 * 1024 * 1024,
};

struct tcp_path;
struct tcp_link;

/* A frame on its way. */
struct tcp_parcel {
    struct muster_outgoing frame; /* its transfer is NULL once it has ended or was withdrawn */
    unsigned char *copy;          /* owned: its data */
    uint64_t number;
    unsigned char envelope[TCP_ENVELOPE_SIZE];
    size_t sent; /* on the path that carries it, of envelope, header and data */
};

/* A frame that has come, or is coming. */
struct tcp_held {
    uint64_t number;
    struct muster_frame frame;
    uint32_t have; /* of the payload */
    _Alignas(16) unsigned char payload[];
};

struct tcp_bundle {
    struct muster_bundle frames;
    struct tcp_parcel parcels[MUSTER_BUNDLE_WINDOW]; /* not acknowledged, by number */
    struct tcp_held *held[MUSTER_BUNDLE_WINDOW];     /* by number; came ahead of others */
};

/* NULL if memory is out. */
struct tcp_bundle *muster_tcp_bundle_create(void);
/* Accepts NULL. */
void muster_tcp_bundle_destroy(struct tcp_bundle *bundle);

/* Going out. The link may be gone afterwards. */
void muster_tcp_bundle_flush(struct tcp_link *link);
void muster_tcp_bundle_withdraw(struct tcp_link *link, const struct muster_operation_id *operation);
/* The connection takes no more: what it has not delivered goes to the others. */
void muster_tcp_bundle_abandon(struct tcp_path *path);

/* Coming in. The header, with its envelope, stands in path->header: sets path->coming, or leaves it
 * NULL if no frame follows. MUSTER_INVALID: the peer breaks the rules. */
MUSTER_CHECKED muster_status muster_tcp_bundle_begin(struct tcp_path *path);
/* All of path->coming is there. What is in order now is handed over; the link may be gone
 * afterwards. */
MUSTER_CHECKED muster_status muster_tcp_bundle_end(struct tcp_path *path);

#endif
