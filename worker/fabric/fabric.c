#include "worker/fabric/fabric.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/cores.h"
#include "worker/base/thread.h"
#include "worker/fabric/link.h"
#include "worker/fabric/transports.h"
#include "worker/trace/timeline.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 1 << 20, REACH_LOOK_MS = 20 };

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

static bool all_said_goodbye(const struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        const struct muster_link *link = fabric->links[i];
        if (link != NULL && link->state == MUSTER_LINK_OPEN && !link->ops->goodbye_done(link)) {
            return false;
        }
    }
    return true;
}

static void say_goodbye(struct muster_fabric *fabric, uint32_t linger_ms)
{
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL && link->state == MUSTER_LINK_OPEN) {
            link->ops->send_goodbye(link);
        }
    }
    int64_t deadline_ns = muster_clock_after_ms(linger_ms);
    while (!all_said_goodbye(fabric) && muster_clock_ns() < deadline_ns) {
        muster_progress_turn(fabric, deadline_ns);
    }
}

void muster_fabric_destroy(struct muster_fabric *fabric, uint32_t linger_ms)
{
    if (fabric == NULL) {
        return;
    }
    muster_mutex_lock(&fabric->lock);
    fabric->leading = true;
    fabric->parting = true;
    HASH_CLEAR(hh, fabric->by_member);
    if (!fabric->killed) {
        say_goodbye(fabric, linger_ms);
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
    (void)snprintf(fabric->revoked_reason, MUSTER_REASON_SIZE, "this fabric was killed");
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL) {
            muster_link_fail(link, MUSTER_LINK_LOST, "this fabric was killed");
            close_link(link); /* one that had left keeps what has arrived */
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
        return muster_error_set(MUSTER_INVALID,
                                "generation %" PRIu64 " cannot follow generation %" PRIu64,
                                generation, fabric->generation);
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
                i, fabric->generation);
        }
    }
    return MUSTER_OK;
}

/* Links that are named again keep their end; those that were lost may try again. */
static muster_status name_link(struct muster_fabric *fabric, const struct muster_peer *peer,
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
    link->named = fabric->generation;
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
    link->next = fabric->retired_links;
    fabric->retired_links = link;
}

static void drop_unnamed(struct muster_fabric *fabric)
{
    struct muster_link *link = NULL;
    struct muster_link *next = NULL;
    HASH_ITER(hh, fabric->by_member, link, next)
    {
        if (link->named != fabric->generation) {
            drop_link(link);
        }
    }
}

static muster_status name_links(struct muster_fabric *fabric, const struct muster_peer *peers,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(peers[i].member, fabric->member) != 0) {
            TRY(name_link(fabric, &peers[i], i));
            fabric->links[i] = muster_fabric_find_link(fabric, peers[i].member);
        }
    }
    return MUSTER_OK;
}

static void find_host(struct muster_fabric *fabric, const struct muster_peer *peers, uint32_t count)
{
    fabric->host[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(peers[i].member, fabric->member) == 0) {
            memcpy(fabric->host, peers[i].host, sizeof fabric->host);
        }
    }
}

/* Of how many members on this host it is which, and what they have there. */
static struct muster_spin_host find_place(const struct muster_fabric *fabric,
                                          const struct muster_peer *peers, uint32_t count)
{
    struct muster_spin_host place = {.cores = muster_cores_usable(),
                                     .quota_millis = muster_cores_quota_millis("")};
    for (uint32_t i = 0; i < count && fabric->host[0] != '\0'; i++) {
        if (strcmp(peers[i].member, fabric->member) == 0) {
            place.index = place.members;
        }
        place.members += strcmp(peers[i].host, fabric->host) == 0;
    }
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        place.has_device = place.has_device || fabric->transports[i].ops->polls_device;
    }
    return place;
}

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
    fabric->lost = false;
    fabric->exhausted[0] = '\0';
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->refresh(fabric->transports[i].self);
    }
    muster_ended_operations_begin(&fabric->operations, generation);
    find_host(fabric, peers, count);
    TRY(name_links(fabric, peers, count));
    drop_unnamed(fabric);
    const struct muster_spin_host place = find_place(fabric, peers, count);
    muster_spin_policy_init(&fabric->spin_policy, &muster_spin_on_links, &place);
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        fabric->transports[i].ops->begin_generation(fabric->transports[i].self);
    }
    muster_progress_wake_all(fabric);
    muster_timeline_begin(fabric->timeline, generation, muster_fabric_own_rank(fabric), count);
    return MUSTER_OK;
}

