/*
 * A link of several TCP connections. wire/bundle.h numbers its frames, chooses a connection for
 * each and delivers them in order; this adds the bytes: a copy of each frame until the peer
 * acknowledges it, and an envelope in front of it with its number and a cumulative acknowledgement
 * (wire/README.md has the table). An envelope with number 0 only acknowledges; the frame after it
 * is empty. A link of one connection has no envelopes and no copies.
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

struct muster_tcp_path;
struct muster_tcp_link;

/* A frame in the window. */
struct muster_tcp_window_entry {
    struct muster_outgoing frame; /* transfer: NULL once it is complete or withdrawn */
    unsigned char *copy;          /* owned: the payload */
    uint64_t number;
    unsigned char envelope[TCP_ENVELOPE_SIZE];
    size_t sent; /* bytes of envelope, header and payload, on the path that carries it */
};

/* A frame that has arrived, or is arriving. */
struct muster_tcp_arrived_frame {
    uint64_t number;
    struct muster_frame frame;
    uint32_t have; /* bytes of the payload */
    _Alignas(16) unsigned char payload[];
};

struct muster_tcp_bundle {
    struct muster_bundle frames;
    struct muster_tcp_window_entry window[MUSTER_BUNDLE_WINDOW]; /* by number */
    struct muster_tcp_arrived_frame
        *arrived[MUSTER_BUNDLE_WINDOW]; /* by number: ahead of a missing one */
};

/* NULL: out of memory. */
struct muster_tcp_bundle *muster_tcp_bundle_create(void);
/* Accepts NULL. */
void muster_tcp_bundle_destroy(struct muster_tcp_bundle *bundle);

/* Sends what the sockets accept. The link may be closed afterwards. */
void muster_tcp_bundle_flush(struct muster_tcp_link *end);
void muster_tcp_bundle_withdraw(struct muster_tcp_link *end,
                                const struct muster_operation_id *operation);
/* The connection sends no more: its frames wait for other connections. */
void muster_tcp_bundle_abandon(struct muster_tcp_path *path);

/* Receives an envelope and a header, which are in path->header. Sets path->arriving, or leaves it
 * NULL if no frame follows. MUSTER_INVALID: the peer violates the protocol. */
MUSTER_CHECKED muster_status muster_tcp_bundle_receive_header(struct muster_tcp_path *path);
/* The payload of path->arriving is complete. Delivers all frames that are in order now; the link
 * may be closed afterwards. */
MUSTER_CHECKED muster_status muster_tcp_bundle_receive_frame(struct muster_tcp_path *path);

#endif
