/*
 * Inside the fabric: what a link is, what a transport has to provide (struct muster_transport), and
 * what it may call. Nothing outside worker/fabric includes this.
 *
 * Words. The leader is the one waiting thread that drives progress. The peer is the member at the
 * other end of a link; link->end is this member's end of it, the transport's own record. An opening
 * is the time from IDLE to LOST, PEER_LEFT or the next IDLE.
 *
 * Locks: everything here is called under the fabric's lock unless it says otherwise. A transport
 * that moves many bytes does so between muster_fabric_unlock() and muster_fabric_lock(). What it
 * uses meanwhile stays valid, because muster_fabric_withdraw() and all that closes links wait for
 * the leader first (muster_fabric_quiesce()).
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
    MUSTER_POSTED_MAX = 16384, /* receives posted on one link; and likewise sends */
    MUSTER_ELEMENT_MAX_BYTES = MUSTER_SEGMENT_BYTES_MIN, /* of a transfer's element_size_bytes */
    MUSTER_SEGMENT_BYTES = 256 * 1024 /* of one message, then other messages have their turn */
};

enum muster_link_state {
    MUSTER_LINK_IDLE = 0, /* no transfer has named the peer yet */
    MUSTER_LINK_OPENING = 1,
    MUSTER_LINK_OPEN = 2,
    MUSTER_LINK_PEER_LEFT = 3, /* the peer's goodbye has arrived */
    MUSTER_LINK_LOST = 4,      /* reason says why */
};

/* Of a link that is kept from an earlier generation, and whose peer has not been heard of in this
 * one. It is in by_member only. */
#define MUSTER_NO_RANK UINT32_MAX

/* All that connects this process with one other member. */
struct muster_link {
    struct muster_fabric *fabric;
    const struct muster_transport *ops; /* chosen when the link is first opened */
    void *transport;                    /* the ops' object in this fabric */
    void *end;                          /* the transport's own; NULL when closed */
    struct muster_peer peer;
    uint32_t rank; /* in the current generation; MUSTER_NO_RANK: not a member, as far as known */
    bool known;    /* the peer was added in this generation, with its addresses */
    enum muster_link_state state;
    uint32_t tried;                        /* bits: transports tried in this opening */
    uint64_t opened;                       /* times; another number is another opening */
    char reason[MUSTER_REASON_SIZE];       /* LOST, PEER_LEFT: the whole text, with rank and host */
    struct muster_transfer_table receives; /* posted, not done */
    uint32_t sends;                        /* posted, not done; the transport has them */
    bool marked;                           /* in fabric->marked */
    uint64_t last_generation;              /* in which this member was a peer */
    uint64_t told_generation;              /* the latest of which the peer has told its rank; 0 */
    uint32_t told_rank;
    enum muster_probe_verdict probed;       /* of the last probe; see fabric_probe.c */
    int64_t probed_until_ns;                /* it is valid so long */
    uint64_t activity;                      /* frames received, and frames with data sent */
    struct muster_link_presence *presence;  /* NULL: it is not awaited; see link_presence.c */
    struct muster_link *next_marked, *next; /* next: in fabric->retired_links */
    UT_hash_handle hh;                      /* fabric->by_member */
};

enum muster_direct_result {
    MUSTER_DIRECT_NOTHING = 0, /* nothing has arrived */
    MUSTER_DIRECT_OTHER = 1,   /* something else: for the slot progress */
    MUSTER_DIRECT_RECEIVED = 2,
};

struct muster_watch;
struct muster_dialler;
struct muster_pending_connection;
struct muster_pending_connections;
struct muster_socket_address;

/* A transport: its options, and how its links open, move messages and close. Each transport has one
 * const table, which is a row of the registry (transports.c). */
struct muster_transport {
    /* Its addresses begin with "NAME://"; its own options are the variables MUSTER_NAME_... */
    const char *name;

    /* Its links share memory: only members of one host may use them, and the slots for descriptors
     * are filled. */
    bool shares_memory;

    /* A send's data may be memory of a device. */
    bool reads_devices;

    /* A device writes to memory, and a wake-up costs an interrupt: the leader polls for longer
     * before it sleeps. */
    bool polls_device;

    /* Settings: the parsed options. Called without a lock, before there is a fabric. */

