/*
 * The fabric: all links of one process.
 *
 * What it moves are messages whose key both ends know beforehand, because both hold the schedule:
 * the sender posts a send transfer, the receiver posts a receive transfer with the same key, in
 * either order, and each is completed once. Transfers with different keys never wait for each
 * other for longer than one segment. Links to a member are opened when the first transfer names
 * it, in parallel, and outlive generations.
 *
 * Ownership: a transfer record and its data are the caller's and must stay valid and untouched
 * from muster_fabric_post() until its state is DONE or muster_fabric_withdraw() has returned.
 *
 * Threads: any thread may call anything here. One of the waiting threads drives the progress of
 * all transfers, whoever posted them; there is no thread of the fabric's own. Nothing moves while
 * nobody waits, except that what the kernel and the peer can do alone goes on.
 *
 * Never blocks, except muster_fabric_wait(); but memory of a GPU that no device can read is copied
 * within whatever moves it.
 *
 * May use: worker/base, collectives/call/collective.h. May not know: schedules, contexts, sessions.
 */
#ifndef MUSTER_WORKER_FABRIC_FABRIC_H
#define MUSTER_WORKER_FABRIC_FABRIC_H

#include "collectives/call/call.h"
#include "worker/base/random.h"

enum {
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
struct muster_gpu_memory;
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

/* Called for each piece that arrives, in order, with pieces that are whole elements; data is
 * borrowed for the call (for some links it is the sender's own memory). Called with no lock of the
 * caller's held; must not call the fabric. */
typedef void (*muster_consume_function)(struct muster_transfer *transfer, uint64_t offset_bytes,
                                        const void *data, size_t size_bytes);

/* Called once when the transfer has become DONE, by the thread that drives progress (or that posts
 * it, if it can be done at once), with the fabric's lock held: it may call
 * muster_fabric_post_locked(), and nothing else here. If the status is not MUSTER_OK,
 * muster_last_error() says why for the length of the call, and names the peer's rank. */
typedef void (*muster_done_function)(struct muster_transfer *transfer);

struct muster_transfer {
    /* Filled by the caller. */
    struct muster_message_key key;
    const struct muster_call *call; /* travels with the message and is compared; borrowed */
    enum muster_direction direction;
    uint32_t peer;       /* global rank in key.generation */
    void *data;          /* SEND: read from here; RECEIVE: written here, unless consume is set */
    uint64_t size_bytes; /* both ends must say the same; 0 is a message too */
    muster_consume_function consume; /* RECEIVE: gets the pieces instead of data; or NULL */
    uint32_t element_size_bytes;     /* pieces are multiples of it; 1 or more */
    muster_done_function done;       /* or NULL */
    void *owner;                     /* the caller's */
    /* SEND: data is memory of a GPU, of this allocation; borrowed; only for links that read such
     * memory (muster_fabric_reads_gpu()). NULL: memory of the host, as RECEIVE always has. */
    const struct muster_gpu_memory *gpu;
    bool to_gpu; /* consume does nothing but copy there: for the timeline */

    /* Written by the fabric. */
    enum muster_transfer_state state;
    muster_status status; /* when DONE: OK, INVALID (the ends disagree), REJOIN (link lost),
                             FATAL (memory of a GPU cannot be read) */
    uint64_t moved_bytes; /* so far; only ever grows */
    /* Where there is a timeline: when it was posted, and when its first byte began to move (0: that
     * was not seen). */
    int64_t posted_ns, begun_ns;

