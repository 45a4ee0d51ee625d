/*
 * Inside the TCP transport. tcp.c has the slots, tcp_connect.c listens and accepts, tcp_dial.c
 * dials, tcp_open.c is where both lead, tcp_path.c has the record of a connection, tcp_secure.c has
 * what TLS adds before it is open, tcp_send.c and tcp_receive.c move bytes, tcp_bundle.c those of
 * several connections, tcp_lose.c says what becomes of a link when a connection ends.
 *
 * Either end of a link may dial; when both do, the call of the member with the smaller UUID counts.
 *
 * Threads: the fabric's lock. A path's record outlives its descriptor until no thread can see it
 * (muster_watch_retire()), so code that had given up the lock looks at path->watch.retired first.
 */
#ifndef MUSTER_WORKER_FABRIC_TCP_TCP_H
#define MUSTER_WORKER_FABRIC_TCP_TCP_H

#include "worker/fabric/address/host_addresses.h"
#include "worker/fabric/tcp/tcp_bundle.h"
#include "worker/fabric/tcp/tcp_settings.h"
#include "worker/fabric/tls/tls.h"
#include "worker/fabric/wire/bundle_paths.h"
#include "worker/fabric/wire/common_link_operations.h"
#include "worker/fabric/wire/match.h"
#include "worker/fabric/wire/pending_connections.h"

enum {
    /* Read at once between two frames: a whole eager message and its header. What is staged is
     * copied once more, so that behind a payload only the next header and little else is. */
    TCP_STAGING_BYTES = 20 * 1024,
    TCP_TAIL_BYTES = 4 * 1024,
    /* Of a connection within this host: what the kernel keeps is still in the cache when the peer
     * reads it. Beyond, it grows with the round trip and is the kernel's to choose. */
    TCP_LOCAL_SEND_BYTES = 192 * 1024,
    TCP_FRAMES_MAX = 16,    /* given to one system call */
    TCP_DIAL_MS = 3000,     /* to one address */
    TCP_REACH_MS = 5000,    /* to all addresses of a peer */
    TCP_STAGGER_MS = 250,   /* the next one is called, too; RFC 8305, section 8 */
    TCP_SILENT_MS = 1000,   /* likewise, where one has taken the hello and says nothing */
    TCP_LISTEN_MAX = 12,    /* addresses */
    TCP_ANSWERS_MAX = 2,    /* read in one go: "wait", and the answer itself */
    TCP_SILENCE_MS = 10000, /* without a sign of the peer's host that is due: it is gone */
    TCP_PROBES_MIN = 3,     /* unanswered, of whether the peer has room again */
    TCP_LOOK_MS = 1000,     /* for such silence, that often; earlier if tests want it */
};

struct tcp_outgoing {
    struct muster_outgoing frame;
    size_t sent;         /* of header and data */
    unsigned char *copy; /* owned: the data, when its transfer was withdrawn half-way */
};

/* One connection. */
struct tcp_path {
    struct muster_pending_connection pending; /* first: the path is found by it */
    struct tcp *tcp;
    struct tcp_link *link; /* NULL until it is known */
    struct muster_socket_address remote;
    struct muster_tls_channel *tls; /* NULL: plain */
    bool first_byte_seen;           /* the peer's first byte has come: it is TLS's or not */
    bool tls_ready;                 /* the handshake of TLS is over */

    unsigned char header[MUSTER_HELLO_SIZE]; /* a hello, an answer, a frame header coming in */
    uint32_t have;
    uint32_t index;                   /* of the link's connections, as the dialler counts */
    uint32_t place;                   /* in the link's paths, when it is open */
    struct tcp_window_entry *partial; /* on a bundle: the frame that is half out, or NULL */
    struct tcp_window_entry
        acknowledged_rest; /* likewise, once it is acknowledged: it came by another path */
    struct tcp_arrived_frame *arriving; /* the frame whose payload is coming in, on a bundle */
    struct muster_arrival in;
    bool in_payload;

    struct tcp_outgoing frames[TCP_FRAMES_MAX];
    uint32_t frame_count;
    uint32_t accepted_count; /* the first of them: encrypted, and not yet in the kernel's hands */
    struct muster_frame_queue control; /* goes before frames, but behind one that is half out */
    bool send_failed;                  /* writing has failed: read what is left */
};

/* The calls of one opening of a link. */
struct tcp_dialling {
    struct tcp_path *calls[MUSTER_ADDRESSES_MAX]; /* DIALLING or GREETING */
    uint32_t call_count;
    uint32_t order[MUSTER_ADDRESSES_MAX]; /* of the peer's addresses */
    uint32_t count, next;                 /* next: the one to be called */
    int64_t give_up_ns;
    int64_t wait_until_ns; /* for the peer's own call, where it cannot be reached */
    bool waiting;          /* for that, and nothing else */
    bool crossed, hung_up; /* what some of the calls have come to */
    bool refused;          /* the peer's host was reached: nobody, or somebody else, is there */
    bool exhausted;        /* this process can open no more descriptors */
    char failures[MUSTER_REASON_SIZE];
};

/* First to last. */
struct tcp_ports {
    uint16_t first, last; /* 0: any */
};

/* What link->end points to. */
struct tcp_link {
    struct muster_dialler dialler; /* first: the end is found by it */
    struct muster_match match;
    struct muster_link *link;
    struct tcp *tcp;
    struct tcp_path *path;                          /* the first that is OPEN, or NULL */
    struct tcp_path *paths[MUSTER_CONNECTIONS_MAX]; /* OPEN; by place, NULL: none */
    uint32_t path_count;
    struct tcp_bundle *bundle; /* NULL: one connection and no more */
    struct muster_bundle_calls calls;
    struct muster_socket_address
        dialled_address;  /* where it was dialled; size 0: the peer has dialled */
    bool parting, parted; /* goodbye is queued; it is out */
    struct tcp_dialling dialling;
};

