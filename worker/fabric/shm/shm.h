/*
 * Inside the shared memory transport. shm.c has the slots, shm_connect.c opens links, shm_memory.c
 * maps and verifies their memory, shm_packet.c has the packets of their sockets, shm_move.c moves
 * messages through the rings, shm_offer.c offers large messages, shm_get.c gets them.
 *
 * A link has a socket of sequenced packets in the abstract name space, and a memory that both
 * members map. Nothing of it is in a file system. The end of the connection is the peer's death.
 * While the link lives, the socket carries packets that wake a sleeping peer, and descriptors.
 *
 * README.md has how a link opens and how messages go.
 *
 * Threads: the fabric's lock; the leader polls without it (the slot poll).
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
    SHM_PAYLOAD_MAX = 32 * 1024, /* of a frame: several fit, so that both members work at a time */
    SHM_NONCE_BYTES = 16,
    SHM_OFFERS_MAX = 64,      /* large messages that wait to be got; more go through the ring */
    SHM_MAPPINGS_MAX = 64,    /* of the peer's muster_alloc(), of one link */
    SHM_DESCRIPTORS_MAX = 64, /* arrived and not taken out, of one link */
    SHM_PACKETS_MAX = 64,     /* received in a row, then other links have their turn */
};

/* Bits: what a sleeping member is to be woken for. */
enum {
    SHM_WAITS_FOR_DATA = 1, /* the peer has written */
    SHM_WAITS_FOR_ROOM = 2, /* the peer has read */
};

/* What one member of a link writes and the other reads. */
struct muster_shm_side {
    struct muster_ring_count written, read;
    alignas(MUSTER_CACHE_LINE) _Atomic uint32_t sleeping; /* 0: awake */
    unsigned char nonce[SHM_NONCE_BYTES];
    alignas(MUSTER_CACHE_LINE) _Atomic uint64_t offers[SHM_OFFERS_MAX]; /* tickets; 0: none */
};

/* The memory's first page; the rings of side 0 (the dialler) and side 1 follow. */
struct muster_shm_memory {
    struct muster_shm_side sides[2];
};

enum {
    SHM_HEADER_BYTES = 4096,
    SHM_MEMORY_BYTES = SHM_HEADER_BYTES + 2 * SHM_RING_BYTES,
    SHM_MAPPED_BYTES = SHM_HEADER_BYTES + 4 * SHM_RING_BYTES, /* each ring is mapped twice */
};
_Static_assert(sizeof(struct muster_shm_memory) <= SHM_HEADER_BYTES, "the header is a page");

/* Packets ------------------------------------------------------------------------------------ */

/* Append only. */
enum muster_shm_packet_kind {
    SHM_HELLO = 1,      /* with the memory's descriptor */
    SHM_ANSWER = 2,     /* word: the verdict; generation: the wire version (fabric.h) */
    SHM_CONFIRM = 3,    /* the dialler has found the acceptor's nonce */
    SHM_WAKE = 4,       /* the memory has changed */
    SHM_DESCRIPTOR = 5, /* with a descriptor; generation, and word: its tag */
    SHM_ALLOCATION =
        6,         /* with a descriptor of muster_alloc(); word: its id, generation: its size */
    SHM_FREED = 7, /* word: the id of such an allocation */
};

/* In the byte order of the host, on which both members are. */
struct muster_shm_packet {
    uint32_t version; /* of packets and memory */
    uint32_t kind;
    uint64_t generation;
    uint64_t word;
    unsigned char nonce[SHM_NONCE_BYTES];   /* HELLO, ANSWER */
    unsigned char hello[MUSTER_HELLO_SIZE]; /* HELLO; other packets end before it */
};

/* fd: -1 for none; borrowed. False: errno says why. */
bool muster_shm_packet_send(int socket, const struct muster_shm_packet *packet, int fd);
/* Returns 1, or 0 if no packet has arrived; -1 if the connection has ended, or with errno EPROTO if
 * the bytes are no packet. *ret_fd is the caller's, or -1. */
