/* The fabric: creation and destruction, generations, and what users can find out about links. */
#include "worker/fabric/fabric.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/cores.h"
#include "worker/base/epoch.h"
#include "worker/base/thread.h"
#include "worker/fabric/known_peers.h"
#include "worker/fabric/link.h"
#include "worker/fabric/link_presence.h"
#include "worker/fabric/sought_links.h"
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
    fabric->timeline = muster_timeline_records(options->timeline) ? options->timeline : NULL;
    fabric->generations = options->timeline;
    fabric->loss_revokes = options->loss_revokes;
    fabric->quiet_ms = options->quiet_ms;
    fabric->look_at_links = muster_link_presence_timers;
    fabric->seek = muster_link_seek;
    fabric->claim_rank = muster_link_claim_rank;
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

static void stop_transports(struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->stop(fabric->transports[i].self);
    }
    fabric->transport_count = 0;
}

/* Links that are not OPEN any more need no goodbye. */
static bool all_goodbyes_done(const struct muster_link *links)
{
    for (const struct muster_link *link = links; link != NULL; link = link->next) {
        if (link->state == MUSTER_LINK_OPEN && !link->ops->goodbye_done(link)) {
            return false;
        }
    }
    return true;
}

static void send_goodbyes(struct muster_fabric *fabric, struct muster_link *links,
                          uint32_t linger_ms)
{
    for (struct muster_link *link = links; link != NULL; link = link->next) {
        if (link->state == MUSTER_LINK_OPEN) {
            link->ops->send_goodbye(link);
        }
    }
    int64_t deadline_ns = muster_clock_after_ms(linger_ms);
    while (!all_goodbyes_done(links) && muster_clock_ns() < deadline_ns) {
        muster_progress_turn(fabric, 0, deadline_ns);
    }
}

/* All links, as a list: nobody finds them by their members any more. */
static struct muster_link *take_all_links(struct muster_fabric *fabric)
{
    struct muster_link *all = NULL;
    struct muster_link *link = NULL;
    struct muster_link *next = NULL;
    HASH_ITER(hh, fabric->by_member, link, next)
    {
        HASH_DEL(fabric->by_member, link);
        link->next = all;
        all = link;
    }
    return all;
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
    muster_known_peers_drop_nameless(fabric);
    struct muster_link *links = take_all_links(fabric);
    if (!fabric->killed) {
        send_goodbyes(fabric, links, linger_ms);
    }
    while (links != NULL) {
        struct muster_link *link = links;
        links = link->next;
        muster_link_close(link);
        free(link);
    }
    free(fabric->links);
    stop_transports(fabric);
    muster_mutex_unlock(&fabric->lock);
    muster_progress_finish(fabric);
    free(fabric);
}

static void fail_link(struct muster_link *link)
{
    muster_link_fail(link, MUSTER_LINK_LOST, "this fabric was killed");
    muster_link_close(link); /* needed if the peer has left: then the link still has its end */
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
        if (fabric->links[i] != NULL) {
            fail_link(fabric->links[i]);
        }
    }
    for (struct muster_link *link = fabric->by_member; link != NULL; link = link->hh.next) {
        fail_link(link); /* those without a rank */
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

/* How many members this host has, which of them this one is, and the cores that they share. */
static struct muster_spin_host describe_host(const struct muster_fabric *fabric,
                                             const struct muster_fabric_generation *generation)
{
    struct muster_spin_host host = {.members = generation->local_size,
                                    .index = generation->local_rank,
                                    .cores = muster_cores_usable(),
                                    .quota_millis = muster_cores_quota_millis("")};
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        host.has_device = host.has_device || fabric->transports[i].ops->polls_device;
    }
    return host;
}

static void refresh_transports(struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->refresh(fabric->transports[i].self);
    }
}

/* The arguments are checked before anything changes. The number of the generation is set before
 * links are updated, because each link records the last generation that had its peer. Slot refresh
 * closes links that died unnoticed before they become links of the new generation. Slot
 * begin_generation accepts pending connections when all links have been created, and tells the
 * peers of open links this member's new rank; what they have told before is compared last. */
static muster_status begin(struct muster_fabric *fabric,
                           const struct muster_fabric_generation *generation)
{
    TRY(check_begin(fabric, generation->number, generation->size));
    struct muster_link **links = calloc(generation->size + (size_t)1, sizeof(struct muster_link *));
    if (links == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_known_peers_drop_nameless(fabric);
    free(fabric->links);
    fabric->links = links;
    fabric->link_count = generation->size;
    fabric->rank = generation->rank;
    fabric->generation = generation->number;
    atomic_store(&fabric->valid,
                 generation->number > fabric->revoked ? generation->number : UINT64_C(0));
    fabric->lost = false;
    fabric->out_of_descriptors[0] = '\0';
    (void)snprintf(fabric->host, sizeof fabric->host, "%s", generation->host);
    refresh_transports(fabric);
    muster_ended_operations_begin(&fabric->ended, generation->number);
    TRY(muster_known_peers_begin(fabric, generation));
    const struct muster_spin_host host = describe_host(fabric, generation);
    muster_spin_policy_init(&fabric->spin_policy, &muster_spin_on_links, &host);
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->begin_generation(fabric->transports[i].self);
    }
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        if (fabric->links[i] != NULL) {
            muster_link_compare_rank(fabric->links[i]);
        }
    }
    muster_progress_wake_all(fabric);
    muster_timeline_begin(fabric->generations, fabric->generation, fabric->rank,
                          fabric->link_count);
    return MUSTER_OK;
}

muster_status muster_fabric_begin_partly_known(struct muster_fabric *fabric,
                                               const struct muster_fabric_generation *generation)
{
    AUTO_LOCK(&fabric->lock);
    muster_fabric_quiesce(fabric);
    return begin(fabric, generation);
}

/* The list of all members, by rank. */
muster_status muster_fabric_begin_generation(struct muster_fabric *fabric, uint64_t number,
                                             const struct muster_peer *peers, uint32_t count)
{
    struct muster_fabric_generation generation = {
        .number = number, .size = count, .host = "", .peers = peers, .peer_count = count};
    AUTO_FREE uint32_t *ranks = calloc(count + (size_t)1, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    generation.ranks = ranks;
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = i;
        if (strcmp(peers[i].member, fabric->member) == 0) {
            generation.rank = i;
            generation.host = peers[i].host;
        }
    }
    for (uint32_t i = 0; i < count && generation.host[0] != '\0'; i++) {
        bool here = strcmp(peers[i].host, generation.host) == 0;
        generation.local_rank += here && i < generation.rank;
        generation.local_size += here;
    }
    return muster_fabric_begin_partly_known(fabric, &generation);
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
        struct muster_link *link = muster_fabric_link_to(fabric, i);
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
