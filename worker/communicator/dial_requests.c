/* Requests to be dialled: sent, passed on, fulfilled. All records are under the fabric's lock. */
#include "worker/communicator/dial_requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "worker/base/bytes.h"
#include "worker/base/log.h"
#include "worker/communicator/set_numbers.h"

enum {
    CONTEXT = MUSTER_SET_NUMBERS - 2, /* below that of set_lists.c */
    HOPS_MAX = 64,                    /* twice the bits of a rank */
    AT_TO = 0,
    AT_FROM = 4,
    AT_HOPS = 8,
    AT_ADDRESSES = 12,
    AT_MEMBER = 16,
    AT_HOST = AT_MEMBER + MUSTER_UUID_SIZE,
    AT_TEXT = AT_HOST + MUSTER_PEER_HOST_SIZE,
};
_Static_assert((int)AT_TEXT == (int)MUSTER_DIAL_REQUEST_LEAST, "the table in the header");

/* Encoding ------------------------------------------------------------------------------------- */

size_t muster_dial_request_encode(const struct muster_dial_request *request,
                                  unsigned char ret_bytes[MUSTER_DIAL_REQUEST_MOST])
{
    unsigned char *b = ret_bytes;
    size_t used = AT_TEXT;
    memset(b, 0, MUSTER_DIAL_REQUEST_MOST);
    muster_bytes_put(b + AT_TO, request->to, 4);
    muster_bytes_put(b + AT_FROM, request->from, 4);
    muster_bytes_put(b + AT_HOPS, request->hops, 4);
    muster_bytes_put(b + AT_ADDRESSES, request->peer.address_count, 4);
    memcpy(b + AT_MEMBER, request->peer.member, MUSTER_UUID_SIZE);
    memcpy(b + AT_HOST, request->peer.host, MUSTER_PEER_HOST_SIZE);
    for (uint32_t i = 0; i < request->peer.address_count; i++) {
        size_t size_bytes = strlen(request->peer.addresses[i]) + 1;
        memcpy(b + used, request->peer.addresses[i], size_bytes);
        used += size_bytes;
    }
    return used;
}

/* The text of so many bytes at most, with its terminator; NULL: it has none. */
static const char *text_at(const unsigned char *at, size_t most_bytes)
{
    return memchr(at, '\0', most_bytes) != NULL ? (const char *)at : NULL;
}

static bool get_addresses(const unsigned char *bytes, size_t size_bytes, struct muster_peer *peer)
{
    size_t used = AT_TEXT;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        size_t left = size_bytes - used;
        const char *text =
            text_at(bytes + used, left < MUSTER_ADDRESS_SIZE ? left : MUSTER_ADDRESS_SIZE);
        if (text == NULL) {
            return false;
        }
        (void)snprintf(peer->addresses[i], sizeof peer->addresses[i], "%s", text);
        used += strlen(text) + 1;
    }
    return used == size_bytes;
}

muster_status muster_dial_request_decode(const unsigned char *bytes, size_t size_bytes,
                                         uint32_t size, struct muster_dial_request *ret_request)
{
    struct muster_dial_request request = {0};
    if (size_bytes < AT_TEXT || size_bytes > MUSTER_DIAL_REQUEST_MOST) {
        return muster_error_set(MUSTER_INVALID, "a request to be dialled has %zu bytes",
                                size_bytes);
    }
    request.to = (uint32_t)muster_bytes_get(bytes + AT_TO, 4);
    request.from = (uint32_t)muster_bytes_get(bytes + AT_FROM, 4);
    request.hops = (uint32_t)muster_bytes_get(bytes + AT_HOPS, 4);
    request.peer.address_count = (uint32_t)muster_bytes_get(bytes + AT_ADDRESSES, 4);
    const char *member = text_at(bytes + AT_MEMBER, MUSTER_UUID_SIZE);
    const char *host = text_at(bytes + AT_HOST, MUSTER_PEER_HOST_SIZE);
    if (request.to >= size || request.from >= size || request.hops >= HOPS_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "a request to be dialled goes from rank %u to rank %u of %u, after "
                                "%u hops",
                                request.from, request.to, size, request.hops);
    }
    if (member == NULL || host == NULL || strlen(member) != MUSTER_UUID_SIZE - 1 ||
        request.peer.address_count > MUSTER_ADDRESSES_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "a request to be dialled by rank %u has no member, no host or %u "
                                "addresses",
                                request.from, request.peer.address_count);
    }
    (void)snprintf(request.peer.member, sizeof request.peer.member, "%s", member);
    (void)snprintf(request.peer.host, sizeof request.peer.host, "%s", host);
    if (!get_addresses(bytes, size_bytes, &request.peer)) {
        return muster_error_set(MUSTER_INVALID,
                                "the addresses in a request to be dialled by rank %u are no texts",
                                request.from);
    }
    *ret_request = request;
    return MUSTER_OK;
}