int muster_shm_packet_receive(int socket, struct muster_shm_packet *ret_packet, int *ret_fd);

/* Addresses ---------------------------------------------------------------------------------- */

enum { SHM_NAME_SIZE = 48 };

/* "shm://BOOT/NETWORK/NAME": boot id of the kernel, inode of the network name space, socket. */
struct muster_shm_address {
    char boot[MUSTER_UUID_SIZE];
    uint64_t network;
    char name[SHM_NAME_SIZE];
};
/* The address of this process, without a name. False if /proc cannot be read. */
bool muster_shm_address_here(struct muster_shm_address *ret_address);
void muster_shm_address_print(const struct muster_shm_address *address,
                              char ret_text[MUSTER_ADDRESS_SIZE]);
bool muster_shm_address_parse(const char *text, struct muster_shm_address *ret_address);

/* Links -------------------------------------------------------------------------------------- */

/* One connection and its memory. */
struct muster_shm_path {
    struct muster_pending_connection pending; /* first */
    struct muster_shm *shm;
    struct muster_shm_link *end; /* NULL until the hello is admitted */
    uint32_t side;               /* 0: the dialler's */
    int memory_fd;               /* -1 once it is mapped */
    unsigned char *mapped;
    struct muster_shm_side *mine, *theirs;
    unsigned char nonce[SHM_NONCE_BYTES]; /* the dialler's, from its hello */
    pid_t pid;                            /* of the peer; 0: in another PID name space */
};

struct muster_shm_descriptor {
    uint64_t generation, tag;
    int fd;
};

/* An allocation of the peer's, mapped here for reading. */
struct muster_shm_mapping {
    uint64_t id;
    unsigned char *base;
    size_t size_bytes;
};

/* The payload of an offer. */
struct muster_shm_offer {
    uint64_t ticket;
    uint64_t address;    /* of the data in the sender's process; or of the list of its runs */
    uint64_t allocation; /* of muster_alloc(), in which the data is; 0: none */
    uint64_t offset;     /* of the data in the allocation; or in the runs */
    uint64_t size_bytes; /* of the allocation */
    uint32_t slot;
    uint32_t run_count; /* of data in several ranges, one more ends the list; 0: in one piece */
};
_Static_assert(sizeof(struct muster_shm_offer) <= MUSTER_OFFER_MAX, "an offer fits into its frame");

/* Where the data of an offer is that lies in several ranges: copied from the sender. */
struct muster_shm_runs {
    uint64_t ticket;               /* of the offer; 0: none */
    struct muster_range_run *runs; /* [count + 1], checked; their addresses are the sender's */
    size_t count, room;
};

/* What link->end points to. */
struct muster_shm_link {
    struct muster_dialler dialler; /* first */
    struct muster_match match;
    struct muster_link *link;
    struct muster_shm *shm;
    struct muster_shm_path *path; /* OPEN, or pending; or NULL */
    struct muster_ring out, in;
    struct muster_outgoing next_out; /* a frame for which there was no room */
    bool has_next;
    bool parting;             /* goodbye is queued */
    _Atomic uint64_t blocked; /* the peer's count of read bytes when the ring had no room */
    struct muster_arrival arrival;
    struct muster_shm_runs runs;
    struct muster_transfer *offered[SHM_OFFERS_MAX]; /* by slot */
    uint64_t tickets[SHM_OFFERS_MAX];
    uint64_t last_ticket;
    uint64_t shared_ids[SHM_MAPPINGS_MAX]; /* allocations of this process that the peer may map */
    uint32_t shared_count;
    uint64_t freed; /* muster_allocation_freed_count() when shared_ids was last checked */
    struct muster_shm_mapping mappings[SHM_MAPPINGS_MAX];
    uint32_t mapping_count;
    struct muster_shm_descriptor descriptors[SHM_DESCRIPTORS_MAX];
    uint32_t descriptor_count;
    struct muster_shm_link *prev_open, *next_open; /* in shm->open */
};