    /* Sets the fields of this transport from their variables. NULL: there are none. */
    void (*read_environment)(muster_options *options);

    /* Parses the fields of this transport, and variables that have no field. *used is true if the
     * transport is required; otherwise this sets it if the options ask for the transport.
     * *ret_settings may stay NULL. The error names the option, its variable and the value. NULL:
     * there are no options, and the transport is used where it is required. */
    muster_status (*parse)(const muster_options *options, bool *used, void **ret_settings);

    /* Frees the settings. NULL: there are never any. */
    void (*free_settings)(void *settings);

    /* Where the transport is not used: whether this machine has a device for it that the user may
     * have forgotten. Writes one line about it. NULL: there is none. */
    bool (*find_unused)(char *ret_text, size_t size);

    /* The transport of one fabric: an object of its own. */

    /* Creates the object and begins to accept. *ret_transport stays NULL if there can be no such
     * links and none are required. The settings are borrowed for the call. Called without the
     * lock. */
    muster_status (*start)(struct muster_fabric *fabric, const void *settings,
                           void **ret_transport);

    /* Stops accepting and frees the object; all links are closed. */
    void (*stop)(void *transport);

    /* Writes the addresses to publish, best first, at most `most`; returns their number. */
    uint32_t (*addresses)(const void *transport, uint32_t most,
                          char (*ret_addresses)[MUSTER_ADDRESS_SIZE]);

    /* muster_fabric_wake() has been called since the last time. */
    void (*woken)(void *transport);

    /* A generation is about to begin: sets links that died while no thread waited to IDLE, so that
     * they open again instead of being lost in the new generation. */
    void (*refresh)(void *transport);

    /* A generation has begun, with its peers (muster_fabric_find_link()): pending connections that
     * wait for it may be accepted. */
    void (*begin_generation)(void *transport);

    /* Handles timeouts. Returns when to be called again, or MUSTER_NEVER. */
    int64_t (*timers)(void *transport, int64_t now_ns);

    /* Memory that peers or devices write to has to be polled; the next three slots are NULL where
     * there is none. True if there is work for a link. Called by the leader without the lock. */
    bool (*poll)(const void *transport);

    /* Marks the links for which there is work. */
    void (*mark_updated)(void *transport);

    /* armed: the leader is about to sleep, and whatever writes from now on has to wake it; the
     * leader polls once more afterwards. Not armed: the leader is awake again. */
    void (*arm_wakeups)(void *transport, bool armed);

    /* A link of this transport. */

    /* Begins to open the link, which is IDLE. Sets the state to OPENING or OPEN, or calls
     * muster_link_fail(). */
    void (*open)(struct muster_link *link);

    /* Accepts a send; it is the transport's until it is completed. State OPENING or OPEN. */
    void (*post_send)(struct muster_link *link, struct muster_transfer *transfer);

    /* A receive has been added to link->receives. It may be completed at once. */
    void (*post_receive)(struct muster_link *link, struct muster_transfer *transfer);

    /* Small messages without transfers; NULL in all three where there are none. State OPEN. */

    /* Sends the whole message at once. False: there is no room, or something is to be sent before
     * it. */
    bool (*send_direct)(struct muster_link *link, const struct muster_direct_message *message);

    /* Takes the message with this key, if it is the next thing that has arrived. Called by the
     * leader. */
    enum muster_direct_result (*receive_direct)(struct muster_link *link,
                                                struct muster_direct_message *message);

    /* Whether anything may have arrived. Called by the leader without the lock. */
    bool (*poll_direct)(const struct muster_link *link);

    /* Forgets the operation: moves its sends to ret_sends, no longer touches its receives (which
     * are out of link->receives), and drops its unexpected messages. May wait until the peer has
     * finished one segment. */
    void (*withdraw)(struct muster_link *link, const struct muster_operation_id *operation,
                     struct muster_transfer_list *ret_sends);

    /* Tells the peer that the operation has failed. Best effort. */
    void (*abort)(struct muster_link *link, const struct muster_operation_id *operation,
                  const char *reason);

    /* If this member waits for a message of the operation from the peer, or for the grant of one,
     * sends the operation's signature; the peer passes it to muster_link_check_signature(). Best
     * effort: it is repeated while the operation waits. */
    void (*send_signature)(struct muster_link *link, const struct muster_operation_id *operation);

