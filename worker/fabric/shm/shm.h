/*
 * Inside the shared memory transport. shm.c has the slots, shm_connect.c opens links, shm_memory.c
 * maps and proves their memory, shm_packet.c is what goes over their sockets, shm_move.c moves
 * messages through the rings, shm_offer.c offers large ones, shm_get.c takes them.
 *
 * A link is a connection of sequenced packets in the abstract name space, and a memory that both
 * ends map. Nothing of it is in a file system. The socket's end is the peer's death; while the link
 * lives it carries packets that wake a sleeping peer, and descriptors.
 *
 * The dialler makes the memory and passes it with its hello. Both write a random number into it,
 * which the other must find there: only then is the link open. If that fails the link goes on to
 * the peer's next transport.
 *
 * Threads: the fabric's lock; the leader may look for news without it (the slot has_news).
 */
#ifndef MUSTER_WORKER_FABRIC_SHM_SHM_H
#define MUSTER_WORKER_FABRIC_SHM_SHM_H

#include "worker/fabric/shm/byte_ring.h"
#include "worker/fabric/wire/common_link_operations.h"
#include "worker/fabric/wire/match.h"
#include "worker/fabric/wire/pending_connections.h"

#include <sys/types.h>

enum {
    SHM_RING_BYTES = 256 * 1024, /* a direction; small enough to stay in the L2 cache */
    SHM_PAYLOAD_MAX = 32 * 1024, /* of a frame: several fit, so that both ends work at once */
    SHM_NONCE_BYTES = 16,
    SHM_OFFERS_MAX = 64,      /* large messages that wait to be taken; more go through the ring */
    SHM_MAPPINGS_MAX = 64,    /* of muster_alloc(), mapped by the peer */
    SHM_DESCRIPTORS_MAX = 64, /* passed and not taken, of one link */
    SHM_PACKETS_MAX = 64,     /* taken in one go */
};

/* Bits of what wakes a sleeper. */
enum {
    SHM_SLEEPS_FOR_DATA = 1, /* something is written for it */
    SHM_SLEEPS_FOR_ROOM = 2, /* what it has written is read */
};

/* What one end of a link writes for the other. */
struct shm_side {
    struct muster_ring_count written, read;
    alignas(MUSTER_CACHE_LINE) _Atomic uint32_t sleeping; /* 0: awake */
    unsigned char nonce[SHM_NONCE_BYTES];
    alignas(MUSTER_CACHE_LINE) _Atomic uint64_t offers[SHM_OFFERS_MAX]; /* tickets; 0: none */
};

/* The memory's first page; the rings of side 0 (the dialler) and side 1 follow. */
struct shm_memory {
    struct shm_side sides[2];
};

enum {
    SHM_HEAD_BYTES = 4096,
    SHM_REGION_BYTES = SHM_HEAD_BYTES + 2 * SHM_RING_BYTES,
    SHM_MAPPED_BYTES = SHM_HEAD_BYTES + 4 * SHM_RING_BYTES, /* each ring twice in a row */
};
_Static_assert(sizeof(struct shm_memory) <= SHM_HEAD_BYTES, "the head is a page");

/* Packets ------------------------------------------------------------------------------------ */

/* Append only. */
enum shm_packet_kind {
    SHM_HELLO = 1,      /* with the memory's descriptor */
    SHM_ANSWER = 2,     /* word: the verdict */
    SHM_CONFIRM = 3,    /* the dialler has seen the acceptor's nonce */
    SHM_WAKE = 4,       /* look into the memory */
    SHM_DESCRIPTOR = 5, /* with a descriptor; generation, and word: its tag */
    SHM_ALLOCATION =
        6,         /* with a descriptor of muster_alloc(); word: its id, generation: its size */
    SHM_FREED = 7, /* word: the id of such a piece */
};

/* Both ends are on one host, so it goes as it is. */
struct shm_packet {
    uint32_t version; /* of packets and memory */
    uint32_t kind;
    uint64_t generation;
    uint64_t word;
    unsigned char nonce[SHM_NONCE_BYTES];   /* HELLO, ANSWER */
    unsigned char hello[MUSTER_HELLO_SIZE]; /* HELLO; other packets end before it */
};

/* fd: -1 for none; borrowed. False: errno says why. */
bool muster_shm_packet_send(int socket, const struct shm_packet *packet, int fd);
/* 1: there is one; 0: not now; -1: the connection has ended, or what came is no packet (errno
 * EPROTO). *ret_fd is the caller's, or -1. */
int muster_shm_packet_receive(int socket, struct shm_packet *ret_packet, int *ret_fd);

/* Addresses ---------------------------------------------------------------------------------- */

enum { SHM_NAME_SIZE = 48 };

/* "shm://BOOT/NETWORK/NAME": this boot of this kernel, its network name space, the socket. */
struct shm_address {
    char boot[MUSTER_UUID_SIZE];
    uint64_t network;
    char name[SHM_NAME_SIZE];
};
/* False where /proc does not say. Its name is empty. */
bool muster_shm_address_here(struct shm_address *ret_address);
void muster_shm_address_print(const struct shm_address *address,
                              char ret_text[MUSTER_ADDRESS_SIZE]);
bool muster_shm_address_parse(const char *text, struct shm_address *ret_address);

/* Links -------------------------------------------------------------------------------------- */

