/*
 * Connections that are not open yet, of any transport that has a hello: accepting, judging hellos,
 * waiting for a generation, dialling again, and the bounds of all that. The transport makes the
 * connections and moves their bytes.
 *
 * Either end of a link may dial; when both do, the call of the member with the smaller UUID counts.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_PENDING_CONNECTIONS_H
#define MUSTER_WORKER_FABRIC_WIRE_PENDING_CONNECTIONS_H

#include "worker/fabric/address/address.h"
#include "worker/fabric/link.h"
#include "worker/fabric/wire/hello.h"
#include "worker/fabric/wire/rejected_connections.h"

struct muster_match;

enum {
    MUSTER_PENDING_MAX = 128, /* accepted, no whole hello yet; the oldest has to go */
    MUSTER_PARKED_MAX = 1024, /* of generations that have not begun here */
    MUSTER_HELLO_MS = 5000,
    MUSTER_PARKED_MS = 30000,
    MUSTER_CROSSED_MS = 200,          /* waiting for the other's call, then dial again */
    MUSTER_DIALS_MAX = 6,             /* of the peer, before it has answered */
    MUSTER_REDIAL_MS = 10,            /* the first time; doubles */
    MUSTER_PATH_RETRY_MS = 100,       /* then what an open link lacks is called again; doubles */
    MUSTER_PATH_RETRY_DOUBLINGS = 13, /* to 14 min: a call can cost the fabric a second */
    MUSTER_PATH_RETRY_LOGGED = 8,     /* calls in vain, then a line of the log says so */
    MUSTER_ACCEPTS_MAX = 64,          /* in one go */
    MUSTER_ACCEPT_PAUSE_MS = 100      /* when descriptors have run out */
};

enum muster_phase {
    MUSTER_PHASE_DIALLING = 1, /* connect() is under way */
    MUSTER_PHASE_GREETING = 2, /* our hello is out */
    MUSTER_PHASE_HELLO = 3,    /* accepted: their hello is coming in */
    MUSTER_PHASE_PARKED = 4,   /* their hello waits for its generation; they have to wait for us */
    MUSTER_PHASE_PROVING = 5,  /* our answer is out, and theirs is to come */
    MUSTER_PHASE_OPEN = 6,     /* no half any more */
};

/* One connection: the first member of the transport's record of it. */
struct muster_pending_connection {
    struct muster_watch watch; /* first: the record is found by it */
    struct muster_pending_connections *all;
    enum muster_phase phase;
    int64_t deadline_ns;
    bool extended;                       /* its time was over, and we were the ones who were late */
    struct muster_socket_address remote; /* size 0: not accepted here */
    struct muster_hello hello;           /* once it has come */
    struct muster_pending_connection *prev, *next; /* in all->list, unless OPEN */
};

/* A link's end that may dial: the first member of what link->end points to. */
struct muster_dialler {
    struct muster_match *match; /* in the same end */
    uint32_t failed_dials;      /* before an answer */
    int64_t redial_ns;          /* MUSTER_NEVER: no call is due */
    uint32_t failed_path_dials; /* calls for what an open link lacks, since it lost something */
    struct muster_dialler *prev, *next; /* in halves->diallers */
};

/* A descriptor at which is accepted. */
struct muster_listener {
    struct muster_watch watch; /* first */
    struct muster_pending_connections *pending_list;
    struct muster_listener *next;
};

/* All of one transport: the first member of its object. */
struct muster_pending_connections {
    struct muster_fabric *fabric;
    const struct muster_transport *ops;
    struct muster_listener *listeners;
    int64_t accept_again_ns;                /* MUSTER_NEVER: accepting */
    int64_t warn_again_ns;                  /* that it cannot */
    struct muster_pending_connection *list; /* oldest first */
    uint32_t without_hello, parked_count;
    struct muster_dialler *diallers; /* the ends of all its links */
    struct muster_rejections strangers;
};

/* The rest zeroed. */
void muster_pending_connections_init(struct muster_pending_connections *pending_list,
                                     struct muster_fabric *fabric,
                                     const struct muster_transport *ops);
/* Accepts at this descriptor, too, which is listening; takes it, also on failure. */
MUSTER_CHECKED muster_status
muster_pending_connections_listen(struct muster_pending_connections *pending_list, int fd);
/* Closes all, and the listeners; then the transport's object is freed as soon as no thread can
 * still see it. */
