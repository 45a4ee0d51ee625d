/*
 * Inside the fabric: what a link is, what a transport must provide (struct muster_transport), and
 * what it may call. Nothing outside worker/fabric includes this.
 *
 * Locks: everything here happens under the fabric's lock unless it says otherwise. A transport that
 * moves bytes for long does so between muster_fabric_unlock() and muster_fabric_lock(); what it
 * touches meanwhile is not taken from under it, because muster_fabric_withdraw() and those who
 * close links wait for it (muster_fabric_quiesce()).
 */
#ifndef MUSTER_WORKER_FABRIC_LINK_H
#define MUSTER_WORKER_FABRIC_LINK_H

#include "worker/base/spin_policy.h"
#include "worker/base/status.h"
#include "worker/fabric/ended_operations.h"
#include "worker/fabric/signatures.h"
#include "worker/fabric/transfers.h"
#include "worker/fabric/wire/hello.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uthash.h>

enum {
    MUSTER_TRANSPORTS_MAX = 8, /* of one fabric */
    MUSTER_POSTED_MAX = 16384, /* receives, and sends, posted on one link */
    MUSTER_ELEMENT_MAX_BYTES = MUSTER_SEGMENT_BYTES_MIN, /* of a transfer's element_size_bytes */
    MUSTER_SEGMENT_BYTES = 256 * 1024 /* what one message moves before others have their turn */
};

enum muster_link_state {
    MUSTER_LINK_IDLE = 0, /* nobody has named the peer yet */
    MUSTER_LINK_OPENING = 1,
    MUSTER_LINK_OPEN = 2,
    MUSTER_LINK_PEER_LEFT = 3, /* the peer said goodbye */
    MUSTER_LINK_LOST = 4,      /* reason says why */
};

/* All that connects this process with one other member. */
struct muster_link {
    struct muster_fabric *fabric;
    const struct muster_transport *ops; /* chosen when the link is first opened */
    void *transport;                    /* the ops' object in this fabric */
    void *end;                          /* the transport's own; NULL when closed */
    struct muster_peer peer;
    uint32_t rank; /* in the present generation */
    enum muster_link_state state;
    uint32_t tried;                  /* bits: transports of the fabric, in this opening */
    uint64_t opened;                 /* how often; tells whether it is still the same opening */
    char reason[MUSTER_REASON_SIZE]; /* LOST and LEFT: whole text, with rank and host */
    struct muster_transfer_table receives; /* posted, not done */
    uint32_t sends;                        /* posted, not done; the transport holds them */
    bool dirty;                            /* in the fabric's list of links to progress */
    uint64_t named;                        /* in this generation last */
    struct muster_link *next_dirty, *next; /* next: links that wait to be freed */
    UT_hash_handle hh;                     /* fabric->by_member */
};

struct muster_watch;
struct muster_dialler;
struct muster_pending_connection;
struct muster_pending_connections;
struct muster_socket_address;

/* A transport: its options, and how its links open, move messages and close. One const table each,
 * which is a row of the registry (transports.c). */
struct muster_transport {
    /* Its addresses begin with "NAME://"; options of its own are variables MUSTER_NAME_... */
    const char *name;

    /* Its links share memory: only members of one host may use them, and the slots for descriptors
     * are there. */
    bool shares_memory;

    /* Sends may be out of memory of a GPU. */
    bool reads_gpu;

    /* Polling pays for longer than otherwise: a device writes, and a sleep costs an interrupt. */
    bool polls_device;

    /* Settings: what it has made of the options. Called without a lock, before there is a fabric.
     */

    /* Sets those fields that it parses from their variables; NULL: there are none. */
    void (*read_environment)(muster_options *options);

    /* Makes the settings of those options, and of variables that have no field. *used is true if
     * the transport is required; otherwise it is set if the options ask for it. *ret_settings may
     * stay NULL. The error names the option, its variable and the value. NULL: there are no
     * options, and it is used where it is required. */
    muster_status (*parse)(const muster_options *options, bool *used, void **ret_settings);

    /* Frees the settings; NULL if there are never any. */
    void (*free_settings)(void *settings);

    /* The fabric's object of this transport. */

    /* Makes it and begins to accept. *ret_transport stays NULL if there can be no such links and
     * none are required. The settings are borrowed for the call. Called without the lock. */
    muster_status (*start)(struct muster_fabric *fabric, const void *settings,
                           void **ret_transport);

    /* Stops accepting and frees the object; all links are closed. */
    void (*stop)(void *transport);

    /* Writes what is to be published, best first, and returns how many addresses that are. */
    uint32_t (*addresses)(const void *transport, uint32_t most,
                          char (*ret_addresses)[MUSTER_ADDRESS_SIZE]);