/* In blocked: there was room. */
#define SHM_NOT_BLOCKED UINT64_MAX

struct muster_shm {
    struct muster_pending_connections pending_list; /* first */
    struct muster_shm_address own;
    struct muster_shm_link *open; /* changed by the leader, or while it pauses */
    unsigned char *piece;         /* for consume functions: MUSTER_PIECE_BYTES */
};

extern const struct muster_transport muster_shm_transport;

/* shm_connect.c: slots, link.h says what each does; and listening. */
struct muster_pending_connection *
muster_shm_create_connection(struct muster_pending_connections *pending_list, int fd,
                             const struct muster_socket_address *remote);
void muster_shm_path_ready(struct muster_watch *watch, uint32_t events);
bool muster_shm_answer(struct muster_pending_connection *pending, enum muster_verdict verdict);
void muster_shm_admit(struct muster_pending_connection *pending, struct muster_link *link);
MUSTER_CHECKED muster_status muster_shm_listen(struct muster_shm *shm);
void muster_shm_dial(struct muster_shm_link *end);
void muster_shm_path_close(struct muster_shm_path *path);
/* Handles the packets that have arrived. False: the connection is closed. */
bool muster_shm_receive_packets(struct muster_shm_path *path);

/* shm_memory.c. Maps and closes path->memory_fd; side 0 is the dialler's. */
bool muster_shm_map(struct muster_shm_path *path, uint32_t side);
void muster_shm_unmap(struct muster_shm_path *path);
/* For the acceptor: whether the descriptor of the hello is such memory and has the dialler's nonce.
 * Maps it. */
bool muster_shm_verify_memory(struct muster_shm_path *path);
/* Sets the link's rings up in the memory. */
void muster_shm_set_rings(struct muster_shm_link *end, const struct muster_shm_path *path);

/* shm_move.c */
/* Handles the frames that have arrived, up to a bound. False: the link is closed. */
bool muster_shm_receive(struct muster_shm_link *end);
/* Writes frames to the ring as long as there is room. */
void muster_shm_flush(struct muster_shm_link *end);
/* The same, only of frames without data: completes no transfer. */
void muster_shm_flush_control(struct muster_shm_link *end);
/* Slots: messages without transfers. */
bool muster_shm_send_direct(struct muster_link *link, const struct muster_direct_message *message);
enum muster_direct_result muster_shm_receive_direct(struct muster_link *link,
                                                    struct muster_direct_message *message);
bool muster_shm_poll_direct(const struct muster_link *link);
/* A packet over the socket of an open link. May take the descriptor, which is -1 then. */
void muster_shm_handle_packet(struct muster_shm_link *end, const struct muster_shm_packet *packet,
                              int *fd);
/* The connection has ended: handles the frames that are still in the ring, then closes the link. */
void muster_shm_handle_end(struct muster_shm_link *end, const char *what);

/* shm_offer.c: the sender's part of a get. */
extern const struct muster_rendezvous_get muster_shm_get_ops;
/* From now on the peer must not get any message. */
void muster_shm_retract_all(struct muster_shm_link *end);
/* The link is open: writes the tickets of the offers so far. */
void muster_shm_write_tickets(struct muster_shm_link *end);

/* The receiver's part: allocations of the peer's that are mapped here. */
void muster_shm_map_allocation(struct muster_shm_link *end, const struct muster_shm_packet *packet,
                               int fd);
void muster_shm_unmap_allocation(struct muster_shm_link *end, uint64_t id);
void muster_shm_unmap_allocations(struct muster_shm_link *end);
/* Where the data is mapped; NULL if not all of it is. */
const unsigned char *muster_shm_find_mapping(const struct muster_shm_link *end,
                                             const struct muster_shm_offer *offer,
                                             uint64_t size_bytes);

/* shm_get.c: reads offered messages, some pieces at a time. False: the link is closed. */
bool muster_shm_get_offered(struct muster_shm_link *end);

#endif