void muster_pending_connections_stop(struct muster_pending_connections *pending_list);
/* Descriptors have run out: gives up the oldest connection that has not said who it is. False:
 * there is none, or it has only just come. */
bool muster_pending_make_room(struct muster_pending_connections *pending_list);
/* A generation has begun: judges those that have waited for it. */
void muster_pending_connections_check_parked(struct muster_pending_connections *pending_list);
/* Ends what has waited too long, dials again. Returns when to be called again, or MUSTER_NEVER. */
int64_t muster_pending_connections_timers(struct muster_pending_connections *pending_list,
                                          int64_t now_ns);

/* Makes a connection's record of that size, the half first and the rest zeroed. Of the watch its
 * descriptor, events and free() count. Takes the descriptor, also on failure: NULL then. */
void *muster_pending_create(struct muster_pending_connections *pending_list, size_t size_bytes,
                            enum muster_phase phase, const struct muster_watch *watch);
/* A greeting that comes in without waiting: recv() gave `got` of the bytes that were missing of
 * `size_bytes`; *have counts them. 1: all of it is there; 0: not yet; -1: errno is set, 0 at the
 * end of the stream. */
int muster_pending_count_received(ssize_t got, uint32_t size_bytes, uint32_t *have);
/* Whether the peer has ended the connection, or the kernel has. */
bool muster_pending_is_closed(const struct muster_pending_connection *pending);
/* It is open, or closing: out of the list. */
void muster_pending_remove(struct muster_pending_connection *pending);
/* Our answer is out: theirs is due in MUSTER_HELLO_MS. */
void muster_pending_await_proof(struct muster_pending_connection *pending);
/* Counts and logs a stranger, and closes. why: says more, or is NULL. */
void muster_pending_refuse(struct muster_pending_connection *pending, enum muster_rejection kind);
void muster_pending_refuse_because(struct muster_pending_connection *pending,
                                   enum muster_rejection kind, const char *why);
/* The same, and tells the stranger. */
void muster_pending_refuse_with(struct muster_pending_connection *pending,
                                enum muster_verdict verdict, enum muster_rejection kind);
/* Its whole hello is there. */
void muster_pending_check_hello(struct muster_pending_connection *pending,
                                const unsigned char bytes[MUSTER_HELLO_SIZE]);
/* Whether a member's call is to open the link: which of two calls counts is decided alike by both
 * ends. Then the link has its end, from which no call is due; otherwise the caller has been told,
 * and the connection is closed. */
bool muster_pending_claim_link(struct muster_pending_connection *pending, struct muster_link *link);
/* The welcome could not be sent: closes, and the link is dialled from here. */
void muster_pending_answer_failed(struct muster_pending_connection *pending,
                                  struct muster_link *link);

/* What this member says when it calls that one. */
struct muster_hello muster_hello_to(const struct muster_link *link);
/* For a link's one call, which has an answer that is neither "welcome" nor "wait". */
void muster_pending_handle_refusal(struct muster_pending_connection *pending,
                                   struct muster_link *link, enum muster_verdict verdict);
/* The same, which was closed before an answer: calls again, or goes on to the next transport. */
void muster_pending_handle_close(struct muster_pending_connection *pending,
                                 struct muster_link *link);

/* Makes the link's end, from which no call is due; state OPENING. False if memory is out: then the
 * link has failed. */
bool muster_dialler_begin(struct muster_pending_connections *pending_list,
                          struct muster_link *link);
/* The peer hung up before it had answered, maybe because it is crowded by strangers: calls again,
 * later. False: that was too often. */
bool muster_dialler_retry(struct muster_dialler *dialler);
/* The peer's own call comes instead; if not, ours goes again. */
void muster_dialler_crossed(struct muster_dialler *dialler);
/* A call for what an open link lacks of its paths came to nothing: calls again after twice as long
 * as the last time, up to a bound and without end. Nothing where a call is due already. */
void muster_dialler_retry_path(struct muster_dialler *dialler);
/* An open link has lost one of its paths: calls again soon. */
void muster_dialler_path_lost(struct muster_dialler *dialler);

#endif