/* One connection and its memory. */
struct shm_path {
    struct muster_pending_connection pending; /* first: the path is found by it */
    struct shm *shm;
    struct shm_link *link; /* NULL until it is known */
    uint32_t side;         /* 0: the dialler's */
    int memory_fd;         /* -1 once it is mapped */
    unsigned char *mapped;
    struct shm_side *mine, *theirs;
    unsigned char nonce[SHM_NONCE_BYTES]; /* the dialler's, by its hello */
    pid_t pid;                            /* of the peer; 0: not of this name space */
};

struct shm_descriptor {
    uint64_t generation, tag;
    int fd;
};

/* Memory of the peer's, mapped here to be read. */
struct shm_mapping {
    uint64_t id;
    unsigned char *base;
    size_t size_bytes;
};

/* The payload of an offer. */
struct shm_offer {
    uint64_t ticket;
    uint64_t address;    /* of the data in the sender's process */
    uint64_t region;     /* the piece of muster_alloc() that it is in; 0: none */
    uint64_t offset;     /* of the data in that */
    uint64_t size_bytes; /* of the piece */
    uint32_t slot;
    uint32_t unused; /* zero */
};
_Static_assert(sizeof(struct shm_offer) <= MUSTER_OFFER_MAX, "an offer fits into its frame");

/* What link->end points to. */
struct shm_link {
    struct muster_dialler dialler; /* first: the end is found by it */
    struct muster_match match;
    struct muster_link *link;
    struct shm *shm;
    struct shm_path *path; /* OPEN, or the call that is under way; or NULL */
    struct muster_ring out, in;
    struct muster_outgoing next_out; /* found no room yet */
    bool has_next;
    bool parting;
    _Atomic uint64_t blocked; /* the ring had no room: what the peer had read then; or ROOM */
    struct muster_arrival arrival;
    struct muster_transfer *offered[SHM_OFFERS_MAX]; /* by slot */
    uint64_t tickets[SHM_OFFERS_MAX];
    uint64_t last_ticket;
    uint64_t told[SHM_MAPPINGS_MAX]; /* pieces of this process that the peer may map */
    uint32_t told_count;
    uint64_t freed; /* muster_allocation_freed_count() when they were looked through */
    struct shm_mapping pieces[SHM_MAPPINGS_MAX]; /* of the peer's */
    uint32_t piece_count;
    struct shm_descriptor descriptors[SHM_DESCRIPTORS_MAX];
    uint32_t descriptor_count;
    struct shm_link *prev_open, *next_open; /* in shm->open */
};

/* blocked: it is not. */
#define SHM_ROOM UINT64_MAX

struct shm {
    struct muster_pending_connections pending_list; /* first */
    struct shm_address own;
    struct shm_link *open; /* changed by the leader, or while it moves nothing */
    unsigned char *piece;
};

extern const struct muster_transport muster_shm_transport;

/* shm_connect.c: slots, link.h says what each does; and listening. */
struct muster_pending_connection *
muster_shm_create_connection(struct muster_pending_connections *pending_list, int fd,
                             const struct muster_socket_address *remote);
void muster_shm_path_ready(struct muster_watch *watch, uint32_t events);
bool muster_shm_answer(struct muster_pending_connection *pending, enum muster_verdict verdict);
void muster_shm_admit(struct muster_pending_connection *pending, struct muster_link *link);
MUSTER_CHECKED muster_status muster_shm_listen(struct shm *shm);
void muster_shm_dial(struct shm_link *link);
void muster_shm_path_close(struct shm_path *path);
/* Takes the packets that have come; false if the link is over. */
bool muster_shm_packets(struct shm_path *path);

/* shm_memory.c. Maps and closes path->memory_fd; side 0 is the dialler's. */
bool muster_shm_map(struct shm_path *path, uint32_t side);
void muster_shm_unmap(struct shm_path *path);
/* The acceptor's part: what came with the hello is such memory, and has the dialler's nonce. */
bool muster_shm_prove(struct shm_path *path);
/* The link's rings are in that memory. */
void muster_shm_bind(struct shm_link *link, const struct shm_path *path);

/* shm_move.c. Receive: takes what there is, some frames at a time; false if the link is over, or
 * was closed meanwhile. */
bool muster_shm_receive(struct shm_link *link);
/* Puts what is to go into the ring as far as there is room. */
void muster_shm_flush(struct shm_link *link);
/* The same, but only of frames without data: no transfer is done by it. */
void muster_shm_flush_control(struct shm_link *link);
/* Over an open link's socket. The descriptor, if any, is taken or left. */
void muster_shm_packet_came(struct shm_link *link, const struct shm_packet *packet, int *fd);
/* The connection has ended: takes what the peer has left in the ring, then the link is over. */
void muster_shm_ended(struct shm_link *end, const char *what);

/* shm_offer.c: what is offered to the peer. */
extern const struct muster_rendezvous_get muster_shm_get_ops;
/* From now on the peer must not take anything. */
void muster_shm_release_all(struct shm_link *link);
/* The link is open: writes the tickets of what was offered before. */
void muster_shm_write_tickets(struct shm_link *link);

/* Likewise: the pieces of the peer's that are mapped here. */
void muster_shm_map_allocation(struct shm_link *link, const struct shm_packet *packet, int fd);
void muster_shm_unmap_allocation(struct shm_link *link, uint64_t id);
void muster_shm_unmap_allocations(struct shm_link *link);
/* Where the data is mapped; NULL if it is not, or not all of it. */
const unsigned char *muster_shm_find_mapping(const struct shm_link *link,
                                             const struct shm_offer *offer, uint64_t size_bytes);

/* shm_get.c: takes what is offered, some pieces at a time; false if the link was closed
 * meanwhile. */
bool muster_shm_get_offered(struct shm_link *end);

#endif