/* Messages ------------------------------------------------------------------------------------- */

/* A message that is posted, or is about to be. When it is done, the fabric may still use its record
 * for a moment, so it is freed before the next one is made. */
struct passed {
    struct muster_transfer transfer; /* first: the fabric hands it back */
    struct muster_call call;
    struct muster_dial_requests *requests;
    unsigned char bytes[MUSTER_DIAL_REQUEST_MOST];
    LIST_ENTRY(passed) entry;
};

LIST_HEAD(passed_list, passed);

struct muster_dial_requests {
    struct muster_announcement_listener listener; /* first: it is found by it */
    struct muster_fabric *fabric;
    uint64_t generation;
    uint32_t rank;
    const struct muster_topology *topology;  /* borrowed */
    bool ready;                              /* messages may be received */
    uint32_t sent;                           /* messages, to all members together */
    struct passed_list early, posted, spent; /* before `ready`; and then; done */
};

static void free_all(struct passed_list *list)
{
    struct passed *passed = NULL;
    while ((passed = LIST_FIRST(list)) != NULL) {
        LIST_REMOVE(passed, entry);
        free(passed);
    }
}

static void spend(struct passed *passed)
{
    LIST_REMOVE(passed, entry);
    LIST_INSERT_HEAD(&passed->requests->spent, passed, entry);
}

/* NULL: no memory. */
static struct passed *make(struct muster_dial_requests *requests, enum muster_direction direction,
                           uint32_t peer, size_t size_bytes)
{
    free_all(&requests->spent);
    struct passed *passed = calloc(1, sizeof *passed);
    if (passed != NULL) {
        passed->requests = requests;
        passed->call = (struct muster_call){.type = MUSTER_UINT8, .count = size_bytes};
        passed->transfer = (struct muster_transfer){.direction = direction,
                                                    .peer = peer,
                                                    .size_bytes = size_bytes,
                                                    .element_size_bytes = 1};
    }
    return passed;
}

static void handle(struct muster_dial_requests *requests, const struct passed *passed);

static void when_done(struct muster_transfer *transfer)
{
    struct passed *passed = (struct passed *)transfer;
    if (transfer->status == MUSTER_OK && transfer->direction == MUSTER_RECEIVE) {
        handle(passed->requests, passed);
    }
    spend(passed);
}

static void post(struct passed *passed)
{
    struct muster_dial_requests *requests = passed->requests;
    passed->transfer.call = &passed->call;
    passed->transfer.data = passed->bytes;
    passed->transfer.done = when_done;
    LIST_INSERT_HEAD(&requests->posted, passed, entry);
    if (muster_fabric_post_locked(requests->fabric, &passed->transfer) != MUSTER_OK) {
        spend(passed);
    }
}

/* To the next member on the way. Without one the request is lost. */
static void pass_on(struct muster_dial_requests *requests,
                    const struct muster_dial_request *request)
{
    uint32_t next = 0;
    unsigned char bytes[MUSTER_DIAL_REQUEST_MOST];
    if (!muster_fabric_find_before_locked(requests->fabric, requests->generation, request->to,
                                          &next)) {
        return;
    }
    size_t size_bytes = muster_dial_request_encode(request, bytes);
    struct passed *passed = make(requests, MUSTER_SEND, next, size_bytes);
    if (passed == NULL) {
        return;
    }
    memcpy(passed->bytes, bytes, size_bytes);
    passed->transfer.key = (struct muster_message_key){.generation = requests->generation,
                                                       .sequence = MUSTER_ANNOUNCED_SEQUENCE,
                                                       .context = requests->listener.context,
                                                       .ordinal = requests->sent++};
    post(passed);
}

