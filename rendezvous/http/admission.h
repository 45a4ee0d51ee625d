/*
 * Who may keep a connection, and bodies: limits for each address and for all, so that one that
 * opens thousands delays nobody else. Pure: no sockets, no clock, no lock.
 *
 *   busy      a request of it is being worked on, or is held: it is never closed for another
 *   idle      it waits for a request, or for the rest of one
 *   trusted   its last request had a token of the server: it counts to no address
 *
 * When a limit is reached, a new connection closes the stranger that has been idle for longest,
 * before others one whose address has no trusted connection.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_ADMISSION_H
#define MUSTER_RENDEZVOUS_HTTP_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    MUSTER_ADDRESS_TEXT_SIZE = 48,
    MUSTER_BODIES_ADDRESS_MAX_BYTES = 16 * 1024 * 1024, /* of strangers, that are not answered */
    MUSTER_BODIES_STRANGERS_MAX_BYTES = 64 * 1024 * 1024,
    MUSTER_BODIES_ALL_MAX_BYTES = 256 * 1024 * 1024,
};

struct muster_admission_limits {
    uint32_t connections;
    uint32_t connections_per_address; /* idle strangers; 0: 1024, and no limit for this machine */
};

struct muster_admission_address; /* defined in admission.c */

/* One connection; storage of the caller. */
struct muster_admitted {
    struct muster_admission_address *address;
    bool busy, trusted, listed; /* listed: an idle stranger */
    bool closing;               /* it was chosen as a victim */
    size_t body_bytes;
    struct muster_admitted *prev, *next;           /* of all idle strangers, the oldest first */
    struct muster_admitted *near_prev, *near_next; /* of those of its address */
};

struct muster_admission {
    struct muster_admission_limits limits;
    struct muster_admission_address *addresses;
    struct muster_admitted *oldest; /* of the idle strangers */
    uint32_t open;                  /* without victims */
    size_t body_bytes, strangers_body_bytes;
};

/* The address as limits count it: without port; of IPv6 the network, because a machine has as many
 * addresses there as it likes. */
void muster_admission_name(const struct sockaddr *address, char ret_text[MUSTER_ADDRESS_TEXT_SIZE]);

/* A connection was opened. False: it is to be closed at once, and is not counted. *ret_victim:
 * NULL, or the connection to close for it, up to its muster_admission_close(). */
bool muster_admission_open(struct muster_admission *admission, const char *address,
                           struct muster_admitted *connection, struct muster_admitted **ret_victim);
void muster_admission_close(struct muster_admission *admission, struct muster_admitted *connection);

/* A request has arrived whole; it was answered. */
void muster_admission_set_busy(struct muster_admission *admission,
                               struct muster_admitted *connection, bool busy);
/* The head of a request has arrived: with a token of the server, or without. */
void muster_admission_set_trusted(struct muster_admission *admission,
                                  struct muster_admitted *connection, bool trusted);

/* More bytes of a body are to be kept. False: there are too many. */
bool muster_admission_take_body(struct muster_admission *admission,
                                struct muster_admitted *connection, size_t size_bytes);
void muster_admission_give_body(struct muster_admission *admission,
                                struct muster_admitted *connection, size_t size_bytes);

/* The text of muster_admission_name(); borrowed as long as the connection is open. */
const char *muster_admission_address(const struct muster_admitted *connection);

#endif
