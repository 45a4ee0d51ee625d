/*
 * The fabric: all links of one process.
 *
 * It moves messages. Both members know the key of a message beforehand, because both hold the
 * schedule: the sender posts a send transfer and the receiver a receive transfer with the same key,
 * in either order, and each is completed once. Transfers with different keys never wait for each
 * other for longer than one segment takes. The link to a member is opened when the first transfer
 * names the member; several links open in parallel, and links outlive generations.
 *
 * Ownership: a transfer record and its data are the caller's and must stay valid and untouched
 * from muster_fabric_post() until the state is DONE or muster_fabric_withdraw() has returned.
 *
 * Threads: any thread may call any function here. The fabric has no thread of its own: one of the
 * waiting threads, the leader, drives the progress of all transfers, whoever posted them. While no
 * thread waits, only the kernel and the peers make progress.
 *
 * Only functions that say so block. One exception: where an RDMA device cannot read the memory of
 * another device, the function that moves the data waits until that device has copied them.
 *
 * May use: worker/base, trace and memory, device/devices.h, call.h and range_list.h of
 * collectives/call. May not know: schedules, contexts, sessions.
 */
#ifndef MUSTER_WORKER_FABRIC_FABRIC_H
#define MUSTER_WORKER_FABRIC_FABRIC_H

#include "collectives/call/call.h"
#include "collectives/call/range_list.h"
#include "worker/base/random.h"

enum {
    /* Of all that members send each other: frames, hellos, and the records that communicators and
     * sessions exchange (introduction.h, figures_wire.h, sync_wire.h). A change of any of them is a
     * new version: members of different versions refuse each other by the hello (wire/hello.h). */
    MUSTER_WIRE_VERSION = 10,
    MUSTER_ADDRESSES_MAX = 16, /* published by one member */
    MUSTER_PEER_HOST_SIZE = 64,
    MUSTER_ADDRESS_SIZE = 128, /* "tcp://[fe80::1]:65535" and its terminator */
    MUSTER_TOKEN_SIZE = 129,   /* link token and its terminator */
    MUSTER_SEGMENT_BYTES_MIN = 256,
    MUSTER_CONNECTIONS_MAX = 16, /* of one link, whatever the transport */
    MUSTER_REASON_SIZE = 256,    /* why an operation was aborted or a generation revoked */
};

struct muster_fabric;
struct muster_timeline;
struct muster_device_memory;
struct muster_transport_settings;

/* Identifies a message between two members. */
struct muster_message_key {
    uint64_t generation;
    uint64_t sequence; /* number of the operation within its context, from 1 */
    uint32_t context;  /* number of the context within the generation */
    uint32_t ordinal;  /* n-th message of this lane from this sender to this receiver, from 0 */
    uint16_t lane;
};

enum muster_direction {
    MUSTER_SEND = 1,
    MUSTER_RECEIVE = 2,
};

enum muster_transfer_state {
    MUSTER_TRANSFER_IDLE = 0,
    MUSTER_TRANSFER_POSTED = 1,
    MUSTER_TRANSFER_DONE = 2, /* status says how it ended */
};

struct muster_transfer;

/* Called for each piece of the message, in order; a piece is a number of whole elements. The data
 * is borrowed for the call, and is the sender's own memory on some links. Called without the
 * fabric's lock; must not call the fabric. */
typedef void (*muster_consume_function)(struct muster_transfer *transfer, uint64_t offset_bytes,
                                        const void *data, size_t size_bytes);

/* Called once when the transfer has become DONE, with the fabric's lock held, by the thread that
 * drives progress or that posts the transfer. May call muster_fabric_post_locked() and nothing else
 * here. If the status is not MUSTER_OK, muster_last_error() says why for the length of the call,
 * and names the peer's rank. */
typedef void (*muster_done_function)(struct muster_transfer *transfer);

