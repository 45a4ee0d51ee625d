/*
 * Pending connections: those that are not open yet, of any transport whose links begin with a
 * connection and a hello. This part accepts, checks hellos, parks connections until their
 * generation begins, dials again, and bounds all of it. The transport creates the connections and
 * moves their bytes.
 *
 *   phase      event                                          next phase
 *   DIALLING   connect() is done, our hello is sent           GREETING
 *   GREETING   the answer is "wait"                           GREETING
 *              the answer is "welcome"                        OPEN, or PROVING
 *              another answer, or none                        closed; then the link dials again,
 *                                                             or tries the next transport
 *   HELLO      the hello is from a member of this generation  the slot admit decides: OPEN,
 *                                                             PROVING, or closed
 *              the hello is for a later generation            PARKED; "wait" is sent
 *              another hello, or none in time                 closed, counted and logged
 *   PARKED     its generation begins                          as a hello of this generation
 *   PROVING    the peer's proof arrives                       OPEN
 *
 * Either member of a link may dial. If both do, the link uses the connection that the member with
 * the smaller UUID has dialled, and the acceptor of the other one answers "crossed".
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_PENDING_CONNECTIONS_H
#define MUSTER_WORKER_FABRIC_WIRE_PENDING_CONNECTIONS_H

#include "worker/fabric/address/address.h"
#include "worker/fabric/link.h"
#include "worker/fabric/wire/dialler.h"
#include "worker/fabric/wire/hello.h"
#include "worker/fabric/wire/rejected_connections.h"

enum {
    MUSTER_PENDING_MAX = 128, /* in phase HELLO; then the oldest is closed */
    MUSTER_PARKED_MAX = 1024,
    MUSTER_HELLO_MS = 5000,
    MUSTER_PARKED_MS = 30000,
    MUSTER_ACCEPTS_MAX = 64,     /* in a row */
    MUSTER_ACCEPT_PAUSE_MS = 100 /* when descriptors have run out */
};

enum muster_phase {
    MUSTER_PHASE_DIALLING = 1, /* connect() is under way */
    MUSTER_PHASE_GREETING = 2, /* our hello has been sent */
    MUSTER_PHASE_HELLO = 3,    /* accepted: the peer's hello has not arrived as a whole */
    MUSTER_PHASE_PARKED = 4,   /* accepted: the hello is of a generation that has not begun here */
    MUSTER_PHASE_PROVING =
        5,                 /* hello and answer are exchanged; the transport needs one more proof */
    MUSTER_PHASE_OPEN = 6, /* not pending any more */
};

/* One connection: the first member of the transport's record. */
struct muster_pending_connection {
    struct muster_watch watch; /* first: the record is found by it */
    struct muster_pending_connections *pending_list;
    enum muster_phase phase;
    int64_t deadline_ns;
    bool extended; /* the deadline has been extended: see muster_pending_connections_timers() */
    struct muster_socket_address remote;           /* of an accepted one; size 0: dialled */
    struct muster_hello hello;                     /* once it has arrived */
    struct muster_pending_connection *prev, *next; /* in pending_list->list, unless OPEN */
};

/* A listening descriptor. */
struct muster_listener {
    struct muster_watch watch; /* first */
    struct muster_pending_connections *pending_list;
    struct muster_listener *next;
};

/* All pending connections of one transport: the first member of its object. */
struct muster_pending_connections {
    struct muster_fabric *fabric;
    const struct muster_transport *ops;
    struct muster_listener *listeners;
    int64_t accept_again_ns;                /* after a pause; MUSTER_NEVER: it accepts */
    int64_t warn_again_ns;                  /* that it cannot accept */
    struct muster_pending_connection *list; /* oldest first */
    uint32_t hello_count, parked_count;     /* in these phases */
    struct muster_dialler *diallers;        /* of all links of the transport */
    struct muster_rejections rejections;
};

/* In zeroed storage. */
void muster_pending_connections_init(struct muster_pending_connections *pending_list,
                                     struct muster_fabric *fabric,
                                     const struct muster_transport *ops);
/* Accepts connections at one more listening descriptor, and owns it from now on; on failure it is
 * closed. */