void muster_fabric_revoke(struct muster_fabric *fabric, uint64_t generation, const char *reason)
{
    AUTO_LOCK(&fabric->lock);
    if (generation > fabric->revoked) {
        fabric->revoked = generation;
        (void)snprintf(fabric->revoked_reason, MUSTER_REASON_SIZE, "%s", reason);
    }
    muster_progress_wake_all(fabric);
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

bool muster_fabric_exhausted(struct muster_fabric *fabric, uint64_t generation, char *ret_reason)
{
    AUTO_LOCK(&fabric->lock);
    if (fabric->exhausted[0] == '\0' || generation != fabric->generation) {
        return false;
    }
    memcpy(ret_reason, fabric->exhausted, MUSTER_REASON_SIZE);
    return true;
}

/* How many links are open; *ret_trying: some may yet be. */
static uint32_t open_all(struct muster_fabric *fabric, uint64_t generation, bool *ret_trying)
{
    uint32_t open = 0;
    AUTO_LOCK(&fabric->lock);
    *ret_trying = false;
    for (uint32_t i = 0; generation == fabric->generation && i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL) {
            muster_link_open(link);
            open += link->state == MUSTER_LINK_OPEN;
            *ret_trying = *ret_trying || link->state == MUSTER_LINK_OPENING;
        }
    }
    return open;
}

uint32_t muster_fabric_reach(struct muster_fabric *fabric, uint64_t generation, int64_t deadline_ns)
{
    const bool never = false;
    for (;;) {
        bool trying = false;
        uint32_t open = open_all(fabric, generation, &trying);
        int64_t next_ns = muster_clock_after_ms(REACH_LOOK_MS);
        muster_status status =
            trying ? muster_fabric_wait(fabric, generation, &never,
                                        next_ns < deadline_ns ? next_ns : deadline_ns)
                   : MUSTER_OK;
        if (status != MUSTER_RETRY || muster_clock_ns() >= deadline_ns) {
            return open;
        }
    }
}

muster_status muster_fabric_check(struct muster_fabric *fabric, uint64_t generation)
{
    AUTO_LOCK(&fabric->lock);
    return generation <= fabric->revoked || generation < fabric->generation
               ? muster_fabric_over(fabric, generation)
               : MUSTER_OK;
}

/* Posting ------------------------------------------------------------------------------------ */

static muster_status check_transfer(const struct muster_fabric *fabric,
                                    const struct muster_transfer *transfer)
{
    if (transfer->key.generation > fabric->generation) {
        return muster_error_set(MUSTER_INVALID, "generation %" PRIu64 " has not begun",
                                transfer->key.generation);
    }
    if (transfer->key.generation <= fabric->revoked ||
        transfer->key.generation < fabric->generation) {
        return muster_fabric_over(fabric, transfer->key.generation);
    }
    if (transfer->peer >= fabric->link_count || fabric->links[transfer->peer] == NULL) {
        return muster_error_set(MUSTER_INVALID, "rank %u: no other member of generation %" PRIu64,
                                transfer->peer, fabric->generation);
    }
    if (transfer->element_size_bytes == 0 ||
        transfer->element_size_bytes > MUSTER_ELEMENT_MAX_BYTES ||
        transfer->size_bytes % transfer->element_size_bytes != 0) {
        return muster_error_set(MUSTER_INVALID, "%" PRIu64 " bytes of elements of %u bytes",
                                transfer->size_bytes, transfer->element_size_bytes);
    }
    return MUSTER_OK;
}

static muster_status check_call(struct muster_fabric *fabric,
                                const struct muster_operation_id *operation,
                                const struct muster_call *call)
{
    const struct muster_signature *known =
        muster_signatures_note(&fabric->calls, operation, call, MUSTER_SIGNATURE_HERE);
    if (known == NULL) {
        return MUSTER_OK;
    }
    if (known->rank == MUSTER_SIGNATURE_HERE || known->rank >= fabric->link_count) {
        return muster_error_set(MUSTER_INVALID, "one operation is called in two ways here");
    }
    return muster_link_compare_calls(fabric->links[known->rank], call, &known->call);
}

static muster_status check_operation(struct muster_fabric *fabric,
                                     const struct muster_transfer *transfer)
{
    struct muster_operation_id operation = muster_key_operation(&transfer->key);
    const char *reason = muster_ended_operations_aborted(&fabric->operations, &operation);
    if (reason != NULL) {
        return muster_error_set(MUSTER_INVALID, "%s", reason);
    }
    if (muster_ended_operations_withdrawn(&fabric->operations, &operation)) {
        return muster_error_set(MUSTER_INVALID, "operation %" PRIu64 " of context %u was withdrawn",
                                operation.sequence, operation.context);
    }
    return check_call(fabric, &operation, transfer->call);
}

