/* The fabric: creation and destruction, generations, and what users can find out about links. */
#include "worker/fabric/fabric.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/cores.h"
#include "worker/base/epoch.h"
#include "worker/base/thread.h"
#include "worker/fabric/link.h"
#include "worker/fabric/link_presence.h"
#include "worker/fabric/transports.h"
#include "worker/trace/timeline.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 1 << 20, CONNECT_POLL_MS = 20 };
_Static_assert((int)MEMBERS_MAX <= (int)MUSTER_HELLO_RANKS_MAX, "a hello has room for all ranks");

/* Beginning and end -------------------------------------------------------------------------- */

static muster_status start_transports(struct muster_fabric *fabric,
                                      const struct muster_transport_settings *settings)
{
    for (uint32_t i = 0; i < settings->count; i++) {
        const struct muster_transport *ops = settings->rows[i].transport;
        void *self = NULL;
        TRY(ops->start(fabric, settings->rows[i].settings, &self));
        if (self != NULL) {
            uint32_t slot = fabric->transport_count++;
            fabric->transports[slot].ops = ops;
            fabric->transports[slot].self = self;
            uint32_t count = fabric->address_count;
            fabric->address_count +=
                ops->addresses(self, MUSTER_ADDRESSES_MAX - count, fabric->addresses + count);
        }
    }
    return MUSTER_OK;
}

/* Progress comes before the transports, which register descriptors with it. */
muster_status muster_fabric_create(const struct muster_fabric_options *options,
                                   struct muster_fabric **ret_fabric)
{
    if (strlen(options->member) >= MUSTER_UUID_SIZE || options->member[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "member \"%.64s\": not a UUID", options->member);
    }
    if (options->link_token != NULL && strlen(options->link_token) >= MUSTER_TOKEN_SIZE) {
        return muster_error_set(MUSTER_INVALID, "link token: longer than %d bytes",
                                MUSTER_TOKEN_SIZE - 1);
    }
    assert(options->segment_bytes == 0 || options->segment_bytes >= MUSTER_SEGMENT_BYTES_MIN);
    struct muster_fabric *fabric = calloc(1, sizeof *fabric);
    if (fabric == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    (void)snprintf(fabric->member, sizeof fabric->member, "%s", options->member);
    (void)snprintf(fabric->token, sizeof fabric->token, "%s",
                   options->link_token != NULL ? options->link_token : "");
    fabric->segment_bytes = options->segment_bytes != 0 ? options->segment_bytes : UINT32_MAX;
    fabric->timeline = options->timeline;
    fabric->loss_revokes = options->loss_revokes;
    fabric->quiet_ms = options->quiet_ms;
    fabric->look_at_links = muster_link_presence_timers;
    (void)snprintf(fabric->first_address, sizeof fabric->first_address, "%s",
                   options->first_address != NULL ? options->first_address : "");
    muster_status status = muster_progress_init(fabric);
    if (status != MUSTER_OK) {
        muster_progress_finish(fabric);
        free(fabric);
        return status;
    }
    status = start_transports(fabric, options->transports);
    if (status != MUSTER_OK) {
        muster_fabric_destroy(fabric, 0);
        return status;
    }
    *ret_fabric = fabric;
    return MUSTER_OK;
}

static void close_link(struct muster_link *link)
{
    struct muster_transfer_list sends = {0};
    muster_link_presence_end(link);
    if (link->end != NULL) {
        link->ops->close(link, &sends);
    }
    struct muster_transfer *send = NULL;
    while ((send = muster_transfer_list_pop(&sends)) != NULL) {
        send->state = MUSTER_TRANSFER_IDLE;
        link->sends--;
    }
}

static void stop_transports(struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->stop(fabric->transports[i].self);
    }
    fabric->transport_count = 0;
}

/* Links that are not OPEN any more need no goodbye. */
static bool all_goodbyes_done(const struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        const struct muster_link *link = fabric->links[i];
        if (link != NULL && link->state == MUSTER_LINK_OPEN && !link->ops->goodbye_done(link)) {
            return false;
        }
    }
    return true;
}

static void send_goodbyes(struct muster_fabric *fabric, uint32_t linger_ms)
{
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL && link->state == MUSTER_LINK_OPEN) {
            link->ops->send_goodbye(link);
        }
    }
    int64_t deadline_ns = muster_clock_after_ms(linger_ms);
    while (!all_goodbyes_done(fabric) && muster_clock_ns() < deadline_ns) {
        muster_progress_turn(fabric, deadline_ns);
    }
}

/* This thread is the leader until the end. Goodbyes are sent first; then links are closed before
 * the transports that they use, and progress is stopped last, because transports retire descriptors
 * with it. */
