/*
 * Inside the TCP transport. tcp.c has the slots, tcp_connect.c dials and accepts, tcp_path.c has
 * the record of a connection, tcp_send.c and tcp_receive.c move bytes.
 *
 * Either end of a link may dial; when both do, the call of the member with the smaller UUID counts.
 *
 * Threads: the fabric's lock. A path's record outlives its descriptor until no thread can see it
 * (muster_watch_retire()), so code that had given up the lock looks at path->watch.retired first.
 */
#ifndef MUSTER_WORKER_FABRIC_TCP_H
#define MUSTER_WORKER_FABRIC_TCP_H

#include "worker/fabric/address.h"
#include "worker/fabric/hello.h"
#include "worker/fabric/match.h"
#include "worker/fabric/strangers.h"
#include "worker/fabric/tcp_bundle.h"

enum {
    /* Read at once between two frames: a whole eager message and its header. What is staged is
     * copied once more, so that behind a payload only the next header and little else is. */
    TCP_STAGING_BYTES = 20 * 1024,
    TCP_TAIL_BYTES = 4 * 1024,
    /* Of a connection within this host: what the kernel keeps is still in the cache when the peer
     * reads it. Beyond, it grows with the round trip and is the kernel's to choose. */
    TCP_LOCAL_SEND_BYTES = 192 * 1024,
    TCP_FRAMES_MAX = 16,     /* given to one system call */
    TCP_HALF_OPEN_MAX = 128, /* accepted, no whole hello yet; the oldest has to go */
    TCP_PARKED_MAX = 1024,   /* of generations that have not begun here */
    TCP_HELLO_MS = 5000,
    TCP_PARKED_MS = 30000,
    TCP_DIAL_MS = 3000,       /* to one address */
    TCP_CROSSED_MS = 200,     /* waiting for the other's call, then dial again */
    TCP_HANG_UPS_MAX = 6,     /* of the peer, before it has answered */
    TCP_REDIAL_MS = 10,       /* the first time; doubles */
    TCP_SILENCE_MS = 10000,   /* unacknowledged data: the peer's host is gone */
    TCP_ACCEPTS_MAX = 64,     /* in one go */
    TCP_ACCEPT_PAUSE_MS = 100 /* when descriptors have run out */
};

enum tcp_phase {
    TCP_DIALLING = 1, /* connect() is under way */
    TCP_GREETING = 2, /* our hello is out */
    TCP_HELLO = 3,    /* accepted: their hello is coming in */
    TCP_PARKED = 4,   /* their hello waits for its generation */
    TCP_OPEN = 5,
};

struct tcp_outgoing {
    struct muster_outgoing frame;
    size_t sent;         /* of header and data */
    unsigned char *copy; /* owned: the data, when its transfer was withdrawn half-way */
};

/* One connection. */
struct tcp_path {
    struct muster_watch watch; /* first: the path is found by it */
    struct tcp *tcp;
    struct tcp_link *link; /* NULL until it is known */
    enum tcp_phase phase;
    int64_t deadline_ns;
    struct muster_socket_address remote;
    struct tcp_path *prev, *next; /* in tcp->halves, unless OPEN */

    unsigned char header[MUSTER_HELLO_SIZE]; /* a hello, an answer, a frame header coming in */
    uint32_t have;
    struct muster_hello hello; /* PARKED */
    uint32_t index;            /* of the link's connections, as the dialler counts */
    struct tcp_held *coming;   /* the frame whose payload is coming in, on a bundle */
    struct muster_arrival in;
    bool in_payload;

    struct tcp_outgoing frames[TCP_FRAMES_MAX];
    uint32_t frame_count;
    struct muster_frame_queue control; /* goes before frames, but behind one that is half out */
    bool deaf;                         /* writing has failed: read what is left */
};

/* What link->end points to. */
struct tcp_link {
    struct muster_match match;
    struct muster_link *link;
    struct tcp *tcp;
    struct tcp_path *path; /* the first that is OPEN, or the call under way; or NULL */
    struct tcp_path *paths[MUSTER_TCP_CONNECTIONS_MAX]; /* OPEN */
    uint32_t path_count;
    struct tcp_bundle *bundle;    /* NULL: one connection and no more */
    uint32_t address;             /* of the peer's, the one being dialled */
    uint32_t ticket;              /* of the calls to it */
    uint32_t hang_ups;            /* before an answer */
    int64_t redial_ns;            /* MUSTER_NEVER: no call is due */
    bool parting, parted;         /* goodbye is queued; it is out */
    struct tcp_link *prev, *next; /* in tcp->links */
};

struct tcp {
    struct muster_watch listener; /* first */
    struct muster_fabric *fabric;
    struct muster_socket_address own;
    uint32_t connections;    /* of each link that is dialled from here */
    int64_t accept_again_ns; /* MUSTER_NEVER: accepting */
    struct tcp_path *halves; /* paths that are not OPEN, oldest first */
    uint32_t half_open, parked;
    struct tcp_link *links;
    struct muster_strangers strangers;
    unsigned char *staging, *piece;
};

/* tcp.c: the peer has called; state OPENING, link->end NULL if memory is out. */
void muster_tcp_accepted(struct muster_link *link);

/* tcp_path.c */
/* Takes the descriptor, also on failure: NULL then. */
struct tcp_path *muster_tcp_path_create(struct tcp *tcp, int fd, enum tcp_phase phase,
                                        uint32_t events);
void muster_tcp_path_close(struct tcp_path *path);
/* Counts and logs a stranger, and closes. */
void muster_tcp_refuse(struct tcp_path *path, enum muster_stranger kind);
/* All connections of the link, also those that are not open yet. */
void muster_tcp_paths_close(struct tcp_link *link);
/* A connection is at its end: the link goes on with the others, or ends too. */
void muster_tcp_path_lose(struct tcp_path *path, const char *what);
/* It is half no longer: out of tcp->halves. */
void muster_tcp_leave_halves(struct tcp_path *path);
/* See TCP_LOCAL_SEND_BYTES. */
void muster_tcp_bound_sending(int fd);

/* tcp_connect.c */
void muster_tcp_path_ready(struct muster_watch *watch, uint32_t events);
MUSTER_CHECKED muster_status muster_tcp_listen(struct tcp *tcp, const char *host);
void muster_tcp_dial(struct tcp_link *link);
void muster_tcp_judge_parked(struct tcp *tcp);
int64_t muster_tcp_connect_timers(struct tcp *tcp, int64_t now_ns);

/* tcp_send.c */
void muster_tcp_flush(struct tcp_path *path);
void muster_tcp_send_withdraw(struct tcp_path *path, const struct muster_operation_id *operation);

/* muster_tcp_receive.c */
void muster_tcp_receive(struct tcp_path *path);

#endif
