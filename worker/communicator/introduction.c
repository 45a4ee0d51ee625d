/* Introductions as bytes, and what must be the same in all of them. */
#include "worker/communicator/introduction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <zlib.h>

#include "collectives/call/host_order.h"
#include "worker/base/bytes.h"
#include "worker/base/cleanup.h"

enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_BITS = 10,
    AT_CHECKSUM = 12,
    AT_RANK = 16,
    AT_SIZE = 20,
    AT_ORDER = 24,
    AT_DIGEST = 28,
    AT_LIBRARY = 32,
    AT_MEMBER = 48,
    AT_HOST = 84,
    AT_RACK = 148,
    AT_TOKEN = 212,
    AT_ALGORITHM = 276,
    AT_ADDRESSES = 340,
    AT_TEXT = 344,
    TEXT_BYTES = MUSTER_INTRODUCTION_SIZE - AT_TEXT,
    BIT_REPRODUCIBLE = 1,
    BIT_FAILED = 2,
};

static const unsigned char magic[8] = "MUSTERat";

/* Encoding ------------------------------------------------------------------------------------- */

void muster_introduction_set_algorithm(struct muster_introduction *introduction,
                                       const char *algorithm)
{
    const char *text = algorithm != NULL ? algorithm : "";
    introduction->algorithm_digest =
        (uint32_t)crc32(0, (const unsigned char *)text, (uInt)strlen(text));
    (void)snprintf(introduction->algorithm, sizeof introduction->algorithm, "%s", text);
}

static uint32_t checksum(const unsigned char *bytes)
{
    unsigned long sum = crc32(0, bytes, AT_CHECKSUM);
    return (uint32_t)crc32(sum, bytes + AT_CHECKSUM + 4,
                           MUSTER_INTRODUCTION_SIZE - AT_CHECKSUM - 4);
}

static void put_text(unsigned char *at, const char *text, size_t size)
{
    memcpy(at, text, strnlen(text, size));
}

/* Returns how many fit. */
static uint32_t put_addresses(unsigned char *at, const struct muster_peer *peer)
{
    size_t used = 0;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        size_t size = strlen(peer->addresses[i]) + 1;
        if (size > TEXT_BYTES - used) {
            return i;
        }
        memcpy(at + used, peer->addresses[i], size);
        used += size;
    }
    return peer->address_count;
}

void muster_introduction_encode(const struct muster_introduction *introduction,
                                unsigned char ret_bytes[MUSTER_INTRODUCTION_SIZE])
{
    unsigned char *b = ret_bytes;
    bool failed = introduction->failure[0] != '\0';
    memset(b, 0, MUSTER_INTRODUCTION_SIZE);
    memcpy(b + AT_MAGIC, magic, sizeof magic);
    muster_bytes_put(b + AT_VERSION, MUSTER_WIRE_VERSION, 2);
    muster_bytes_put(
        b + AT_BITS,
        (introduction->reproducible ? BIT_REPRODUCIBLE : 0U) | (failed ? BIT_FAILED : 0U), 2);
    muster_bytes_put(b + AT_RANK, introduction->rank, 4);
    muster_bytes_put(b + AT_SIZE, introduction->size, 4);
    muster_bytes_put(b + AT_ORDER, introduction->order, 4);
    muster_bytes_put(b + AT_DIGEST, introduction->algorithm_digest, 4);
    put_text(b + AT_LIBRARY, introduction->library, AT_MEMBER - AT_LIBRARY);
    put_text(b + AT_MEMBER, introduction->peer.member, AT_HOST - AT_MEMBER);
    put_text(b + AT_HOST, introduction->peer.host, AT_RACK - AT_HOST);
    put_text(b + AT_RACK, introduction->rack, AT_TOKEN - AT_RACK);
    put_text(b + AT_TOKEN, introduction->token, AT_ALGORITHM - AT_TOKEN);
    put_text(b + AT_ALGORITHM, introduction->algorithm, AT_ADDRESSES - AT_ALGORITHM);
    if (failed) {
        put_text(b + AT_TEXT, introduction->failure, sizeof introduction->failure);
    } else {
        muster_bytes_put(b + AT_ADDRESSES, put_addresses(b + AT_TEXT, &introduction->peer), 4);
    }
    muster_bytes_put(b + AT_CHECKSUM, checksum(b), 4);
}