void muster_fabric_destroy(struct muster_fabric *fabric, uint32_t linger_ms)
{
    if (fabric == NULL) {
        return;
    }
    muster_mutex_lock(&fabric->lock);
    fabric->leading = true;
    fabric->closing = true;
    HASH_CLEAR(hh, fabric->by_member);
    if (!fabric->killed) {
        send_goodbyes(fabric, linger_ms);
    }
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        if (fabric->links[i] != NULL) {
            close_link(fabric->links[i]);
            free(fabric->links[i]);
        }
    }
    free(fabric->links);
    stop_transports(fabric);
    muster_mutex_unlock(&fabric->lock);
    muster_progress_finish(fabric);
    free(fabric);
}

void muster_fabric_kill(struct muster_fabric *fabric)
{
    AUTO_LOCK(&fabric->lock);
    muster_fabric_quiesce(fabric);
    fabric->killed = true;
    fabric->revoked = UINT64_MAX;
    atomic_store(&fabric->valid, 0);
    (void)snprintf(fabric->revoked_reason, MUSTER_REASON_SIZE, "this fabric was killed");
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL) {
            muster_link_fail(link, MUSTER_LINK_LOST, "this fabric was killed");
            close_link(link); /* needed if the peer has left: then the link still has its end */
        }
    }
    stop_transports(fabric);
    muster_progress_wake_all(fabric);
}

void muster_fabric_set_token(struct muster_fabric *fabric, const char *link_token)
{
    AUTO_LOCK(&fabric->lock);
    (void)snprintf(fabric->token, sizeof fabric->token, "%s", link_token);
}

struct muster_timeline *muster_fabric_timeline(const struct muster_fabric *fabric)
{
    return fabric->timeline;
}

uint32_t muster_fabric_address_count(const struct muster_fabric *fabric)
{
    return fabric->address_count;
}

const char *muster_fabric_address(const struct muster_fabric *fabric, uint32_t index)
{
    return fabric->addresses[index];
}

struct muster_fabric_figures muster_fabric_figures(struct muster_fabric *fabric)
{
    AUTO_LOCK(&fabric->lock);
    return fabric->figures;
}

/* Generations -------------------------------------------------------------------------------- */

static muster_status check_begin(const struct muster_fabric *fabric, uint64_t generation,
                                 uint32_t count)
{
    if (generation <= fabric->generation) {
        return muster_error_set(
            MUSTER_INVALID, "generation %" PRIu64 " cannot follow generation %" PRIu64,
            muster_epoch_shown(generation), muster_epoch_shown(fabric->generation));
    }
    if (count == 0 || count > MEMBERS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%u members: 1 to %d can be linked", count,
                                MEMBERS_MAX);
    }
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        const struct muster_link *link = fabric->links[i];
        if (link != NULL && (link->receives.count > 0 || link->sends > 0)) {
            return muster_error_set(
                MUSTER_INVALID, "transfers with rank %u of generation %" PRIu64 " are still posted",
                i, muster_epoch_shown(fabric->generation));
        }
    }
    return MUSTER_OK;
}

/* Creates the link to a new peer. A link to a peer of the last generation stays open, unless it was
 * lost or the peer has left: then it may open again. */
static muster_status update_link(struct muster_fabric *fabric, const struct muster_peer *peer,
                                 uint32_t rank)
{
    struct muster_link *link = muster_fabric_find_link(fabric, peer->member);
    if (link == NULL) {
        link = calloc(1, sizeof *link);
        if (link == NULL) {
            return muster_error_set(MUSTER_FATAL, "out of memory");
        }
        link->fabric = fabric;
        memcpy(link->peer.member, peer->member, MUSTER_UUID_SIZE);
        HASH_ADD_STR(fabric->by_member, peer.member, link);
    }
    link->peer = *peer;
    link->rank = rank;
    link->last_generation = fabric->generation;
    if (link->state == MUSTER_LINK_LOST || link->state == MUSTER_LINK_PEER_LEFT) {
        close_link(link);
        link->state = MUSTER_LINK_IDLE;
    }
    return MUSTER_OK;
}

static void drop_link(struct muster_link *link)
{
    struct muster_fabric *fabric = link->fabric;
    if (link->state == MUSTER_LINK_OPEN) {
        link->ops->send_goodbye(link);
    }
    close_link(link);
    HASH_DEL(fabric->by_member, link);
    if (fabric->awaited == link) {
        fabric->awaited = NULL;
    }
    link->next = fabric->retired_links;
    fabric->retired_links = link;
}

static void drop_old_links(struct muster_fabric *fabric)
{
    struct muster_link *link = NULL;
    struct muster_link *next = NULL;
    HASH_ITER(hh, fabric->by_member, link, next)
    {
        if (link->last_generation != fabric->generation) {
            drop_link(link);
        }
    }
}

static muster_status update_links(struct muster_fabric *fabric, const struct muster_peer *peers,
                                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(peers[i].member, fabric->member) != 0) {
            TRY(update_link(fabric, &peers[i], i));
            fabric->links[i] = muster_fabric_find_link(fabric, peers[i].member);
        }
    }
    return MUSTER_OK;
}

static void set_host(struct muster_fabric *fabric, const struct muster_peer *peers, uint32_t count)
{
    fabric->host[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(peers[i].member, fabric->member) == 0) {
            memcpy(fabric->host, peers[i].host, sizeof fabric->host);
        }
    }
}