struct muster_transfer {
    /* Filled by the caller. */
    struct muster_message_key key;
    const struct muster_call *call; /* sent with the message, compared by the peer; borrowed */
    enum muster_direction direction;
    uint32_t peer; /* global rank in key.generation */
    void *data;    /* SEND: read from here; RECEIVE: written here, unless consume is set */
    /* Instead of data: the message lies in these ranges from this byte of theirs on, in more than
     * one of them; borrowed. NULL: in data. Only memory of the host. */
    const struct muster_range_list *ranges;
    uint64_t ranges_at_bytes;
    uint64_t size_bytes; /* the same at both members; a message of 0 bytes is sent, too */
    muster_consume_function consume; /* RECEIVE: is passed the pieces instead of data; or NULL */
    /* RECEIVE with consume: only pieces that are what was sent. Else a piece may be the memory of a
     * sender that withdraws it meanwhile; then the message is not delivered. */
    bool checked;
    bool quick; /* RECEIVE with consume: it takes no lock and calls nothing of the user's, so that
                   small pieces are passed to it with the fabric's lock */
    uint32_t element_size_bytes; /* pieces are multiples of it; 1 or more */
    int32_t priority;            /* SEND: segments of a higher one go before those of a lower one */
    muster_done_function done;   /* or NULL */
    void *owner;                 /* the caller's */
    /* SEND: data is memory of a device, of this allocation; borrowed; only for links that read such
     * memory (muster_fabric_reads_devices()). NULL: memory of the host, as RECEIVE always has. */
    const struct muster_device_memory *memory;
    bool to_device; /* consume only copies to a device: for the timeline */

    /* Written by the fabric. */
    enum muster_transfer_state state;
    muster_status status; /* when DONE: OK, INVALID (the members disagree), REJOIN (link lost),
                             FATAL (memory of a device cannot be read) */
    uint64_t moved_bytes; /* so far; never decreases */
    /* Where there is a timeline: when the transfer was posted, and when its first byte began to
     * move (0: not observed). */
    int64_t posted_ns, begun_ns;

    /* Private to the link. */
    struct muster_transfer *next, *previous;
    uint64_t link_word;
};

/* Transports ---------------------------------------------------------------------------------- */

/* Each transport parses its own options: fields of muster_options, and environment variables. */

/* Sets the fields of all transports from their variables; part of muster_options_init(). */
void muster_transports_read_environment(muster_options *options);

/* The settings of the transports, for muster_fabric_create(). only: the names of the transports to
 * use, "shm,tcp", each of which is required; NULL: those that the options ask for. MUSTER_INVALID
 * names the option, its variable and the value. The settings are the caller's. */
MUSTER_CHECKED muster_status
muster_transports_parse(const muster_options *options, const char *only,
                        struct muster_transport_settings **ret_settings);
/* Whether a transport that the settings do not contain has an active device on this machine. Writes
 * one line that names the device and the option. */
bool muster_transports_find_unused(const struct muster_transport_settings *settings, char *ret_text,
                                   size_t size);
/* Accepts NULL. */
void muster_transport_settings_destroy(struct muster_transport_settings *settings);

/* A fabric ------------------------------------------------------------------------------------ */

struct muster_fabric_options {
    const char *member;     /* this member's UUID; copied */
    const char *link_token; /* both members of a link must have it; "" for none; copied */
    const struct muster_transport_settings *transports; /* borrowed for the call */
    /* This host's address towards the other members, "10.0.0.1". It is published before the other
     * addresses. If it is a loopback address and the options do not say where to listen, it is the
     * only one. NULL: not known; copied. */
    const char *first_address;
    uint32_t segment_bytes; /* for tests: the largest part of a message that moves at once,
                               MUSTER_SEGMENT_BYTES_MIN or more; 0: the transport's own */
    /* Gets a mark for each generation, and records the messages if it records when the fabric is
     * created. Borrowed; or NULL. */
    struct muster_timeline *timeline;
    /* There is no service that would tell the members of a death: a link that is lost revokes the
     * generation, as by muster_fabric_revoke_for_all(). */
    bool loss_revokes;
    /* For tests: after how long without a sign of a member that keeps this one waiting its port is
     * dialled; the other times of address/presence.h scale with it. 0: MUSTER_PRESENCE_QUIET_MS. */
    uint32_t quiet_ms;
};

/* Starts listening. MUSTER_INVALID: an address is not numeric or not one of this machine, no port
 * is free, no interface has the name, or a TLS file cannot be used; MUSTER_FATAL: no descriptors or
 * memory. */
MUSTER_CHECKED muster_status muster_fabric_create(const struct muster_fabric_options *options,
                                                  struct muster_fabric **ret_fabric);

/* Sends what was posted and a goodbye on each link, so that peers see a leave and not a death.
 * Waits at most linger_ms for the goodbyes to be sent, then closes the links. Blocks. No transfer
 * may be posted. Accepts NULL. */