/* Decoding ------------------------------------------------------------------------------------- */

/* size: of the field in the bytes; the text has room for it and a terminator. */
static void get_text(const unsigned char *at, char *ret_text, size_t size)
{
    memcpy(ret_text, at, size);
    ret_text[size] = '\0';
}

/* False: they are not terminated, too long or too many. */
static bool get_addresses(const unsigned char *at, uint64_t count, struct muster_peer *peer)
{
    size_t used = 0;
    if (count > MUSTER_ADDRESSES_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strnlen((const char *)at + used, TEXT_BYTES - used);
        if (length == TEXT_BYTES - used || length >= MUSTER_ADDRESS_SIZE) {
            return false;
        }
        memcpy(peer->addresses[i], at + used, length + 1);
        used += length + 1;
    }
    peer->address_count = (uint32_t)count;
    return true;
}

static muster_status check_bytes(const unsigned char *b, uint32_t rank)
{
    if (memcmp(b + AT_MAGIC, magic, sizeof magic) != 0) {
        return muster_error_set(MUSTER_INVALID,
                                "the exchange function returned no introduction of rank %u", rank);
    }
    uint64_t version = muster_bytes_get(b + AT_VERSION, 2);
    if (version != MUSTER_WIRE_VERSION) {
        return muster_error_set(MUSTER_INVALID, "rank %u has wire version %llu, this member %d",
                                rank, (unsigned long long)version, MUSTER_WIRE_VERSION);
    }
    if (muster_bytes_get(b + AT_CHECKSUM, 4) != checksum(b)) {
        return muster_error_set(MUSTER_INVALID,
                                "the exchange function has changed the introduction of rank %u: "
                                "wrong checksum",
                                rank);
    }
    return MUSTER_OK;
}

muster_status muster_introduction_decode(const unsigned char bytes[MUSTER_INTRODUCTION_SIZE],
                                         uint32_t rank,
                                         struct muster_introduction *ret_introduction)
{
    const unsigned char *b = bytes;
    TRY(check_bytes(b, rank));
    struct muster_introduction found = {
        .rank = (uint32_t)muster_bytes_get(b + AT_RANK, 4),
        .size = (uint32_t)muster_bytes_get(b + AT_SIZE, 4),
        .order = (uint32_t)muster_bytes_get(b + AT_ORDER, 4),
        .algorithm_digest = (uint32_t)muster_bytes_get(b + AT_DIGEST, 4),
        .reproducible = (muster_bytes_get(b + AT_BITS, 2) & BIT_REPRODUCIBLE) != 0,
    };
    get_text(b + AT_LIBRARY, found.library, AT_MEMBER - AT_LIBRARY);
    get_text(b + AT_MEMBER, found.peer.member, AT_HOST - AT_MEMBER);
    get_text(b + AT_HOST, found.peer.host, AT_RACK - AT_HOST - 1);
    get_text(b + AT_RACK, found.rack, AT_TOKEN - AT_RACK - 1);
    get_text(b + AT_TOKEN, found.token, AT_ALGORITHM - AT_TOKEN);
    get_text(b + AT_ALGORITHM, found.algorithm, AT_ADDRESSES - AT_ALGORITHM);
    if ((muster_bytes_get(b + AT_BITS, 2) & BIT_FAILED) != 0) {
        get_text(b + AT_TEXT, found.failure, sizeof found.failure - 1);
    } else if (!get_addresses(b + AT_TEXT, muster_bytes_get(b + AT_ADDRESSES, 4), &found.peer)) {
        return muster_error_set(MUSTER_INVALID, "rank %u: addresses that are too long or too many",
                                rank);
    }
    *ret_introduction = found;
    return MUSTER_OK;
}

/* Comparing ------------------------------------------------------------------------------------ */

static const char *or_none(const char *text)
{
    return text[0] != '\0' ? text : "none";
}