_Static_assert((int)MUSTER_CONNECTIONS_MAX <= (int)MUSTER_BUNDLE_PATHS_MAX,
               "the bundle tells all paths apart");

struct tcp {
    struct muster_pending_connections pending_list; /* first */
    struct muster_host_addresses here;
    struct muster_socket_address own[TCP_LISTEN_MAX]; /* best first */
    uint32_t own_count;
    uint32_t connections;   /* of each link that is dialled from here */
    uint32_t silence_ms;    /* see TCP_SILENCE_MS */
    int64_t look_ns;        /* when to look for it next */
    struct muster_tls *tls; /* held; NULL: connections are plain */
    unsigned char *staging, *piece;
};

/* tcp_path.c */
/* Takes the descriptor, also on failure: NULL then. */
struct tcp_path *muster_tcp_path_create(struct tcp *tcp, int fd, enum muster_phase phase,
                                        uint32_t events);
void muster_tcp_path_close(struct tcp_path *path);
/* All connections of the link, also those that are not open yet. */
void muster_tcp_paths_close(struct tcp_link *link);
/* Ends the calls that are under way but for this one (or NULL), and makes no more. */
void muster_tcp_calls_drop(struct tcp_link *link, const struct tcp_path *but);
/* As sendmsg() and readv(), through TLS where the connection has it. held: see tls.h. */
ssize_t muster_tcp_path_send(struct tcp_path *path, struct iovec *parts, int count);
/* The first bytes that go out: the socket's buffer is empty, so all of them go, or it is useless.
 */
bool muster_tcp_path_say(struct tcp_path *path, const unsigned char *bytes, size_t size);
ssize_t muster_tcp_path_receive(struct tcp_path *path, const struct iovec *parts, int count,
                                bool held);
/* What failed on it, by the error number that one of the two has left. */
const char *muster_tcp_path_words(const struct tcp_path *path, int error);
/* Nothing more is sent. */
void muster_tcp_path_end(struct tcp_path *path);
/* Waits for what comes, and for room if `room` or if encrypted bytes wait for it. */
void muster_tcp_path_watch(struct tcp_path *path, bool room);
/* See TCP_LOCAL_SEND_BYTES. */
void muster_tcp_bound_sending(int fd);
/* For a connection that is open: its end is for muster_tcp_lose_silent() to find. */
void muster_tcp_be_patient(int fd);

/* tcp_lose.c */
/* A connection is at its end: the link goes on with the others, or ends too. */
void muster_tcp_path_lose(struct tcp_path *path, const char *what);
/* Loses connections whose peer's host gives no sign any more. */
void muster_tcp_lose_silent(struct tcp_link *end);

/* tcp_open.c */
/* The first connection of a link is there: calls that are still under way end. */
void muster_tcp_open_link(struct tcp_path *path, struct tcp_link *link, uint32_t connections);
/* One more connection of a bundle. */
void muster_tcp_widen_link(struct tcp_path *path, struct tcp_link *link);
/* Reads up to `size` bytes of a hello or an answer. Returns as muster_pending_count_received()
 * does. */
int muster_tcp_read_greeting(struct tcp_path *path, uint32_t size);

extern const struct muster_transport muster_tcp_transport;

/* tcp_connect.c: slots, link.h says what each does; and listening. */
void muster_tcp_path_ready(struct muster_watch *watch, uint32_t events);
bool muster_tcp_answer(struct muster_pending_connection *pending, enum muster_verdict verdict);
void muster_tcp_admit(struct muster_pending_connection *pending, struct muster_link *link);
MUSTER_CHECKED muster_status muster_tcp_listen(struct tcp *tcp,
                                               const struct muster_tcp_settings *settings);

/* tcp_dial.c */
void muster_tcp_dial(struct tcp_link *link);
/* The dialler's time has come: the next address, or all of them again, or what the bundle lacks. */
void muster_tcp_dial_due(struct tcp_link *link);
/* It is DIALLING: connect() has ended, or TLS goes on. */
void muster_tcp_connected(struct tcp_path *path);
void muster_tcp_dial_failed(struct tcp_path *path, int error);
void muster_tcp_read_answer(struct tcp_path *path);

/* tcp_secure.c: what comes before the hello and its answer. */
enum muster_tcp_secured {
    TCP_SECURED = 1,   /* hellos may go and come */
    TCP_INSECURE = 2,  /* the peer does without TLS: what it says is plain */
    TCP_UNSECURED = 3, /* not yet; or the path is closed */
    TCP_BROKEN = 4,    /* TLS has failed, or the connection */
};
/* For an accepted path, whenever there is something to read. It refuses who cannot be helped. */
enum muster_tcp_secured muster_tcp_secure_accepted(struct tcp_path *path);
/* For a path that has just been connected, and whenever there is something to read. */
enum muster_tcp_secured muster_tcp_secure_dialled(struct tcp_path *path);

/* tcp_send.c */
void muster_tcp_flush(struct tcp_path *path);
void muster_tcp_send_withdraw(struct tcp_path *path, const struct muster_operation_id *operation);

/* tcp_receive.c */
void muster_tcp_receive(struct tcp_path *path);
/* What TLS has read from the sockets and nobody has taken yet. False if the link is gone. */
bool muster_tcp_receive_held(struct tcp_link *link);

#endif