void muster_fabric_destroy(struct muster_fabric *fabric, uint32_t linger_ms);

/* For tests: closes all links without goodbye, as if the process had died; waits and posts end with
 * MUSTER_REJOIN. muster_fabric_destroy() must still be called. */
void muster_fabric_kill(struct muster_fabric *fabric);

/* Links that open from now on need this link token, which comes with the answer to Join. */
void muster_fabric_set_token(struct muster_fabric *fabric, const char *link_token);

/* The timeline that records the messages, or NULL. */
struct muster_timeline *muster_fabric_timeline(const struct muster_fabric *fabric);

/* The addresses to publish, best first: "shm://BOOT/NETWORK/NAME", "tcp://10.0.0.1:41234". index is
 * less than the count. */
uint32_t muster_fabric_address_count(const struct muster_fabric *fabric);
const char *muster_fabric_address(const struct muster_fabric *fabric, uint32_t index);

/* True for an address at which members of one host share memory. */
bool muster_fabric_address_is_local(const char *address);

/* A member as the others see it. */
struct muster_peer {
    char member[MUSTER_UUID_SIZE];
    char host[MUSTER_PEER_HOST_SIZE];
    bool other_host; /* than this member's: addresses at which members of one host share memory are
                        not used; the same at both members */
    uint32_t address_count;
    char addresses[MUSTER_ADDRESSES_MAX][MUSTER_ADDRESS_SIZE]; /* tried in order */
};

/* Begins a generation: peers[i] is global rank i, this member included; copied. Links to members of
 * both generations stay open, others close. Messages of older generations are dropped from now on;
 * messages that have already arrived for this one are kept. Transfers of older generations must
 * have been withdrawn. Generation numbers only grow. */
MUSTER_CHECKED muster_status muster_fabric_begin_generation(struct muster_fabric *fabric,
                                                            uint64_t generation,
                                                            const struct muster_peer *peers,
                                                            uint32_t count);

/* Finds members that are not known. */
struct muster_peer_finder {
    /* A transfer names a member that is not known, and waits until it is added, or until it dials
     * this one. Called with the fabric's lock held; may not block, nor call the fabric. */
    void (*wanted)(struct muster_peer_finder *finder);
};

/* A generation of which this member does not know all others yet. Borrowed for the call. */
struct muster_fabric_generation {
    uint64_t number;
    uint32_t rank, size;             /* this member's global rank; members */
    const char *host;                /* this member's, as the peers know it */
    uint32_t local_rank, local_size; /* among the members of this host */
    const struct muster_peer *peers; /* [peer_count] those that are known; not this member */
    const uint32_t *ranks;           /* [peer_count] their global ranks */
    uint32_t peer_count;
    struct muster_peer_finder *finder; /* borrowed until muster_fabric_forget_finder(), or until the
                                          next generation; NULL: a transfer to a member that is not
                                          known is refused */
};

/* No function of the finder is called any more. */
void muster_fabric_forget_finder(struct muster_fabric *fabric);

/* The same for such a generation. The other members become known by muster_fabric_add_peers(), or
 * dial this one: whoever has the link token is a member, with the rank that it says. Links to
 * members that are not known stay open, too, until their member says its rank in this generation,
 * or leaves. */
MUSTER_CHECKED muster_status muster_fabric_begin_partly_known(
    struct muster_fabric *fabric, const struct muster_fabric_generation *generation);

/* More members of the generation are known from now on: peers[i] is global rank ranks[i]; copied.
 * Those that are known already stay as they are. MUSTER_REJOIN: the generation is over.
 * MUSTER_INVALID: a rank that another member has; the text names both. */
MUSTER_CHECKED muster_status muster_fabric_add_peers(struct muster_fabric *fabric,
                                                     uint64_t generation,
                                                     const struct muster_peer *peers,
                                                     const uint32_t *ranks, uint32_t count);

/* The same for one, with the fabric's lock held. */
MUSTER_CHECKED muster_status muster_fabric_add_peer_locked(struct muster_fabric *fabric,
                                                           uint64_t generation,
                                                           const struct muster_peer *peer,
                                                           uint32_t rank);

/* The last one before this rank, in the ring of all ranks and seen from this member, to whom this
 * member has a link or knows the way; the rank itself, if it is known. False: there is none, or the
 * generation is over. With the fabric's lock held. */