/* How many members this host has, which of them this one is, and the cores that they share. */
static struct muster_spin_host describe_host(const struct muster_fabric *fabric,
                                             const struct muster_peer *peers, uint32_t count)
{
    struct muster_spin_host host = {.cores = muster_cores_usable(),
                                    .quota_millis = muster_cores_quota_millis("")};
    for (uint32_t i = 0; i < count && fabric->host[0] != '\0'; i++) {
        if (strcmp(peers[i].member, fabric->member) == 0) {
            host.index = host.members;
        }
        host.members += strcmp(peers[i].host, fabric->host) == 0;
    }
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        host.has_device = host.has_device || fabric->transports[i].ops->polls_device;
    }
    return host;
}

/* The arguments are checked before anything changes. The number of the generation is set before
 * links are updated, because each link records the last generation that had its peer. Slot refresh
 * closes links that died unnoticed before they become links of the new generation. Slot
 * begin_generation accepts pending connections when all links have been created, and tells the
 * peers of open links this member's new rank; what they have told before is compared last. */
muster_status muster_fabric_begin_generation(struct muster_fabric *fabric, uint64_t generation,
                                             const struct muster_peer *peers, uint32_t count)
{
    AUTO_LOCK(&fabric->lock);
    muster_fabric_quiesce(fabric);
    TRY(check_begin(fabric, generation, count));
    struct muster_link **links = calloc(count, sizeof(struct muster_link *));
    if (links == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    free(fabric->links);
    fabric->links = links;
    fabric->link_count = count;
    fabric->generation = generation;
    atomic_store(&fabric->valid, generation > fabric->revoked ? generation : 0);
    fabric->lost = false;
    fabric->out_of_descriptors[0] = '\0';
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->refresh(fabric->transports[i].self);
    }
    muster_ended_operations_begin(&fabric->ended, generation);
    set_host(fabric, peers, count);
    TRY(update_links(fabric, peers, count));
    drop_old_links(fabric);
    const struct muster_spin_host host = describe_host(fabric, peers, count);
    muster_spin_policy_init(&fabric->spin_policy, &muster_spin_on_links, &host);
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->begin_generation(fabric->transports[i].self);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (fabric->links[i] != NULL) {
            muster_link_compare_rank(fabric->links[i]);
        }
    }
    muster_progress_wake_all(fabric);
    muster_timeline_begin(fabric->timeline, generation, muster_fabric_own_rank(fabric), count);
    return MUSTER_OK;
}

bool muster_fabric_lost_peer(struct muster_fabric *fabric, uint64_t generation, uint32_t *ret_rank,
                             char *ret_reason)
{
    AUTO_LOCK(&fabric->lock);
    if (!fabric->lost || generation != fabric->generation) {
        return false;
    }
    *ret_rank = fabric->lost_rank;
    memcpy(ret_reason, fabric->lost_reason, MUSTER_REASON_SIZE);
    return true;
}

bool muster_fabric_out_of_descriptors(struct muster_fabric *fabric, uint64_t generation,
                                      char *ret_reason)
{
    AUTO_LOCK(&fabric->lock);
    if (fabric->out_of_descriptors[0] == '\0' || generation != fabric->generation) {
        return false;
    }
    memcpy(ret_reason, fabric->out_of_descriptors, MUSTER_REASON_SIZE);
    return true;
}

/* Returns the number of open links; *ret_opening: some are about to open. */
static uint32_t open_links(struct muster_fabric *fabric, uint64_t generation, bool *ret_opening)
{
    uint32_t open = 0;
    AUTO_LOCK(&fabric->lock);
    *ret_opening = false;
    for (uint32_t i = 0; generation == fabric->generation && i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL) {
            muster_link_open(link);
            open += link->state == MUSTER_LINK_OPEN;
            *ret_opening = *ret_opening || link->state == MUSTER_LINK_OPENING;
        }
    }
    return open;
}

uint32_t muster_fabric_connect_all(struct muster_fabric *fabric, uint64_t generation,
                                   int64_t deadline_ns)
{
    const bool never = false;
    for (;;) {
        bool opening = false;
        uint32_t open = open_links(fabric, generation, &opening);
        int64_t next_ns = muster_clock_after_ms(CONNECT_POLL_MS);
        muster_status status =
            opening ? muster_fabric_wait(fabric, generation, &never,
                                         next_ns < deadline_ns ? next_ns : deadline_ns)
                    : MUSTER_OK;
        if (status != MUSTER_RETRY || muster_clock_ns() >= deadline_ns) {
            return open;
        }
    }
}

muster_status muster_fabric_check(struct muster_fabric *fabric, uint64_t generation)
{
    if (atomic_load(&fabric->valid) == generation) { /* most calls find that */
        return MUSTER_OK;
    }
    AUTO_LOCK(&fabric->lock);
    return generation <= fabric->revoked || generation < fabric->generation
               ? muster_fabric_over(fabric, generation)
               : MUSTER_OK;
}
