/*
 * Inside the TCP transport; README.md says which file does what. A path is one TCP connection.
 *
 * Either end of a link may dial. If both do, the link uses the connection that the member with the
 * smaller UUID has dialled.
 *
 * Threads: the fabric's lock. A path's record outlives its descriptor until no thread can see it
 * (muster_watch_retire()), so code that has released the lock checks path->pending.watch.retired
 * first.
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
    /* Read by one system call between two frames: a whole eager message and its header. Staged
     * bytes are copied once more; so after a payload little more than the next header is staged. */
    TCP_STAGING_BYTES = 20 * 1024,
    TCP_TAIL_BYTES = 4 * 1024,
    /* Send buffer of a connection within this host: what the kernel holds is still in the cache
     * when the peer reads it. To other hosts the kernel chooses, by the round-trip time. */
    TCP_LOCAL_SEND_BYTES = 192 * 1024,
    TCP_FRAMES_MAX = 16,  /* sent by one system call */
    TCP_DIAL_MS = 3000,   /* for one address */
    TCP_REACH_MS = 5000,  /* for all addresses of a peer */
    TCP_STAGGER_MS = 250, /* then the next address is dialled as well; RFC 8305, section 8 */
    TCP_ANSWER_STAGGER_MS = 1000, /* likewise, after a hello that is not answered */
    TCP_LISTEN_MAX = 12,          /* addresses */
    TCP_ANSWERS_MAX = 2,          /* read at once: "wait", and the answer */
    TCP_SILENCE_MS =
        10000, /* the peer's kernel owes an acknowledgement for so long: the connection is lost */
    TCP_PROBES_MIN = 3,          /* zero-window probes without an answer */
    TCP_ANSWERS_MS = 15000,      /* longer than the kernel's keep-alive (tcp_path.c) takes */
    TCP_SILENCE_CHECK_MS = 1000, /* interval of the check for silence; shorter in tests */
};

struct muster_tcp_sent_frame {
    struct muster_outgoing frame;
    size_t sent;         /* bytes of header and payload */
    unsigned char *copy; /* owned: the payload, once its transfer was withdrawn */
};

/* One connection. */
struct muster_tcp_path {
    struct muster_pending_connection pending; /* first: the path is found by it */
    struct muster_tcp *tcp;
    struct muster_tcp_link *end; /* NULL until the peer is known */
    struct muster_socket_address remote;
    struct muster_tls_channel *tls; /* NULL: plain */
    bool first_byte_seen;           /* the peer's first byte, which shows whether it uses TLS */
    bool tls_ready;                 /* the TLS handshake is complete */

    unsigned char header[MUSTER_HELLO_SIZE]; /* of the hello, answer or frame that is arriving */
    uint32_t have;                           /* bytes of it */
    uint32_t index; /* among the link's connections, as the dialler counts; 0 opens the link */
    uint32_t place; /* in link->paths, once it is open */
    struct muster_tcp_window_entry *partial; /* bundle: the frame that is partly sent, or NULL */
    struct muster_tcp_window_entry
        acknowledged_rest; /* bundle: that frame, once acknowledged by way of another path */
    struct muster_tcp_arrived_frame *arriving; /* bundle: the frame whose payload is arriving */
    struct muster_arrival in;
    bool in_payload;

    struct muster_tcp_sent_frame frames[TCP_FRAMES_MAX];
    uint32_t frame_count;
    uint32_t accepted_count; /* of the first frames: accepted by TLS, but not all by the kernel */
    struct muster_frame_queue control; /* sent before frames, except a partly sent one */
    bool send_failed;                  /* only what the peer has sent is still read */
};

/* The attempts to open a link, at several addresses. */
struct muster_tcp_dialling {
    struct muster_tcp_path *attempts[MUSTER_ADDRESSES_MAX]; /* DIALLING or GREETING */
    uint32_t attempt_count;
    uint32_t order[MUSTER_ADDRESSES_MAX]; /* of the peer's addresses */
    uint32_t count, next;                 /* next: the one to dial */
    int64_t attempts_deadline_ns;
    int64_t await_peer_until_ns; /* for the peer to dial, where it cannot be reached */
    bool awaiting_peer;          /* only for that: no attempt is left */
    bool crossed, peer_closed;   /* results of some attempts */
    bool refused;                /* the host was reached, but the peer does not answer there */
    bool out_of_descriptors;     /* this process has no descriptor left */
    char failures[MUSTER_REASON_SIZE];
};

/* A range. */
struct muster_tcp_ports {
    uint16_t first, last; /* 0: any */
};

/* What link->end points to. */
struct muster_tcp_link {
    struct muster_dialler dialler; /* first: the end is found by it */
    struct muster_match match;
    struct muster_link *link;
    struct muster_tcp *tcp;
    struct muster_tcp_path *path;                          /* the first that is OPEN, or NULL */
    struct muster_tcp_path *paths[MUSTER_CONNECTIONS_MAX]; /* OPEN; by place, NULL: none */
    uint32_t path_count;
    struct muster_tcp_bundle *bundle; /* NULL: a single connection */
    struct muster_bundle_opening opening;
    struct muster_socket_address dialled_address; /* size 0: the peer has dialled */
    bool goodbye_queued, goodbye_sent;            /* sent: by all connections */
    struct muster_tcp_dialling dialling;
};

_Static_assert((int)MUSTER_CONNECTIONS_MAX <= (int)MUSTER_BUNDLE_PATHS_MAX,
               "the bundle tells all paths apart");

