/* Counts by address, and lists of idle strangers: the oldest is found without a search. */
#include "rendezvous/http/admission.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum {
    PER_ADDRESS = 1024,
    VICTIMS_SEARCHED = 64, /* idle strangers that are looked at for one of a worse address */
    IPV6_NETWORK_BYTES = 8,
};

struct muster_admission_address {
    char text[MUSTER_ADDRESS_TEXT_SIZE];
    bool local;
    uint32_t open, idle, trusted; /* connections: all, idle strangers, trusted */
    size_t body_bytes;            /* of strangers */
    struct muster_admitted *oldest;
    UT_hash_handle hh;
};

void muster_admission_name(const struct sockaddr *address, char ret_text[MUSTER_ADDRESS_TEXT_SIZE])
{
    char text[INET6_ADDRSTRLEN] = "?";
    const char *suffix = "";
    if (address->sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text,
                        sizeof text);
    } else if (address->sa_family == AF_INET6) {
        struct in6_addr six = ((const struct sockaddr_in6 *)address)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&six)) {
            (void)inet_ntop(AF_INET, &six.s6_addr[12], text, sizeof text);
        } else if (IN6_IS_ADDR_LOOPBACK(&six)) {
            (void)snprintf(text, sizeof text, "::1");
        } else {
            memset(&six.s6_addr[IPV6_NETWORK_BYTES], 0, sizeof six - IPV6_NETWORK_BYTES);
            (void)inet_ntop(AF_INET6, &six, text, sizeof text);
            suffix = "/64";
        }
    }
    (void)snprintf(ret_text, MUSTER_ADDRESS_TEXT_SIZE, "%.43s%s", text, suffix);
}

static struct muster_admission_address *hold_address(struct muster_admission *admission,
                                                     const char *text)
{
    struct muster_admission_address *address = NULL;
    HASH_FIND_STR(admission->addresses, text, address);
    if (address == NULL) {
        address = calloc(1, sizeof *address);
        if (address == NULL) {
            return NULL;
        }
        (void)snprintf(address->text, sizeof address->text, "%s", text);
        address->local = strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0;
        HASH_ADD_STR(admission->addresses, text, address);
        if (address->hh.tbl == NULL) {
            free(address);
            return NULL;
        }
    }
    address->open++;
    return address;
}

static void release_address(struct muster_admission *admission,
                            struct muster_admission_address *address)
{
    if (--address->open == 0) {
        HASH_DEL(admission->addresses, address);
        free(address);
    }
}

static void unlist(struct muster_admission *admission, struct muster_admitted *connection)
{
    if (connection->listed) {
        DL_DELETE(admission->oldest, connection);
        DL_DELETE2(connection->address->oldest, connection, near_prev, near_next);
        connection->address->idle--;
        connection->listed = false;
    }
}

/* An idle stranger is in both lists, at the end of them; nobody else is in any. */
static void place(struct muster_admission *admission, struct muster_admitted *connection)
{
    unlist(admission, connection);
    if (!connection->busy && !connection->trusted && !connection->closing) {
        DL_APPEND(admission->oldest, connection);
        DL_APPEND2(connection->address->oldest, connection, near_prev, near_next);
        connection->address->idle++;
        connection->listed = true;
    }
}

static struct muster_admitted *oldest_of_all(const struct muster_admission *admission)
{
    struct muster_admitted *found = admission->oldest;
    for (unsigned i = 0; found != NULL && i < VICTIMS_SEARCHED; i++, found = found->next) {
        if (found->address->trusted == 0) {
            return found;
        }
    }
    return admission->oldest;
}

bool muster_admission_open(struct muster_admission *admission, const char *address,
                           struct muster_admitted *connection, struct muster_admitted **ret_victim)
{
    struct muster_admission_limits limits = admission->limits;
    struct muster_admitted *victim = NULL;
    *ret_victim = NULL;
    *connection = (struct muster_admitted){.address = hold_address(admission, address)};
    if (connection->address == NULL) {
        return false;
    }
    uint32_t own = limits.connections_per_address;
    if (own == 0) {
        own = connection->address->local ? UINT32_MAX : PER_ADDRESS;
    }
    if (connection->address->idle >= own) {
        victim = connection->address->oldest;
    } else if (admission->open >= limits.connections) {
        victim = oldest_of_all(admission);
        if (victim == NULL) { /* all others are busy or trusted */
            release_address(admission, connection->address);
            connection->address = NULL;
            return false;
        }
    }
    if (victim != NULL) {
        victim->closing = true;
        unlist(admission, victim);
        admission->open--;
    }
    admission->open++;
    place(admission, connection);
    *ret_victim = victim;
    return true;
}

void muster_admission_close(struct muster_admission *admission, struct muster_admitted *connection)
{
    if (connection->address == NULL) {
        return;
    }
    unlist(admission, connection);
    admission->open -= connection->closing ? 0 : 1;
    connection->address->trusted -= connection->trusted ? 1 : 0;
    release_address(admission, connection->address);
    connection->address = NULL;
}

void muster_admission_set_busy(struct muster_admission *admission,
                               struct muster_admitted *connection, bool busy)
{
    if (connection->address != NULL) {
        connection->busy = busy;
        place(admission, connection);
    }
}

void muster_admission_set_trusted(struct muster_admission *admission,
                                  struct muster_admitted *connection, bool trusted)
{
    if (connection->address == NULL || connection->trusted == trusted) {
        return;
    }
    connection->trusted = trusted;
    connection->address->trusted += trusted ? 1 : UINT32_MAX; /* or one less */
    size_t bytes = connection->body_bytes;
    connection->address->body_bytes += trusted ? 0 - bytes : bytes;
    admission->strangers_body_bytes += trusted ? 0 - bytes : bytes;
    place(admission, connection);
}

bool muster_admission_take_body(struct muster_admission *admission,
                                struct muster_admitted *connection, size_t size_bytes)
{
    if (connection->address == NULL) {
        return false;
    }
    if (admission->body_bytes + size_bytes > MUSTER_BODIES_ALL_MAX_BYTES) {
        return false;
    }
    if (!connection->trusted) {
        size_t *own = &connection->address->body_bytes;
        if (*own + size_bytes > MUSTER_BODIES_ADDRESS_MAX_BYTES ||
            admission->strangers_body_bytes + size_bytes > MUSTER_BODIES_STRANGERS_MAX_BYTES) {
            return false;
        }
        *own += size_bytes;
        admission->strangers_body_bytes += size_bytes;
    }
    admission->body_bytes += size_bytes;
    connection->body_bytes += size_bytes;
    return true;
}

void muster_admission_give_body(struct muster_admission *admission,
                                struct muster_admitted *connection, size_t size_bytes)
{
    if (connection->address == NULL) {
        return;
    }
    if (!connection->trusted) {
        connection->address->body_bytes -= size_bytes;
        admission->strangers_body_bytes -= size_bytes;
    }
    admission->body_bytes -= size_bytes;
    connection->body_bytes -= size_bytes;
}

const char *muster_admission_address(const struct muster_admitted *connection)
{
    return connection->address != NULL ? connection->address->text : "?";
}