static muster_status check_one(const struct muster_introduction *one, uint32_t rank, uint32_t size,
                               const struct muster_introduction *own)
{
    if (one->rank != rank) {
        return muster_error_set(MUSTER_INVALID,
                                "the member in place %u of the exchange says that it is rank %u: "
                                "each rank is given once, in the order of the exchange",
                                rank, one->rank);
    }
    if (one->size != size) {
        return muster_error_set(MUSTER_INVALID, "rank %u has size %u, rank %u size %u", rank,
                                one->size, own->rank, size);
    }
    if (one->algorithm_digest != own->algorithm_digest) {
        return muster_error_set(MUSTER_INVALID,
                                "algorithm (MUSTER_ALGORITHM): rank %u has \"%s\", rank %u \"%s\"",
                                rank, or_none(one->algorithm), own->rank, or_none(own->algorithm));
    }
    if (one->reproducible != own->reproducible) {
        return muster_error_set(MUSTER_INVALID,
                                "reproducible (MUSTER_REPRODUCIBLE): rank %u has %d, rank %u %d",
                                rank, one->reproducible, own->rank, own->reproducible);
    }
    return MUSTER_OK;
}

muster_status muster_introductions_check(const struct muster_introduction *all, uint32_t size,
                                         const struct muster_introduction *own)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        if (all[rank].failure[0] != '\0') {
            return muster_error_set(MUSTER_RETRY, "rank %u (host %s) cannot take part: %s", rank,
                                    all[rank].peer.host, all[rank].failure);
        }
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        TRY(check_one(&all[rank], rank, size, own));
    }
    const struct muster_peer *mine = &all[own->rank].peer;
    if (strcmp(mine->member, own->peer.member) != 0) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %u is given twice: a member on host %s has it, too",
                                own->rank, mine->host);
    }
    return MUSTER_OK;
}

/* Hosts and racks ------------------------------------------------------------------------------ */

/* The number of a name: in the order in which they first occur. */
struct numbered_name {
    const char *name;
    uint32_t number;
    UT_hash_handle hh;
};

struct numbered_names {
    struct numbered_name *by_name;
    struct numbered_name *names; /* [size] room */
    uint32_t count;
};

/* UINT32_MAX: no memory. */
static uint32_t number_of(struct numbered_names *names, const char *name)
{
    struct numbered_name *found = NULL;
    HASH_FIND_STR(names->by_name, name, found);
    if (found == NULL) {
        found = &names->names[names->count];
        *found = (struct numbered_name){.name = name, .number = names->count++};
        HASH_ADD_KEYPTR(hh, names->by_name, found->name, strlen(found->name), found);
        if (found->hh.tbl == NULL) {
            return UINT32_MAX;
        }
    }
    return found->number;
}

/* *ret_complete: false if there was no memory. */
static void number_all(const struct muster_introduction *all, uint32_t size, bool racks,
                       struct numbered_name *room, uint32_t *ret_numbers, bool *ret_complete)
{
    struct numbered_names names = {.names = room};
    for (uint32_t rank = 0; rank < size; rank++) {
        ret_numbers[rank] = number_of(&names, racks ? all[rank].rack : all[rank].peer.host);
        *ret_complete = *ret_complete && ret_numbers[rank] != UINT32_MAX;
    }
    HASH_CLEAR(hh, names.by_name);
}

muster_status muster_introductions_place(const struct muster_introduction *all, uint32_t size,
                                         uint32_t *ret_callers,
                                         struct muster_topology *ret_topology)
{
    AUTO_FREE uint32_t *numbers = calloc((size_t)size + 1, 2 * sizeof *numbers);
    AUTO_FREE struct numbered_name *room = calloc((size_t)size + 1, sizeof *room);
    bool complete = numbers != NULL && room != NULL;
    if (complete) {
        number_all(all, size, false, room, numbers, &complete);
        number_all(all, size, true, room, numbers + size, &complete);
    }
    if (!complete) {
        return muster_error_set(MUSTER_FATAL, "no memory for the hosts of %u members", size);
    }
    return muster_host_order(size, numbers, numbers + size, ret_callers, ret_topology);
}