struct muster_tcp {
    struct muster_pending_connections pending_list; /* first */
    struct muster_host_addresses host_addresses;
    struct muster_socket_address listen_addresses[TCP_LISTEN_MAX]; /* best first */
    uint32_t listen_count;
    uint32_t connections;     /* of each link that this member dials */
    uint32_t silence_ms;      /* see TCP_SILENCE_MS */
    int64_t silence_check_ns; /* when to check for silence next */
    struct muster_tls *tls;   /* held; NULL: connections are plain */
    unsigned char *staging, *piece;
};

/* tcp_path.c */
/* Owns the descriptor from now on; NULL: out of memory, the descriptor is closed. */
struct muster_tcp_path *muster_tcp_path_create(struct muster_tcp *tcp, int fd,
                                               enum muster_phase phase, uint32_t events);
void muster_tcp_path_close(struct muster_tcp_path *path);
/* Closes all connections of the link, also pending ones. */
void muster_tcp_paths_close(struct muster_tcp_link *end);
/* Closes the pending attempts except this one (or NULL), and starts no others. */
void muster_tcp_attempts_close(struct muster_tcp_link *end, const struct muster_tcp_path *except);
/* Like sendmsg() and readv(), through TLS if the connection uses it. buffered_only: see tls.h. */
ssize_t muster_tcp_path_send(struct muster_tcp_path *path, struct iovec *parts, int count);
/* For the first bytes of a connection, when its send buffer is empty: false if not all of them are
 * sent. */
bool muster_tcp_path_send_all(struct muster_tcp_path *path, const unsigned char *bytes,
                              size_t size);
ssize_t muster_tcp_path_receive(struct muster_tcp_path *path, const struct iovec *parts, int count,
                                bool buffered_only);
/* The text for an error number that one of the two has set. */
const char *muster_tcp_path_error(const struct muster_tcp_path *path, int error);
/* Ends the stream to the peer. */
void muster_tcp_path_shutdown(struct muster_tcp_path *path);
/* Watches for bytes to read; also for room to send if `room`, or if there is a TLS backlog. */
void muster_tcp_path_watch(struct muster_tcp_path *path, bool room);
/* See TCP_LOCAL_SEND_BYTES. */
void muster_tcp_limit_send_buffer(int fd);
/* For open connections, whose silence muster_tcp_check_silence() detects. */
void muster_tcp_disable_user_timeout(int fd);

/* tcp_lose.c */
/* A connection has ended: the link continues with its other connections, or ends. */
void muster_tcp_path_lost(struct muster_tcp_path *path, const char *what);
/* Ends the connections whose peer's kernel has owed an acknowledgement for too long. */
void muster_tcp_check_silence(struct muster_tcp_link *end);
/* Whether a peer's kernel has acknowledged something within TCP_ANSWERS_MS, on any connection. */
bool muster_tcp_answers(const struct muster_link *link);

/* tcp_open.c */
/* Opens the link by its first connection, and closes the other attempts. */
void muster_tcp_open_link(struct muster_tcp_path *path, struct muster_tcp_link *end,
                          uint32_t connections);
/* Adds a connection to a bundle. */
void muster_tcp_add_path(struct muster_tcp_path *path, struct muster_tcp_link *end);
/* Reads up to `size` bytes of a hello or an answer. Returns as muster_pending_count_received()
 * does. */
int muster_tcp_read_greeting(struct muster_tcp_path *path, uint32_t size);

extern const struct muster_transport muster_tcp_transport;

/* tcp_connect.c: slots, see link.h; and listening. */
void muster_tcp_path_ready(struct muster_watch *watch, uint32_t events);
bool muster_tcp_answer(struct muster_pending_connection *pending, enum muster_verdict verdict);
void muster_tcp_admit(struct muster_pending_connection *pending, struct muster_link *link);
MUSTER_CHECKED muster_status muster_tcp_listen(struct muster_tcp *tcp,
                                               const struct muster_tcp_settings *settings);

/* tcp_dial.c */
void muster_tcp_dial(struct muster_tcp_link *end);
/* The dialler is due: dials the next address, or all again, or missing connections of a bundle. */
void muster_tcp_dial_due(struct muster_tcp_link *end);
/* Phase DIALLING: connect() has ended, or the TLS handshake continues. */
void muster_tcp_connected(struct muster_tcp_path *path);
void muster_tcp_dial_failed(struct muster_tcp_path *path, int error);
void muster_tcp_read_answer(struct muster_tcp_path *path);

/* tcp_secure.c: the TLS handshake, before the hello. */
enum muster_tcp_tls_state {
    TCP_TLS_READY = 1,   /* the hello may follow */
    TCP_TLS_PLAIN = 2,   /* the connection is, or the peer's answer will be, plain */
    TCP_TLS_PENDING = 3, /* continues later; or the path is closed */
    TCP_TLS_FAILED = 4,  /* TLS or the connection has failed */
};
/* For an accepted path, when there is something to read. Refuses peers with which TLS fails. */
enum muster_tcp_tls_state muster_tcp_secure_accepted(struct muster_tcp_path *path);
/* For a path that was just connected, and when there is something to read. */
enum muster_tcp_tls_state muster_tcp_secure_dialled(struct muster_tcp_path *path);

/* tcp_send.c */
void muster_tcp_flush(struct muster_tcp_path *path);
void muster_tcp_send_withdraw(struct muster_tcp_path *path,
                              const struct muster_operation_id *operation);

/* tcp_receive.c */
/* Receives what is in the socket. False: there was nothing. */
bool muster_tcp_receive(struct muster_tcp_path *path);
/* Receives what TLS has already read from the sockets. False: the link is closed. */
bool muster_tcp_receive_buffered(struct muster_tcp_link *end);

#endif