    /* Announces the messages of the operation that wait for their receives: calls
     * muster_link_announce() for each. */
    void (*announce)(struct muster_link *link, const struct muster_operation_id *operation);

    /* Drops a message that its sender offers, and ends its send with MUSTER_INVALID. False: the
     * message is not offered, since it is sent without a grant. */
    bool (*refuse)(struct muster_link *link, const struct muster_message_key *key,
                   const char *reason);

    /* Moves what can be moved without waiting. Called by the leader for links that are marked. */
    void (*progress)(struct muster_link *link);

    /* Reads what the peer has sent, without an event; *ret_any is true if there was anything, or
     * the link has changed. The leader calls it while it polls. False, or NULL: the link is read
     * from when memory or a descriptor says so. */
    bool (*receive)(struct muster_link *link, bool *ret_any);

    /* Queues a goodbye after all that was posted. */
    void (*send_goodbye)(struct muster_link *link);

    /* True when the goodbye is sent and there is nothing more to wait for. */
    bool (*goodbye_done)(const struct muster_link *link);

    /* The peer's goodbye has arrived: moves the sends that it has to ret_sends. Whole messages that
     * have arrived may stay for receives that are posted later. */
    void (*peer_left)(struct muster_link *link, struct muster_transfer_list *ret_sends);

    /* State PEER_LEFT: true if the whole message has arrived. */
    bool (*has_arrived)(const struct muster_link *link, const struct muster_message_key *key);

    /* State OPEN: whether the peer's kernel has acknowledged something lately, which it does
     * whatever its process is about. NULL: where the peer's end is gone, the transport loses the
     * link by itself. */
    bool (*answers)(const struct muster_link *link);

    /* Closes the link's end at once, in any state, and moves the sends that it has to ret_sends.
     * link->end is NULL afterwards. The peer sees a death unless the goodbye has been sent. */
    void (*close)(struct muster_link *link, struct muster_transfer_list *ret_sends);

    /* Descriptors over an open link. NULL in both where links share no memory. */

    /* Sends the peer a copy under this tag. MUSTER_RETRY: there is no room now. */
    muster_status (*send_descriptor)(struct muster_link *link, uint64_t generation, uint64_t tag,
                                     int fd);

    /* Takes out the descriptor that has arrived under this tag; -1: it has not arrived. */
    int (*receive_descriptor)(struct muster_link *link, uint64_t generation, uint64_t tag);

    /* Connections that are not open yet, where links begin with one and a hello: see
     * wire/pending_connections.h. Others have none of these. */
    struct {
        /* The verdict on a peer's connection to a link that is open, or opening, over another
         * transport. */
        enum muster_verdict elsewhere;

        /* The size of what link->end points to; and fills it when it is zeroed, without the
         * dialler's times and list. */
        size_t end_size_bytes;
        void (*init_end)(struct muster_link *link);

        /* Creates the record of an accepted connection by muster_pending_create(), which owns the
         * descriptor from now on. NULL: it failed. */
        struct muster_pending_connection *(*create)(struct muster_pending_connections *pending_list,
                                                    int fd,
                                                    const struct muster_socket_address *remote);

        /* An event on a connection, open or not: see struct muster_watch. */
        void (*ready)(struct muster_watch *watch, uint32_t events);

        /* Sends the verdict; false if that failed. */
        bool (*answer)(struct muster_pending_connection *pending, enum muster_verdict verdict);

        /* Closes the connection, also an open one: muster_pending_remove(), muster_watch_retire().
         */
        void (*close)(struct muster_pending_connection *pending);

        /* Whether this member's hello to the peer is out; the link is this transport's. */
        bool (*is_dialling)(const struct muster_link *link);

        /* A member of this generation has sent a hello with the right token: answers, and opens the
         * link or closes the connection. */
        void (*admit)(struct muster_pending_connection *pending, struct muster_link *link);

        /* The deadline of a connection in phase DIALLING or PROVING has passed. */
        void (*timed_out)(struct muster_pending_connection *pending);

        /* Dials: the first time for a link that is OPENING, or again. */
        void (*dial)(struct muster_dialler *dialler);