MUSTER_CHECKED muster_status
muster_pending_connections_listen(struct muster_pending_connections *pending_list, int fd);
/* Closes all connections and listeners. The transport's object is freed as soon as no thread can
 * use it any more. */
void muster_pending_connections_stop(struct muster_pending_connections *pending_list);
/* Descriptors have run out: closes the oldest connection in phase HELLO. False: there is none, or
 * it was accepted less than 100 ms ago. */
bool muster_pending_make_room(struct muster_pending_connections *pending_list);
/* A generation has begun: checks the hellos of parked connections again. */
void muster_pending_connections_check_parked(struct muster_pending_connections *pending_list);
/* Handles deadlines, and dials again. Returns when to be called again, or MUSTER_NEVER. A deadline
 * is extended once by MUSTER_HELLO_MS if unread bytes have arrived by then: this member was busy,
 * and the peer not silent. Only once, so that no peer keeps a connection pending by single bytes.
 */
int64_t muster_pending_connections_timers(struct muster_pending_connections *pending_list,
                                          int64_t now_ns);

/* Creates the record of a connection, of that size and zeroed but for its first member. Uses the
 * watch's descriptor, events and free(). Owns the descriptor from now on; NULL: it failed, and the
 * descriptor is closed. */
void *muster_pending_create(struct muster_pending_connections *pending_list, size_t size_bytes,
                            enum muster_phase phase, const struct muster_watch *watch);
/* Counts the bytes of a hello or an answer: recv() returned `got` for those that were missing of
 * `size_bytes`; *have is their number so far. Returns 1 if all have arrived, 0 if not; -1 for an
 * error, in errno, which is 0 at the end of the stream. */
int muster_pending_count_received(ssize_t got, uint32_t size_bytes, uint32_t *have);
/* Whether the peer or the kernel has closed the connection. */
bool muster_pending_is_closed(const struct muster_pending_connection *pending);
/* Removes a connection that is open, or about to be closed: it is not pending any more. */
void muster_pending_remove(struct muster_pending_connection *pending);
/* Phase PROVING begins, with a deadline of MUSTER_HELLO_MS. */
void muster_pending_await_proof(struct muster_pending_connection *pending);
/* Rejects an accepted connection: counts and logs it, and closes. why: more to log, or NULL. */
void muster_pending_refuse(struct muster_pending_connection *pending, enum muster_rejection kind);
void muster_pending_refuse_because(struct muster_pending_connection *pending,
                                   enum muster_rejection kind, const char *why);
/* The same, after an answer with this verdict. */
void muster_pending_refuse_with(struct muster_pending_connection *pending,
                                enum muster_verdict verdict, enum muster_rejection kind);
/* The whole hello has arrived: checks it, and admits, parks or rejects the connection. */
void muster_pending_check_hello(struct muster_pending_connection *pending,
                                const unsigned char bytes[MUSTER_HELLO_SIZE]);
/* For the slot admit. True: this connection is to open the link, whose end has been created and
 * does not dial. False: another connection opens the link, or none does; this one has been answered
 * with the reason and closed. Both members choose the same one of two crossing connections. */
bool muster_pending_claim_link(struct muster_pending_connection *pending, struct muster_link *link);
/* The welcome could not be sent: closes the connection, and this member dials. */
void muster_pending_answer_failed(struct muster_pending_connection *pending,
                                  struct muster_link *link);

/* This member's hello to the peer. */
struct muster_hello muster_hello_to(const struct muster_link *link);
/* For the one dialled connection of a link: its answer is neither "welcome" nor "wait". */
void muster_pending_handle_refusal(struct muster_pending_connection *pending,
                                   struct muster_link *link, enum muster_verdict verdict);
/* Likewise: it was closed without an answer. Dials again later, or the link tries the next
 * transport. */
void muster_pending_handle_close(struct muster_pending_connection *pending,
                                 struct muster_link *link);

/* Creates the link's end, which does not dial yet; state OPENING. False if there is no memory: then
 * the link is lost. */
bool muster_pending_begin_link(struct muster_pending_connections *pending_list,
                               struct muster_link *link);

#endif