/* At the destination: the link is opened from here, by the addresses in the request. */
static void handle(struct muster_dial_requests *requests, const struct passed *passed)
{
    struct muster_dial_request request = {0};
    muster_status status = muster_dial_request_decode(passed->bytes, passed->transfer.size_bytes,
                                                      requests->topology->ranks, &request);
    if (status == MUSTER_OK && request.to != requests->rank) {
        request.hops++;
        if (request.hops < HOPS_MAX) {
            pass_on(requests, &request);
        }
        return;
    }
    if (status == MUSTER_OK) {
        request.peer.other_host = muster_topology_host(requests->topology, request.from) !=
                                  muster_topology_host(requests->topology, requests->rank);
        status = muster_fabric_add_peer_locked(requests->fabric, requests->generation,
                                               &request.peer, request.from);
    }
    if (status == MUSTER_OK) {
        muster_fabric_open_locked(requests->fabric, requests->generation, request.from);
    } else if (status != MUSTER_REJOIN) {
        muster_log(MUSTER_LOG_WARN, "peer=%u %s", passed->transfer.peer, muster_last_error());
    }
}

/* The listener --------------------------------------------------------------------------------- */

static bool is_listed(const struct passed_list *list, const struct muster_announcement *message)
{
    const struct passed *passed = NULL;
    LIST_FOREACH(passed, list, entry)
    {
        if (passed->transfer.direction == MUSTER_RECEIVE &&
            passed->transfer.peer == message->peer &&
            passed->transfer.key.ordinal == message->key.ordinal) {
            return true;
        }
    }
    return false;
}

static void announced(struct muster_announcement_listener *listener,
                      const struct muster_announcement *message)
{
    struct muster_dial_requests *requests = (struct muster_dial_requests *)listener;
    if (message->size_bytes > MUSTER_DIAL_REQUEST_MOST || is_listed(&requests->posted, message) ||
        is_listed(&requests->early, message)) {
        return;
    }
    struct passed *passed = make(requests, MUSTER_RECEIVE, message->peer, message->size_bytes);
    if (passed == NULL) {
        return;
    }
    passed->call = message->call;
    passed->transfer.key = message->key;
    if (requests->ready) {
        post(passed);
    } else {
        LIST_INSERT_HEAD(&requests->early, passed, entry);
    }
}

/* The members on other ways are asked when the request is sent again. */
static void link_ended(struct muster_announcement_listener *listener, uint32_t peer, bool left,
                       const char *reason)
{
    (void)listener;
    (void)peer;
    (void)left;
    (void)reason;
}

/* Beginning and end ---------------------------------------------------------------------------- */

void muster_dial_requests_send(struct muster_dial_requests *requests, const uint32_t *ranks,
                               uint32_t count)
{
    struct muster_dial_request request = {.from = requests->rank};
    muster_fabric_describe(requests->fabric, &request.peer);
    muster_fabric_begin_posting(requests->fabric);
    for (uint32_t i = 0; i < count; i++) {
        request.to = ranks[i];
        pass_on(requests, &request);
    }
    muster_fabric_end_posting(requests->fabric);
}

muster_status muster_dial_requests_create(struct muster_fabric *fabric, uint64_t generation,
                                          uint32_t rank, const struct muster_topology *topology,
                                          struct muster_dial_requests **ret_requests)
{
    struct muster_dial_requests *requests = calloc(1, sizeof *requests);
    if (requests == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for requests to be dialled");
    }
    requests->fabric = fabric;
    requests->generation = generation;
    requests->rank = rank;
    requests->topology = topology;
    LIST_INIT(&requests->early);
    LIST_INIT(&requests->posted);
    LIST_INIT(&requests->spent);
    requests->listener =
        (struct muster_announcement_listener){.generation = generation,
                                              .context = CONTEXT | MUSTER_ANNOUNCED_CONTEXT,
                                              .announced = announced,
                                              .link_ended = link_ended};
    muster_fabric_listen(fabric, &requests->listener);
    muster_fabric_begin_posting(fabric);
    requests->ready = true;
    struct passed *passed = NULL;
    while ((passed = LIST_FIRST(&requests->early)) != NULL) {
        LIST_REMOVE(passed, entry);
        post(passed);
    }
    muster_fabric_end_posting(fabric);
    *ret_requests = requests;
    return MUSTER_OK;
}

void muster_dial_requests_destroy(struct muster_dial_requests *requests)
{
    if (requests == NULL) {
        return;
    }
    muster_fabric_unlisten(requests->fabric, &requests->listener);
    muster_fabric_withdraw(requests->fabric, requests->generation, requests->listener.context,
                           MUSTER_ANNOUNCED_SEQUENCE);
    free_all(&requests->early);
    free_all(&requests->posted);
    free_all(&requests->spent);
    free(requests);
}