        /* State OPEN: whether the peer has closed the connection, or all of them. */
        bool (*is_closed)(const struct muster_link *link);

        /* Frees the transport's object. */
        void (*free)(struct muster_pending_connections *pending_list);
    } connection;
};

/* A descriptor whose events the leader waits for. Embedded in the transport's record. */
struct muster_watch {
    int fd;
    uint32_t events; /* EPOLLIN, ...; level-triggered */
    void (*ready)(struct muster_watch *watch, uint32_t events);
    void (*free)(
        struct muster_watch *watch); /* called when no thread can use the record any more */
    bool retired;
    struct muster_watch *next;
};

struct muster_waiter;

/* A thread that waits for a link to change its state, or for a descriptor. */
struct muster_observer {
    bool notified;
    struct muster_observer *next;
};

struct muster_fabric {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* busy or quiescing has changed */
    char member[MUSTER_UUID_SIZE];
    char token[MUSTER_TOKEN_SIZE];
    char first_address[MUSTER_ADDRESS_SIZE]; /* see muster_fabric_options; "": none */
    uint32_t segment_bytes;           /* at most; UINT32_MAX: transports have bounds of their own */
    struct muster_timeline *timeline; /* records the messages; borrowed; or NULL */
    struct muster_timeline *generations; /* gets their marks; borrowed; or NULL */

    struct {
        const struct muster_transport *ops;
        void *self;
    } transports[MUSTER_TRANSPORTS_MAX];
    uint32_t transport_count;
    char addresses[MUSTER_ADDRESSES_MAX][MUSTER_ADDRESS_SIZE]; /* to publish */
    uint32_t address_count;

    uint64_t generation;              /* 0: none begun */
    atomic_uint_fast64_t valid;       /* the same while it is not revoked, else 0 */
    char host[MUSTER_PEER_HOST_SIZE]; /* this member's, as the peers know it */
    uint32_t rank;                    /* this member's */
    struct muster_link **links;       /* [link_count], by rank; NULL: this member, or one of which
                                         nothing is known yet */
    struct muster_link *by_member;    /* the same in a hash, and links without a rank */
    uint32_t link_count;
    uint32_t known_count;                 /* of the links by rank */
    struct muster_peer_finder *finder;    /* or NULL */
    struct muster_ended_operations ended; /* of this generation */
    struct muster_signatures signatures;
    struct muster_announcement_listener *listeners;
    uint64_t revoked; /* generations up to this one */
    char revoked_reason[MUSTER_REASON_SIZE];
    bool loss_revokes; /* see muster_fabric_options */
    bool telling;      /* frames that tell of a revocation are queued; see revocation.c */
    bool killed;
    bool closing; /* muster_fabric_destroy() has begun: no connection is accepted any more */
    bool lost;    /* a link of this generation has been lost; the first one: */
    uint32_t lost_rank;
    char lost_reason[MUSTER_REASON_SIZE];
    char
        out_of_descriptors[MUSTER_REASON_SIZE]; /* what this process lacked them for; "": nothing */

    /* Progress. */
    int epoll_fd, wake_fd;
    struct muster_watch wake_watch;
    atomic_bool woken, sleeping;
    bool leading;                  /* one of the waiting threads is the leader */
    uint32_t turns;                /* of the leader since it last polled descriptors */
    uint32_t direct_receives;      /* since a wait last did what else was due */
    struct muster_waiter *waiters; /* the other waiting threads, which sleep */
    struct muster_link *marked;    /* marked links: ops->progress is to be called */
    struct muster_link *awaited;   /* that of the last posted receive, or NULL */
    uint32_t reads, reads_left;    /* of it, before the leader polls descriptors: leader_wait.c */
    struct muster_observer *observers;
    struct muster_transfer_list
        completed;      /* within a post: the leader calls their done functions */
    bool completed_any; /* a transfer, in the leader's current turn */
    bool busy;          /* the leader works without the lock */
    uint32_t quiescing; /* threads in muster_fabric_quiesce() */
    struct muster_watch *retired_watches;
    struct muster_link *retired_links;
    struct muster_spin_policy spin_policy; /* of the leader */