static muster_status check_link(struct muster_link *link, const struct muster_transfer *transfer)
{
    if (link->state == MUSTER_LINK_IDLE) {
        muster_link_open(link);
    }
    bool over = link->state == MUSTER_LINK_LOST || link->state == MUSTER_LINK_PEER_LEFT;
    bool here = over && link->end != NULL && transfer->direction == MUSTER_RECEIVE &&
                link->ops->has_arrived(link, &transfer->key);
    if (over && !here) {
        return muster_error_set(MUSTER_REJOIN, "%s", link->reason);
    }
    uint32_t posted = transfer->direction == MUSTER_SEND ? link->sends : link->receives.count;
    if (posted >= MUSTER_POSTED_MAX) {
        return muster_error_set(MUSTER_INVALID, "more than %d transfers posted to rank %u",
                                MUSTER_POSTED_MAX, link->rank);
    }
    return MUSTER_OK;
}

muster_status muster_fabric_post_locked(struct muster_fabric *fabric,
                                        struct muster_transfer *transfer)
{
    TRY(check_transfer(fabric, transfer));
    TRY(check_operation(fabric, transfer));
    struct muster_link *link = fabric->links[transfer->peer];
    TRY(check_link(link, transfer));
    transfer->state = MUSTER_TRANSFER_POSTED;
    transfer->status = MUSTER_OK;
    transfer->moved_bytes = 0;
    transfer->link_word = 0;
    transfer->posted_ns = muster_timeline_clock(fabric->timeline);
    transfer->begun_ns = 0;
    if (transfer->direction == MUSTER_SEND) {
        link->sends++;
        link->ops->post_send(link, transfer);
    } else {
        muster_transfer_table_insert(&link->receives, transfer);
        link->ops->post_receive(link, transfer);
    }
    return MUSTER_OK;
}

void muster_fabric_hold(struct muster_fabric *fabric)
{
    muster_mutex_lock(&fabric->lock);
}

void muster_fabric_release(struct muster_fabric *fabric)
{
    if (fabric->leading) {
        muster_fabric_wake(fabric);
    }
    muster_mutex_unlock(&fabric->lock);
}

muster_status muster_fabric_post(struct muster_fabric *fabric, struct muster_transfer *transfer)
{
    muster_fabric_hold(fabric);
    muster_status status = muster_fabric_post_locked(fabric, transfer);
    muster_fabric_release(fabric);
    return status;
}

bool muster_fabric_reads_gpu(struct muster_fabric *fabric, uint64_t generation,
                             const uint32_t *ranks, size_t count)
{
    AUTO_LOCK(&fabric->lock);
    bool reads = fabric->generation == generation;
    for (size_t i = 0; i < count && reads; i++) {
        const struct muster_link *link = fabric->links[ranks[i]];
        reads = link->state == MUSTER_LINK_OPEN && link->ops->reads_gpu;
    }
    return reads;
}

/* Taking back -------------------------------------------------------------------------------- */

void muster_fabric_withdraw(struct muster_fabric *fabric, uint64_t generation, uint32_t context,
                            uint64_t sequence)
{
    struct muster_operation_id operation = {
        .generation = generation, .context = context, .sequence = sequence};
    AUTO_LOCK(&fabric->lock);
    muster_fabric_quiesce(fabric);
    struct muster_transfer_list taken = {0};
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL && link->end != NULL) {
            muster_transfer_table_move(&link->receives, &operation, &taken);
            uint32_t before = taken.count;
            link->ops->withdraw(link, &operation, &taken);
            link->sends -= taken.count - before;
        }
    }
    muster_transfer_list_move(&fabric->completed, &operation, &taken);
    struct muster_transfer *transfer = NULL;
    while ((transfer = muster_transfer_list_pop(&taken)) != NULL) {
        transfer->state = MUSTER_TRANSFER_IDLE;
    }
    if (generation == fabric->generation) {
        muster_ended_operations_withdraw(&fabric->operations, &operation);
    }
}

void muster_fabric_abort(struct muster_fabric *fabric, uint32_t peer, uint64_t generation,
                         uint32_t context, uint64_t sequence, const char *reason)
{
    struct muster_operation_id operation = {
        .generation = generation, .context = context, .sequence = sequence};
    AUTO_LOCK(&fabric->lock);
    if (generation != fabric->generation || peer >= fabric->link_count ||
        fabric->links[peer] == NULL) {
        return;
    }
    struct muster_link *link = fabric->links[peer];
    if (link->state == MUSTER_LINK_IDLE) {
        muster_link_open(link);
    }
    if (link->end != NULL) {
        link->ops->abort(link, &operation, reason);
    }
    if (fabric->leading) {
        muster_fabric_wake(fabric);
    }
}