    /* The link's own. */
    struct muster_transfer *next, *previous;
    uint64_t link_word;
};

/* Transports ---------------------------------------------------------------------------------- */

/* Each transport parses the options that it has, which are fields of muster_options or variables.
 */

/* Sets the fields that transports parse from their variables; part of muster_options_init(). */
void muster_transports_read_environment(muster_options *options);

/* What the transports have made of the options; fabrics are made of it. only: those transports that
 * are named, "shm,tcp", and no fabric without each of them; NULL: those that the options ask for.
 * MUSTER_INVALID names the option, its variable and the value. The settings are the caller's. */
MUSTER_CHECKED muster_status
muster_transports_parse(const muster_options *options, const char *only,
                        struct muster_transport_settings **ret_settings);
/* Accepts NULL. */
void muster_transport_settings_destroy(struct muster_transport_settings *settings);

/* A fabric ------------------------------------------------------------------------------------ */

struct muster_fabric_options {
    const char *member;     /* this member's UUID; copied */
    const char *link_token; /* both ends of a link must have it; "" for none; copied */
    const struct muster_transport_settings *transports; /* borrowed for the call */
    /* This host's address on the way to the others, "10.0.0.1": published before its other
     * addresses. If it is of loopback it is the only one, unless the options say where to listen.
     * NULL: none is known; copied. */
    const char *first_address;
    uint32_t segment_bytes; /* what a large message moves at once, at most: MUSTER_SEGMENT_BYTES_MIN
                               or more; 0: what suits each transport. For tests */
    struct muster_timeline *timeline; /* messages are added to it; borrowed; or NULL */
};

/* Starts listening. MUSTER_INVALID: an address is none of this machine's or not numeric, no port is
 * free, no interface is as named, or a file of TLS is no good; MUSTER_FATAL: no descriptors or
 * memory. */
MUSTER_CHECKED muster_status muster_fabric_create(const struct muster_fabric_options *options,
                                                  struct muster_fabric **ret_fabric);

/* Sends what was accepted, says goodbye on each link so that peers see a leave and not a death,
 * waits for their goodbyes at most linger_ms, closes. No transfer may be posted. Accepts NULL. */
void muster_fabric_destroy(struct muster_fabric *fabric, uint32_t linger_ms);

/* For tests: ends all links at once and without goodbye, as if the process had died; waits and
 * posts end with MUSTER_REJOIN. muster_fabric_destroy() is still to be called. Any thread. */
void muster_fabric_kill(struct muster_fabric *fabric);

/* The link token is learnt when the job is joined. Links opened from now on need it. */
void muster_fabric_set_token(struct muster_fabric *fabric, const char *link_token);

/* That of the options. */
struct muster_timeline *muster_fabric_timeline(const struct muster_fabric *fabric);

/* What to publish, "tcp://10.0.0.1:41234", "verbs://10.0.0.1:41235", "shm://BOOT/NETWORK/NAME" or
 * "inproc://MEMBER", best first; index < the count. */
uint32_t muster_fabric_address_count(const struct muster_fabric *fabric);
const char *muster_fabric_address(const struct muster_fabric *fabric, uint32_t index);

/* True for an address that only members of one host can use. Whoever knows that two members are not
 * to share a host leaves it out of the peer's addresses, at both ends. */
bool muster_fabric_address_is_local(const char *address);

/* A member as the others see it. */
struct muster_peer {
    char member[MUSTER_UUID_SIZE];
    char host[MUSTER_PEER_HOST_SIZE];
    uint32_t address_count;
    char addresses[MUSTER_ADDRESSES_MAX][MUSTER_ADDRESS_SIZE]; /* tried in order */
};

/* Begins a generation: peers[i] is global rank i (oneself included), copied. Links to members that
 * are still there stay open, others close. What arrives for older generations is dropped from now
 * on; what arrived early for this one is kept. Transfers of older generations must have been
 * withdrawn. Generations only grow. */
MUSTER_CHECKED muster_status muster_fabric_begin_generation(struct muster_fabric *fabric,
                                                            uint64_t generation,
                                                            const struct muster_peer *peers,
                                                            uint32_t count);

/* Makes the present and all future waits and posts of generations up to this one end with
 * MUSTER_REJOIN and this reason. Wakes all waiting threads. */
void muster_fabric_revoke(struct muster_fabric *fabric, uint64_t generation, const char *reason);

/* MUSTER_REJOIN: the generation is revoked or over; the text says why. For those who do without
 * transfers for a while; drives nothing. */
MUSTER_CHECKED muster_status muster_fabric_check(struct muster_fabric *fabric, uint64_t generation);

/* Posts a transfer. What goes wrong later is the transfer's status. MUSTER_REJOIN: the key's
 * generation is revoked, or the link to the peer is lost. MUSTER_INVALID, here or as the status: a
 * member calls the operation otherwise; who is told so passes it on (muster_fabric_abort()), since
 * the others may not have heard of it. */
MUSTER_CHECKED muster_status muster_fabric_post(struct muster_fabric *fabric,
                                                struct muster_transfer *transfer);

/* The fabric's lock, for several posts in a row: meanwhile nobody else posts, and no done function
 * is called but by these. Nothing else here may be called. */
void muster_fabric_hold(struct muster_fabric *fabric);
void muster_fabric_release(struct muster_fabric *fabric);

/* The same where the fabric's lock is held: in a done function, or after muster_fabric_hold(). */
MUSTER_CHECKED muster_status muster_fabric_post_locked(struct muster_fabric *fabric,
                                                       struct muster_transfer *transfer);

/* Whether the links to these members are open now, and all of them can send out of memory of a GPU.
 * Then they can for as long as the generation lasts, or until they are lost. */
bool muster_fabric_reads_gpu(struct muster_fabric *fabric, uint64_t generation,
                             const uint32_t *ranks, size_t count);

/* Drives progress until *finished is true (checked under the fabric's lock; done functions set
 * it), the deadline (muster_clock_ns() time) passes, or the generation is revoked. MUSTER_OK: it
 * is finished; MUSTER_RETRY: the deadline has passed; MUSTER_REJOIN: revoked, the text says why. */
MUSTER_CHECKED muster_status muster_fabric_wait(struct muster_fabric *fabric, uint64_t generation,
                                                const bool *finished, int64_t deadline_ns);

/* The same for the transfers of one operation, that of the key. Those who send it small messages
 * hear nothing from who waits for them, so that members who call differently might all wait: who
 * has waited for a while tells those it waits for how it calls, and again after twice the time. */
MUSTER_CHECKED muster_status muster_fabric_wait_in(struct muster_fabric *fabric,
                                                   const struct muster_message_key *operation,
                                                   const bool *finished, int64_t deadline_ns);

/* Takes back all posted transfers of one operation: afterwards the fabric no longer touches them or
 * their data, and what still arrives for the operation is dropped. */
void muster_fabric_withdraw(struct muster_fabric *fabric, uint64_t generation, uint32_t context,
                            uint64_t sequence);

/* Tells the peer that this operation has failed here, and why; the peer's transfers of that
 * operation, posted now or later, end with MUSTER_INVALID and that reason. */
void muster_fabric_abort(struct muster_fabric *fabric, uint32_t peer, uint64_t generation,
                         uint32_t context, uint64_t sequence, const char *reason);

/* Descriptors ------------------------------------------------------------------------------- */

/* Members whose link shares memory can hand each other descriptors, of memory for example. These
 * three drive progress and block, at most until the deadline (MUSTER_RETRY); MUSTER_REJOIN: the
 * link is lost, or the generation is over. */

/* Opens the link and says whether it shares memory. Both ends get the same answer. */
MUSTER_CHECKED muster_status muster_fabric_shares_memory(struct muster_fabric *fabric,
                                                         uint64_t generation, uint32_t peer,
                                                         int64_t deadline_ns, bool *ret_shares);

/* Hands over a copy of the descriptor, under a tag that both ends know; one of a tag and generation
 * at a time, at most 64 that the peer has not taken. MUSTER_INVALID: the link shares no memory. */
MUSTER_CHECKED muster_status muster_fabric_give_descriptor(struct muster_fabric *fabric,
                                                           uint64_t generation, uint32_t peer,
                                                           uint64_t tag, int fd,
                                                           int64_t deadline_ns);

/* Waits for the one that the peer gives under this tag. *ret_fd is the caller's. */
MUSTER_CHECKED muster_status muster_fabric_take_descriptor(struct muster_fabric *fabric,
                                                           uint64_t generation, uint32_t peer,
                                                           uint64_t tag, int64_t deadline_ns,
                                                           int *ret_fd);

/* The first link of this generation that was lost, for the report to the service: true if there is
 * one. ret_reason gets MUSTER_REASON_SIZE bytes at most. */
bool muster_fabric_lost_peer(struct muster_fabric *fabric, uint64_t generation, uint32_t *ret_rank,
                             char *ret_reason);

/* Whether this process lacks descriptors to open a link of this generation, or to take a peer's
 * call: then no peer is to be reported, this member cannot go on. ret_reason likewise. */
bool muster_fabric_exhausted(struct muster_fabric *fabric, uint64_t generation, char *ret_reason);

/* Opens the links to all members, and waits until each is open or lost, the generation is over, or
 * the deadline has passed. Returns how many are open. */
uint32_t muster_fabric_reach(struct muster_fabric *fabric, uint64_t generation,
                             int64_t deadline_ns);

/* Figures for people and tests. */
struct muster_fabric_figures {
    uint64_t links_opened, links_lost;
    uint64_t connections_opened, connections_lost; /* beside the first, and before the last */
    uint64_t connections_rejected; /* wrong token, garbage, unknown member, wrong version */
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received; /* of messages, headers not included */
    uint64_t stale_dropped;              /* frames of older generations or withdrawn operations */
};
struct muster_fabric_figures muster_fabric_figures(struct muster_fabric *fabric);

#endif