    uint32_t quiet_ms;       /* see muster_fabric_options; 0: the usual */
    int64_t presence_due_ns; /* when to look at the links next: link_presence.c */
    /* A timer: looks at the links that keep this member waiting. Returns when to be called again.
     * Progress knows no links, so it is a slot, as those of transports are. */
    int64_t (*look_at_links)(struct muster_fabric *fabric, int64_t now_ns);

    /* A link that is opened and whose peer is not known; and one without a rank, whose peer has
     * told one. Likewise slots: known_peers.h and sought_links.h know links. */
    void (*seek)(struct muster_link *link);
    muster_status (*claim_rank)(struct muster_link *link);

    struct muster_fabric_figures figures;
};

/* Links ---------------------------------------------------------------------------------------- */

/* This member's rank in the current generation. */
uint32_t muster_fabric_own_rank(const struct muster_fabric *fabric);

/* For texts: the name of the peer's host, if it is known. */
const char *muster_link_host(const struct muster_link *link);

/* The link to a member; NULL if there is none. */
struct muster_link *muster_fabric_find_link(struct muster_fabric *fabric, const char *member);

/* Opens the link if it is IDLE. */
void muster_link_open(struct muster_link *link);

/* The link is IDLE and its peer has dialled over this transport, which opens it now. */
void muster_link_use_transport(struct muster_link *link, const void *transport);

/* The leader calls ops->progress for the link in its next turn. */
void muster_link_mark(struct muster_link *link);

/* The transport cannot open the link: closes its end and tries the peer's next transport. If there
 * is none the link is lost, and `what` says why. State OPENING. */
void muster_link_try_next(struct muster_link *link, const char *what);

/* Posts what was posted to the link before again, to the transport that has it now: its receives,
 * and these sends. If the link is closed they end with MUSTER_REJOIN. */
void muster_link_repost(struct muster_link *link, struct muster_transfer_list *sends);

/* Wakes the threads that wait for a link to change. */
void muster_link_notify(const struct muster_link *link);

/* The transport has opened the link: state OPEN. */
void muster_link_opened(struct muster_link *link);

/* Closes the link and ends its transfers with MUSTER_REJOIN. The state is LOST, `what` says why,
 * and the loss is recorded for muster_fabric_lost_peer(); or it is PEER_LEFT, and `what` is not
 * used. */
void muster_link_fail(struct muster_link *link, enum muster_link_state state, const char *what);

/* The peer has told its rank in a generation, in a hello or a frame. A link without a rank gets it.
 * MUSTER_INVALID: it is another one than here; the text has both. What it tells of a later
 * generation is compared when that begins here; an earlier one does not matter. */
MUSTER_CHECKED muster_status muster_link_told_rank(struct muster_link *link, uint64_t generation,
                                                   uint32_t rank);
/* The present generation has begun: what the peer has told of it before. Loses the link as above.
 */
void muster_link_compare_rank(struct muster_link *link);

/* Whether the error number says that this process or this host can open no more descriptors. */
bool muster_is_out_of_descriptors(int error);

/* The link is lost for lack of descriptors, which is not the peer's fault. */
void muster_link_out_of_descriptors(struct muster_link *link, const char *what);

/* Transfers ---------------------------------------------------------------------------------- */

/* Ends the transfer, which is in no list or table, and calls its done function. On failure the
 * thread's error text is the reason. */
void muster_transfer_complete(struct muster_link *link, struct muster_transfer *transfer,
                              muster_status status);

/* The same with MUSTER_OK, within a post: the leader calls the done function later. */
void muster_transfer_complete_later(struct muster_link *link, struct muster_transfer *transfer);

/* Compares the calls of this member and the peer. MUSTER_INVALID: they differ; the text names the
 * peer and both values. */
MUSTER_CHECKED muster_status muster_link_compare_calls(const struct muster_link *link,
                                                       const struct muster_call *here,
                                                       const struct muster_call *there);

/* Compares the peer's call and message size with those of the transfer posted here. MUSTER_INVALID:
 * they differ; the text names the peer and both values. */
MUSTER_CHECKED muster_status muster_transfer_check(const struct muster_link *link,
                                                   const struct muster_transfer *transfer,
                                                   const struct muster_call *call,
                                                   uint64_t size_bytes);

/* The peer has aborted the operation: its transfers, posted now or later, end with MUSTER_INVALID.
 */
void muster_link_aborted(struct muster_link *link, const struct muster_operation_id *operation,
                         const char *reason);