bool muster_fabric_find_before_locked(const struct muster_fabric *fabric, uint64_t generation,
                                      uint32_t rank, uint32_t *ret_rank);

/* This member in the present generation, as others may add it. */
void muster_fabric_describe(struct muster_fabric *fabric, struct muster_peer *ret_peer);

/* The members, not known yet, for which transfers are posted; at most `most`. If there are any but
 * fewer than `least`, others that are not known follow. Returns how many. */
uint32_t muster_fabric_list_sought(struct muster_fabric *fabric, uint64_t generation,
                                   uint32_t least, uint32_t most, uint32_t *ret_ranks);

/* All waits and posts in generations up to this one, now and later, end with MUSTER_REJOIN and this
 * reason. Wakes all waiting threads. */
void muster_fabric_revoke(struct muster_fabric *fabric, uint64_t generation, const char *reason);

/* The same, and all other members are told: those with an open link to this one, who pass it on to
 * those with open links to them. What they are told begins with this member's rank. Sent by the
 * time that this returns, unless a link is congested; then by the next thread that waits, or by the
 * fabric's end. */
void muster_fabric_revoke_for_all(struct muster_fabric *fabric, uint64_t generation,
                                  const char *reason);

/* For a thread that keeps watch while no other waits: drives progress as far as that is possible
 * now, unless another thread does. Does not block. */
void muster_fabric_poll(struct muster_fabric *fabric);

/* MUSTER_REJOIN: the generation is revoked or over; the text says why. Drives no progress: for
 * callers that have no transfers for a while. */
MUSTER_CHECKED muster_status muster_fabric_check(struct muster_fabric *fabric, uint64_t generation);

/* Posts a transfer. Later failures are in the transfer's status. MUSTER_REJOIN: the generation of
 * the key is revoked, or the link to the peer is lost. MUSTER_INVALID, here or as the status: a
 * member calls the operation with other arguments; the caller then aborts the operation at the
 * other members (muster_fabric_abort()), which may not know it. */
MUSTER_CHECKED muster_status muster_fabric_post(struct muster_fabric *fabric,
                                                struct muster_transfer *transfer);

/* Take and release the fabric's lock, for several posts in a row. Meanwhile no other thread posts,
 * done functions are called only by these posts, and no other function here may be called. */
void muster_fabric_begin_posting(struct muster_fabric *fabric);
void muster_fabric_end_posting(struct muster_fabric *fabric);

/* muster_fabric_post() with the fabric's lock held: in a done function, in a listener, or after
 * muster_fabric_begin_posting(). */
MUSTER_CHECKED muster_status muster_fabric_post_locked(struct muster_fabric *fabric,
                                                       struct muster_transfer *transfer);

/* Whether the links to these members are open, and all of them can send out of memory of a device.
 * A link that can do so can do so until the generation ends or the link is lost. */
bool muster_fabric_reads_devices(struct muster_fabric *fabric, uint64_t generation,
                                 const uint32_t *ranks, size_t count);

/* Drives progress until *finished is true, the deadline (a time of muster_clock_ns()) passes, or
 * the generation is revoked. Done functions set *finished; it is read under the fabric's lock.
 * Blocks. MUSTER_OK: finished; MUSTER_RETRY: the deadline has passed; MUSTER_REJOIN: revoked, the
 * text says why. */
MUSTER_CHECKED muster_status muster_fabric_wait(struct muster_fabric *fabric, uint64_t generation,
                                                const bool *finished, int64_t deadline_ns);

/* When signatures are sent. Zeroed when an operation begins to wait; a thread that waits for short
 * times, one after the other, keeps it. */
struct muster_wait_clock {
    int64_t signatures_delay_ns, signatures_due_ns;
};

/* The same for the transfers of one operation, the one of the key. After 50 ms the members that it
 * waits for are sent the operation's signature, and again after twice the time, at least every 10
 * s: members that call the operation with different arguments could otherwise all wait for each
 * other, and a link of RDMA notices the end of a host only when it sends. */
MUSTER_CHECKED muster_status muster_fabric_wait_in(struct muster_fabric *fabric,
                                                   const struct muster_message_key *operation,
                                                   struct muster_wait_clock *clock,
                                                   const bool *finished, int64_t deadline_ns);

/* Sets *finished, as a done function may, and ends the waits that wait for it. */
void muster_fabric_notify(struct muster_fabric *fabric, bool *finished);