    /* muster_fabric_wake() was called since the last time. */
    void (*woken)(void *transport);

    /* A generation is about to begin: marks links that died while nobody looked, so that they open
     * anew instead of being lost in the new generation. */
    void (*refresh)(void *transport);

    /* The peers have changed (fabric->generation, muster_fabric_find_link()): those who waited for
     * that may be accepted now. */
    void (*begin_generation)(void *transport);

    /* Ends what has waited too long. Returns when to be called again, or MUSTER_NEVER. */
    int64_t (*timers)(void *transport, int64_t now_ns);

    /* Memory that peers write to is looked at, since no descriptor tells of it; transports without
     * such memory have NULL in all three. True if there is something new for a link: called by the
     * leader between muster_fabric_unlock() and muster_fabric_lock(). */
    bool (*poll)(const void *transport);

    /* Marks the links that have something new. */
    void (*mark_updated)(void *transport);

    /* The leader is about to sleep: peers that write are to wake it from now on; then it looks once
     * more. Or it is awake again. */
    void (*arm_wakeups)(void *transport, bool dozing);

    /* A link of this transport. */

    /* Begins to open; called once, in state IDLE. Sets the state to OPENING or OPEN, or calls
     * muster_link_fail(). */
    void (*open)(struct muster_link *link);

    /* A send is to go out: the transport holds it until it completes it. State OPENING or OPEN. */
    void (*post_send)(struct muster_link *link, struct muster_transfer *transfer);

    /* A receive was put into link->receives. It may be completed at once. */
    void (*post_receive)(struct muster_link *link, struct muster_transfer *transfer);

    /* Forgets the operation: moves its sends to ret_sends, no longer touches its receives (already
     * taken out of link->receives), drops what has arrived for it. May wait for the peer to finish
     * one segment. */
    void (*withdraw)(struct muster_link *link, const struct muster_operation_id *operation,
                     struct muster_transfer_list *ret_sends);

    /* Tells the peer that the operation has failed. Best effort. */
    void (*abort)(struct muster_link *link, const struct muster_operation_id *operation,
                  const char *reason);

    /* If a message of the operation is still to come from the peer, or to be granted by it, tells
     * it how the operation is called here; the peer gives that to muster_link_check_signature().
     * Best effort; asked for again if the message goes on waiting. */
    void (*send_signature)(struct muster_link *link, const struct muster_operation_id *operation);

    /* Moves what can be moved without waiting; called by the leader for links that were marked. */
    void (*progress)(struct muster_link *link);

    /* Says goodbye to the peer once all that was accepted is out. */
    void (*send_goodbye)(struct muster_link *link);

    /* True when the goodbye is out and nothing is left to wait for. */
    bool (*goodbye_done)(const struct muster_link *link);

    /* The peer has said goodbye: moves the sends it holds to ret_sends. What has arrived whole may
     * stay for receives that are posted later. */
    void (*peer_left)(struct muster_link *link, struct muster_transfer_list *ret_sends);

    /* State LEFT: true if the whole message is here. */
    bool (*has_arrived)(const struct muster_link *link, const struct muster_message_key *key);

    /* Closes at once, whatever the state; moves the sends it holds to ret_sends; link->end is NULL
     * afterwards. The peer sees a death unless the goodbye is out. */
    void (*close)(struct muster_link *link, struct muster_transfer_list *ret_sends);

    /* Descriptors over an open link. NULL in both where links share no memory. */

    /* Hands the peer a copy, under this tag. MUSTER_RETRY: there is no room now. */
    muster_status (*give_descriptor)(struct muster_link *link, uint64_t generation, uint64_t tag,
                                     int fd);

    /* Takes the one that the peer has given under this tag; -1: it has not come. */
    int (*take_descriptor)(struct muster_link *link, uint64_t generation, uint64_t tag);

    /* Connections that are not open yet, where links begin with one and a hello: see
     * wire/pending_connections.h. Others have none of these. */
    struct {
        /* The verdict on a peer's connection to a link that is open, or opening, over another
         * transport. */
        enum muster_verdict elsewhere;

        /* What link->end points to: its size, and what fills it when it is zeroed, but for the
         * dialler's times and place. */
        size_t end_size_bytes;
        void (*init_end)(struct muster_link *link);

        /* A new connection: makes its record by muster_pending_create() and returns it. Takes the
         * descriptor, also on failure: NULL then. */
        struct muster_pending_connection *(*create)(struct muster_pending_connections *pending_list,
                                                    int fd,
                                                    const struct muster_socket_address *remote);

        /* There is news on a connection, open or not: see struct muster_watch. */
        void (*ready)(struct muster_watch *watch, uint32_t events);