/* The peer has sent an unexpected message of the operation, or the operation's signature. If this
 * member calls the operation with other arguments, ends the transfers of it as
 * muster_link_aborted() does, and aborts it at the peer. */
void muster_link_check_signature(struct muster_link *link, const struct muster_message_key *key,
                                 const struct muster_call *call);

/* Whether messages with this key are announced to a listener. */
static inline bool muster_key_is_announced(const struct muster_message_key *key)
{
    return (key->context & MUSTER_ANNOUNCED_CONTEXT) != 0;
}

/* A message with such a key has arrived or been offered, and has no receive: tells the listener,
 * which may post it. Without effect for other keys, and where nobody listens. */
void muster_link_announce(struct muster_link *link, const struct muster_message_key *key,
                          const struct muster_call *call, uint64_t size_bytes);

/* The link has ended: tells all listeners. */
void muster_link_tell_listeners(const struct muster_link *link);

/* The bytes of a message that move at once, in whole elements. most: what the transport allows. */
uint32_t muster_link_segment_bytes(const struct muster_link *link, uint32_t most,
                                   uint32_t element_size_bytes);

/* True if a message with this key is to be dropped: its generation is over, or its operation has
 * been withdrawn or aborted. */
bool muster_fabric_stale(const struct muster_fabric *fabric, const struct muster_message_key *key);

/* Revocations (revocation.c) ------------------------------------------------------------------- */

/* A link of this generation has been lost. */
void muster_fabric_revoke_after_loss(struct muster_fabric *fabric, const char *reason);

/* What a peer has aborted is not an operation but its whole generation. */
bool muster_operation_id_is_revocation(const struct muster_operation_id *operation);
/* A peer has told this member of it: passes it on the first time. */
void muster_fabric_revoked_by_peer(struct muster_fabric *fabric, uint64_t generation,
                                   const char *reason);

/* Progress ------------------------------------------------------------------------------------- */

/* Sends the frames of a revocation, for which no thread may be waiting any more. Does nothing if
 * there is a leader, which sends them. */
void muster_progress_tell(struct muster_fabric *fabric);

/* Wakes the leader. Any thread, with or without locks. */
void muster_fabric_wake(struct muster_fabric *fabric);

MUSTER_CHECKED muster_status muster_watch_add(struct muster_fabric *fabric,
                                              struct muster_watch *watch);
void muster_watch_change(struct muster_fabric *fabric, struct muster_watch *watch, uint32_t events);
/* Closes the descriptor, and frees the record as soon as no thread can use it any more. */
void muster_watch_retire(struct muster_fabric *fabric, struct muster_watch *watch);

/* MUSTER_REJOIN; the text says why the generation is over. */
muster_status muster_fabric_over(const struct muster_fabric *fabric, uint64_t generation);
MUSTER_CHECKED muster_status muster_progress_init(struct muster_fabric *fabric);
void muster_progress_finish(struct muster_fabric *fabric);
/* One turn of the leader, which begins at now_ns (0: the clock is read if that is needed): progress
 * of the marked links; if there was none, waits for events, at most until the deadline. */
void muster_progress_turn(struct muster_fabric *fabric, int64_t now_ns, int64_t deadline_ns);
void muster_progress_wake_all(struct muster_fabric *fabric);
/* The next turn handles events, too. */
void muster_progress_expect_events(struct muster_fabric *fabric);
/* A thread that was the leader is not any more: another waiting thread becomes it. */
void muster_progress_end_leading(struct muster_fabric *fabric);

/* For the leader: releases the lock to move bytes, and takes it again. Meanwhile transfers may have
 * been posted; nothing else has changed. */
void muster_fabric_unlock(struct muster_fabric *fabric);
void muster_fabric_lock(struct muster_fabric *fabric);

/* For the leader, before it moves the next bytes: lets threads in muster_fabric_quiesce() go first.
 * Afterwards transfers may have been withdrawn and links closed. */
void muster_fabric_yield(struct muster_fabric *fabric);

/* For other threads, with the lock: waits until the leader moves no bytes, at most for one segment,
 * and has recorded what it has moved. The leader pauses until the caller releases the lock. */
void muster_fabric_quiesce(struct muster_fabric *fabric);

#endif