/* Withdraws all posted transfers of one operation: afterwards the fabric does not touch them or
 * their data, and drops messages that still arrive for the operation. May wait for one segment. */
void muster_fabric_withdraw(struct muster_fabric *fabric, uint64_t generation, uint32_t context,
                            uint64_t sequence);

/* Tells the peer that this operation has failed here. The peer's transfers of that operation,
 * posted now or later, end with MUSTER_INVALID and this reason. */
void muster_fabric_abort(struct muster_fabric *fabric, uint32_t peer, uint64_t generation,
                         uint32_t context, uint64_t sequence, const char *reason);

/* Messages that their receiver does not know beforehand ---------------------------------------- */

/* In the context number of a key: a message of point to point. Its receiver learns of it when it
 * arrives, or when its sender offers it: the message is announced to the listener of its context.
 * It is received by a transfer with its key, call and size, and waits until that is posted. The
 * messages of a context are one operation, of this number; their calls need not be equal. */
#define MUSTER_ANNOUNCED_CONTEXT (UINT32_C(1) << 31)
enum { MUSTER_ANNOUNCED_SEQUENCE = 1 };

struct muster_announcement {
    uint32_t peer; /* global rank */
    struct muster_message_key key;
    struct muster_call call; /* the sender's */
    uint64_t size_bytes;
};

/* The functions are called with the fabric's lock held. */
struct muster_announcement_listener {
    /* Filled by the caller. */
    uint64_t generation;
    uint32_t context; /* with MUSTER_ANNOUNCED_CONTEXT */

    /* A message that has no receive. Messages of one sender may be announced in another order than
     * that of their posts, and more than once. May call muster_fabric_post_locked() for receives,
     * and muster_fabric_refuse_locked(). */
    void (*announced)(struct muster_announcement_listener *listener,
                      const struct muster_announcement *message);

    /* The link to a member has ended. left: it has said goodbye. */
    void (*link_ended)(struct muster_announcement_listener *listener, uint32_t peer, bool left,
                       const char *reason);

    /* Private to the fabric. */
    struct muster_announcement_listener *next;
};

/* Adds a listener, which stays the caller's until muster_fabric_unlisten(). Calls its functions for
 * the messages that are there, which may not be received before this has returned, and for the
 * links that have ended. One listener for each context. */
void muster_fabric_listen(struct muster_fabric *fabric,
                          struct muster_announcement_listener *listener);
void muster_fabric_unlisten(struct muster_fabric *fabric,
                            struct muster_announcement_listener *listener);

/* If a transfer that has just been posted is done already, calls its done function now instead of
 * in the next wait. With the fabric's lock held. */
void muster_fabric_finish_posted_locked(struct muster_fabric *fabric,
                                        struct muster_transfer *transfer);

/* Refuses an announced message: its send ends with MUSTER_INVALID and this reason. False: its data
 * are here or under way, and it has to be received. With the fabric's lock held. */
bool muster_fabric_refuse_locked(struct muster_fabric *fabric, uint32_t peer,
                                 const struct muster_message_key *key, const char *reason);

/* Opens the link to a member, if it has not been opened yet. With the fabric's lock held. */
void muster_fabric_open_locked(struct muster_fabric *fabric, uint64_t generation, uint32_t peer);

enum { MUSTER_DIRECT_BYTES_MAX = 16 * 1024 };

/* A small announced message, of at most MUSTER_DIRECT_BYTES_MAX, without a transfer: its sender
 * writes it straight into an open link, and its receiver takes it straight out of one. */
struct muster_direct_message {
    struct muster_message_key key;
    uint32_t peer; /* global rank in key.generation */
    void *data;    /* to send: only read; to receive: is written */
    struct muster_call
        call;            /* type, root and count; to receive: the type, the others are written */
    uint32_t size_bytes; /* to receive: is written */

    /* To receive: whether such a message is to be received so. Is called with the fabric's lock
     * when call and size have been written. */
    bool (*accepts)(const struct muster_direct_message *message);
    void *owner; /* the caller's */
};

/* Both are called with the fabric's lock held, by a caller that has not withdrawn the operation. If
 * they return false, nothing has happened, and the message is sent or received by a transfer, which
 * finds out why. That is so now and then where nothing is wrong: a wait for a transfer also does
 * what else is due. */
bool muster_fabric_send_direct_locked(struct muster_fabric *fabric,
                                      const struct muster_direct_message *message);