        /* Sends the verdict; false if that failed. */
        bool (*answer)(struct muster_pending_connection *pending, enum muster_verdict verdict);

        /* Ends the connection, also an open one: muster_pending_remove(), muster_watch_retire(). */
        void (*close)(struct muster_pending_connection *pending);

        /* Whether our own call to it is under way; the link is this transport's. */
        bool (*is_dialling)(const struct muster_link *link);

        /* A member of this generation calls, with the right token: answers, and opens or closes. */
        void (*admit)(struct muster_pending_connection *pending, struct muster_link *link);

        /* The time of one that is DIALLING or PROVING is over. */
        void (*timed_out)(struct muster_pending_connection *pending);

        /* A call is due: the first to a link that is OPENING, or another. */
        void (*dial)(struct muster_dialler *dialler);

        /* State OPEN: whether the peer has ended the connection, or all of them. */
        bool (*is_closed)(const struct muster_link *link);

        /* Frees the transport's object. */
        void (*free)(struct muster_pending_connections *pending_list);
    } connection;
};

/* A descriptor that the leader waits for. Embedded in the transport's record. */
struct muster_watch {
    int fd;
    uint32_t events; /* EPOLLIN, ...; level-triggered */
    void (*ready)(struct muster_watch *watch, uint32_t events);
    void (*free)(struct muster_watch *watch); /* called when no thread can still see the record */
    bool retired;
    struct muster_watch *next;
};

struct muster_waiter;

/* A thread that waits for a link to change. */
struct muster_observer {
    bool noticed;
    struct muster_observer *next;
};

struct muster_fabric {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* busy or wanted has changed */
    char member[MUSTER_UUID_SIZE];
    char token[MUSTER_TOKEN_SIZE];
    char first_address[MUSTER_ADDRESS_SIZE]; /* see muster_fabric_options; "": none */
    uint32_t segment_bytes;           /* at most; UINT32_MAX: transports have bounds of their own */
    struct muster_timeline *timeline; /* borrowed; or NULL */

    struct {
        const struct muster_transport *ops;
        void *self;
    } transports[MUSTER_TRANSPORTS_MAX];
    uint32_t transport_count;
    char addresses[MUSTER_ADDRESSES_MAX][MUSTER_ADDRESS_SIZE]; /* to be published */
    uint32_t address_count;

    uint64_t generation;              /* 0: none begun */
    char host[MUSTER_PEER_HOST_SIZE]; /* of oneself, as the peers know it */
    struct muster_link **links;       /* [link_count], by rank; NULL for oneself */
    struct muster_link *by_member;    /* the same in a hash */
    uint32_t link_count;
    struct muster_ended_operations operations; /* withdrawn and aborted ones of this generation */
    struct muster_signatures calls;
    uint64_t revoked; /* generations up to this one */
    char revoked_reason[MUSTER_REASON_SIZE];
    bool killed;
    bool parting; /* being destroyed: nobody is accepted any more */
    bool lost;    /* a link of this generation was lost; the first one is: */
    uint32_t lost_rank;
    char lost_reason[MUSTER_REASON_SIZE];
    char exhausted[MUSTER_REASON_SIZE]; /* how this process lacked descriptors; "": it did not */

    /* Progress. */
    int epoll_fd, wake_fd;
    struct muster_watch wake_watch;
    atomic_bool woken, sleeping;
    bool leading;                          /* one of the waiting threads drives */
    uint32_t turns;                        /* of the leader since it last took events */
    struct muster_waiter *waiters;         /* the others sleep */
    struct muster_link *dirty;             /* links to progress */
    struct muster_observer *observers;     /* threads that wait for a link to change */
    struct muster_transfer_list completed; /* done within a post: reported by the leader */
    bool reported;                         /* a transfer, in the leader's present turn */
    bool busy;                             /* the leader moves bytes, without the lock */
    uint32_t wanted;                       /* threads that wait for it to come back */
    struct muster_watch *retired_watches;
    struct muster_link *retired_links;
    struct muster_spin_policy spin_policy; /* the leader's */

    struct muster_fabric_figures figures;
};

/* Links ---------------------------------------------------------------------------------------- */

/* In the present generation. */
uint32_t muster_fabric_own_rank(const struct muster_fabric *fabric);

/* The link to a member of this generation; NULL if it is none, or oneself. */
struct muster_link *muster_fabric_find_link(struct muster_fabric *fabric, const char *member);

/* Whether the address begins with "SCHEME://". */
bool muster_link_has_scheme(const char *address, const char *scheme);

/* Opens it if it is idle. */
void muster_link_open(struct muster_link *link);

/* It is idle, and its peer calls over this transport, which opens it now. */
void muster_link_use_transport(struct muster_link *link, const void *transport);