/* Polls for some microseconds; meanwhile releases the lock. Only if the message with this key has
 * not been announced. */
bool muster_fabric_receive_direct_locked(struct muster_fabric *fabric,
                                         struct muster_direct_message *message);

/* Descriptors ------------------------------------------------------------------------------- */

/* Members whose link shares memory can send each other descriptors, of memory for example. These
 * three functions drive progress and block, at most until the deadline (MUSTER_RETRY).
 * MUSTER_REJOIN: the link is lost, or the generation is over. */

/* Opens the link and says whether it shares memory. Both members get the same answer. */
MUSTER_CHECKED muster_status muster_fabric_shares_memory(struct muster_fabric *fabric,
                                                         uint64_t generation, uint32_t peer,
                                                         int64_t deadline_ns, bool *ret_shares);

/* Sends a copy of the descriptor under a tag that both members know. One descriptor of each tag and
 * generation may be under way at a time, and 64 in all. MUSTER_INVALID: the link shares no memory.
 */
MUSTER_CHECKED muster_status muster_fabric_send_descriptor(struct muster_fabric *fabric,
                                                           uint64_t generation, uint32_t peer,
                                                           uint64_t tag, int fd,
                                                           int64_t deadline_ns);

/* Waits for the descriptor that the peer sends under this tag. *ret_fd is the caller's. */
MUSTER_CHECKED muster_status muster_fabric_receive_descriptor(struct muster_fabric *fabric,
                                                              uint64_t generation, uint32_t peer,
                                                              uint64_t tag, int64_t deadline_ns,
                                                              int *ret_fd);

/* The first link of this generation that was lost, for the report to the service. False: none was.
 * ret_reason has room for MUSTER_REASON_SIZE bytes. */
bool muster_fabric_lost_peer(struct muster_fabric *fabric, uint64_t generation, uint32_t *ret_rank,
                             char *ret_reason);

/* Whether this process has run out of descriptors for a link of this generation, dialled or
 * accepted. Then no peer is to be reported: the fault is this member's. ret_reason as above. */
bool muster_fabric_out_of_descriptors(struct muster_fabric *fabric, uint64_t generation,
                                      char *ret_reason);

/* Opens the links to all members. Blocks until each is open or lost, the generation is over, or the
 * deadline has passed. Returns the number of open links. */
uint32_t muster_fabric_connect_all(struct muster_fabric *fabric, uint64_t generation,
                                   int64_t deadline_ns);

/* What a probe says of a member. */
enum muster_probe_verdict {
    MUSTER_PROBE_PENDING = 0, /* an answer that is still to come may decide; never returned here */
    MUSTER_PROBE_THERE = 1,   /* its process runs, computes or is stopped */
    MUSTER_PROBE_GONE = 2,
    MUSTER_PROBE_CUT_OFF = 3,
    MUSTER_PROBE_UNKNOWN = 4, /* no address could be dialled, or not all */
};

/* Finds out whether the process of a member is there, by a dial of the port at which it listens
 * (address/probe.h); a verdict of the last second is used again. Blocks at most bound_ms, without
 * the lock; drives no progress. UNKNOWN: also if the generation is over, or the rank is this
 * member's own. */
enum muster_probe_verdict muster_fabric_probe(struct muster_fabric *fabric, uint64_t generation,
                                              uint32_t rank, uint32_t bound_ms);
/* Dials members that need not be of a generation, all at once; of each, other_host and the
 * addresses count. Blocks until all verdicts are certain, at most bound_ms. count:
 * MUSTER_PROBED_MAX at most.
 */
enum { MUSTER_PROBED_MAX = 8 };
void muster_peers_probe(const struct muster_peer *peers, uint32_t count, uint32_t bound_ms,
                        enum muster_probe_verdict *ret_verdicts);
/* For error texts, after the member's name: "its process is gone". */
const char *muster_probe_text(enum muster_probe_verdict verdict);

/* Counters, for people and tests. */
struct muster_fabric_figures {
    uint64_t links_opened, links_lost;
    uint64_t connections_opened, connections_lost; /* without the first and the last of a link */
    uint64_t connections_rejected; /* wrong token, garbage, unknown member, wrong version */
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received; /* of messages, headers not included */
    uint64_t stale_dropped;              /* frames of older generations or withdrawn operations */
};
struct muster_fabric_figures muster_fabric_figures(struct muster_fabric *fabric);

#endif