/* Has the leader call ops->progress soon. */
void muster_link_mark(struct muster_link *link);

/* The transport cannot open it: closes its end and goes on to the peer's next transport; without
 * one the link is lost, and `what` says how. State OPENING. */
void muster_link_try_next(struct muster_link *link, const char *what);

/* Threads that wait for a link to change look again. */
void muster_link_notify(const struct muster_link *link);

/* The transport has opened it: state OPEN. */
void muster_link_opened(struct muster_link *link);

/* The link is over: closes it and ends its transfers with MUSTER_REJOIN. LOST: `what` says how, and
 * the loss is noted for the report; LEFT: `what` is not used. */
void muster_link_fail(struct muster_link *link, enum muster_link_state state, const char *what);

/* Whether the error says that this process, or this host, can open no more descriptors. */
bool muster_is_exhausted(int error);

/* The link is lost because of that: the peer is not to blame. */
void muster_link_exhausted(struct muster_link *link, const char *what);

/* Transfers: each takes it out of nothing; the holder does so first -------------------------- */

/* Ends it and calls its done function. On failure the thread's error text is the reason. */
void muster_transfer_complete(struct muster_link *link, struct muster_transfer *transfer,
                              muster_status status);

/* Ends it well; its done function is called by the leader. For use within a post. */
void muster_transfer_complete_later(struct muster_link *link, struct muster_transfer *transfer);

/* Compares the calls of both ends. On a mismatch the text names the peer and both values. */
MUSTER_CHECKED muster_status muster_link_compare_calls(const struct muster_link *link,
                                                       const struct muster_call *here,
                                                       const struct muster_call *there);

/* Compares what the peer says with the receive that is posted here. On a mismatch sets the error
 * text, which names the peer and both values, and returns MUSTER_INVALID. */
MUSTER_CHECKED muster_status muster_transfer_check(const struct muster_link *link,
                                                   const struct muster_transfer *transfer,
                                                   const struct muster_call *call,
                                                   uint64_t size_bytes);

/* The peer has aborted the operation: ends all transfers of it, now and later. */
void muster_link_aborted(struct muster_link *link, const struct muster_operation_id *operation,
                         const char *reason);

/* The peer has sent a message ahead of the transfer that it is for, or said how it calls. If it
 * calls the operation otherwise than this member does, ends all transfers of it, now and later, and
 * tells the peer. */
void muster_link_check_signature(struct muster_link *link, const struct muster_message_key *key,
                                 const struct muster_call *call);

/* How many bytes of a message move at once, where the transport can do `most`: whole elements. */
uint32_t muster_link_segment_bytes(const struct muster_link *link, uint32_t most,
                                   uint32_t element_size_bytes);

/* True if what arrives with this key is for nobody: an older generation, an operation that was
 * withdrawn or aborted. */
bool muster_fabric_stale(const struct muster_fabric *fabric, const struct muster_message_key *key);

/* Progress ------------------------------------------------------------------------------------- */

/* Any thread, with or without locks: the leader looks again. */
void muster_fabric_wake(struct muster_fabric *fabric);

MUSTER_CHECKED muster_status muster_watch_add(struct muster_fabric *fabric,
                                              struct muster_watch *watch);
void muster_watch_change(struct muster_fabric *fabric, struct muster_watch *watch, uint32_t events);
/* Closes the descriptor and frees the record as soon as nobody can still see it. */
void muster_watch_retire(struct muster_fabric *fabric, struct muster_watch *watch);

/* progress.c, called by fabric.c. Over: MUSTER_REJOIN, and the text says why. */
muster_status muster_fabric_over(const struct muster_fabric *fabric, uint64_t generation);
MUSTER_CHECKED muster_status muster_progress_init(struct muster_fabric *fabric);
void muster_progress_finish(struct muster_fabric *fabric);
/* One turn: what is marked, then events until the deadline if nothing was. */
void muster_progress_turn(struct muster_fabric *fabric, int64_t deadline_ns);
void muster_progress_wake_all(struct muster_fabric *fabric);

/* The leader gives up the lock while it moves bytes, then takes it again. Meanwhile transfers may
 * have been posted, and nothing else has changed. */
void muster_fabric_unlock(struct muster_fabric *fabric);
void muster_fabric_lock(struct muster_fabric *fabric);

/* For the leader, before it moves the next bytes: lets those go first who wait for it to pause.
 * Afterwards transfers may have been withdrawn and links closed. */
void muster_fabric_yield(struct muster_fabric *fabric);

/* For other threads that hold the lock: waits until the leader moves no bytes (at most a segment)
 * and has noted what it has moved. It does not go on before the caller gives up the lock. */
void muster_fabric_quiesce(struct muster_fabric *fabric);

#endif
