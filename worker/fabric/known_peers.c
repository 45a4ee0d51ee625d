/* Which members of a generation are known: from the list that it begins with, added later, or heard
 * of by their hellos. */
#include "worker/fabric/known_peers.h"

#include "worker/base/cleanup.h"
#include "worker/base/epoch.h"
#include "worker/base/thread.h"
#include "worker/fabric/link_presence.h"
#include "worker/fabric/sought_links.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Links ---------------------------------------------------------------------------------------- */

void muster_link_close(struct muster_link *link)
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

static bool is_nameless(const struct muster_link *link)
{
    return link->peer.member[0] == '\0';
}

static struct muster_link *make_link(struct muster_fabric *fabric)
{
    struct muster_link *link = calloc(1, sizeof *link);
    if (link != NULL) {
        link->fabric = fabric;
        link->rank = MUSTER_NO_RANK;
    }
    return link;
}

static void name_link(struct muster_link *link, const char *member)
{
    (void)snprintf(link->peer.member, sizeof link->peer.member, "%s", member);
    HASH_ADD_STR(link->fabric->by_member, peer.member, link);
}

/* Closed already, or by this. The leader frees it between two turns. */
static void retire_link(struct muster_link *link)
{
    struct muster_fabric *fabric = link->fabric;
    muster_link_close(link);
    if (fabric->awaited == link) {
        fabric->awaited = NULL;
    }
    link->next = fabric->retired_links;
    fabric->retired_links = link;
}

struct muster_link *muster_fabric_link_to(struct muster_fabric *fabric, uint32_t rank)
{
    if (rank >= fabric->link_count || rank == fabric->rank) {
        return NULL;
    }
    if (fabric->links[rank] == NULL && (fabric->links[rank] = make_link(fabric)) != NULL) {
        fabric->links[rank]->rank = rank;
    }
    return fabric->links[rank];
}

/* The link has no rank yet, and no other member has this one. What transfers have been posted to
 * the rank become the link's. If it was lost before, or the peer had left, it may open again. */
static void set_rank(struct muster_link *link, uint32_t rank)
{
    struct muster_link *before = link->fabric->links[rank];
    link->fabric->links[rank] = link;
    link->rank = rank;
    if (link->state == MUSTER_LINK_LOST || link->state == MUSTER_LINK_PEER_LEFT) {
        muster_link_close(link);
        link->state = MUSTER_LINK_IDLE;
    }
    if (before != NULL) {
        muster_link_take_over(link, before);
        retire_link(before);
    }
}

/* Whether no member is known to have this rank. */
static bool is_free(const struct muster_fabric *fabric, uint32_t rank)
{
    return rank < fabric->link_count && rank != fabric->rank &&
           (fabric->links[rank] == NULL || is_nameless(fabric->links[rank]));
}

static muster_status conflict(const struct muster_fabric *fabric, uint32_t rank, const char *member)
{
    const struct muster_link *other = rank < fabric->link_count ? fabric->links[rank] : NULL;
    return muster_error_set(
        MUSTER_INVALID,
        "member %s as rank %u of %u in generation %" PRIu64
        ", where this member, rank %u, has %s%s",
        member, rank, fabric->link_count, muster_epoch_shown(fabric->generation), fabric->rank,
        other != NULL ? "member " : "no such rank for it", other != NULL ? other->peer.member : "");
}

/* The link of a member that has none in this generation: one without a rank, or the one of which
 * only the rank is known, or a new one. NULL: no memory. */
static struct muster_link *assign(struct muster_fabric *fabric, const char *member, uint32_t rank)
{
    struct muster_link *link = muster_fabric_find_link(fabric, member);
    if (link != NULL) {
        set_rank(link, rank);
        return link;
    }
    link = muster_fabric_link_to(fabric, rank);
    if (link != NULL) {
        name_link(link, member);
    }
    return link;
}

muster_status muster_link_claim_rank(struct muster_link *link)
{
    struct muster_fabric *fabric = link->fabric;
    if (link->told_generation != fabric->generation) {
        return MUSTER_OK;
    }
    if (!is_free(fabric, link->told_rank)) {
        return conflict(fabric, link->told_rank, link->peer.member);
    }
    set_rank(link, link->told_rank);
    return MUSTER_OK;
}

struct muster_link *muster_known_peers_hear_of(struct muster_fabric *fabric, const char *member,
                                               uint64_t generation, uint32_t rank)
{
    struct muster_link *link = muster_fabric_find_link(fabric, member);
    if (link != NULL && link->rank != MUSTER_NO_RANK) {
        return link;
    }
    if (generation != fabric->generation || !is_free(fabric, rank) ||
        strcmp(member, fabric->member) == 0) {
        return NULL;
    }
    return assign(fabric, member, rank);
}

/* Adding --------------------------------------------------------------------------------------- */

/* This member is passed over. */
static muster_status add(struct muster_fabric *fabric, const struct muster_peer *peer,
                         uint32_t rank)
{
    if (rank == fabric->rank && strcmp(peer->member, fabric->member) == 0) {
        return MUSTER_OK;
    }
    struct muster_link *link = muster_fabric_find_link(fabric, peer->member);
    bool has_rank = link != NULL && link->rank != MUSTER_NO_RANK;
    if (peer->member[0] == '\0' || strcmp(peer->member, fabric->member) == 0 ||
        (has_rank ? link->rank != rank : !is_free(fabric, rank))) {
        return conflict(fabric, rank, peer->member);
    }
    if (has_rank && link->known) {
        return MUSTER_OK;
    }
    link = has_rank ? link : assign(fabric, peer->member, rank);
    if (link == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    link->peer = *peer;
    link->known = true;
    fabric->known_count++;
    if (muster_link_is_sought(link)) {
        muster_link_resume(link, muster_link_stop_seeking(link));
    }
    return MUSTER_OK;
}

muster_status muster_fabric_add_peers(struct muster_fabric *fabric, uint64_t generation,
                                      const struct muster_peer *peers, const uint32_t *ranks,
                                      uint32_t count)
{
    AUTO_LOCK(&fabric->lock);
    muster_fabric_quiesce(fabric);
    if (generation != fabric->generation || generation <= fabric->revoked) {
        return muster_fabric_over(fabric, generation);
    }
    for (uint32_t i = 0; i < count; i++) {
        TRY(add(fabric, &peers[i], ranks[i]));
    }
    return MUSTER_OK;
}

muster_status muster_fabric_add_peer_locked(struct muster_fabric *fabric, uint64_t generation,
                                            const struct muster_peer *peer, uint32_t rank)
{
    if (generation != fabric->generation || generation <= fabric->revoked) {
        return muster_fabric_over(fabric, generation);
    }
    return add(fabric, peer, rank);
}

bool muster_fabric_find_before_locked(const struct muster_fabric *fabric, uint64_t generation,
                                      uint32_t rank, uint32_t *ret_rank)
{
    uint32_t size = generation == fabric->generation ? fabric->link_count : 0;
    for (uint32_t back = 0; back < size; back++) {
        uint32_t candidate = (rank + size - back) % size;
        if (candidate == fabric->rank) {
            return false;
        }
        const struct muster_link *link = fabric->links[candidate];
        if (link != NULL && !muster_link_is_sought(link) && !is_nameless(link) &&
            (link->known || link->state == MUSTER_LINK_OPEN)) {
            *ret_rank = candidate;
            return true;
        }
    }
    return false;
}

void muster_fabric_describe(struct muster_fabric *fabric, struct muster_peer *ret_peer)
{
    AUTO_LOCK(&fabric->lock);
    *ret_peer = (struct muster_peer){.address_count = fabric->address_count};
    memcpy(ret_peer->member, fabric->member, sizeof ret_peer->member);
    memcpy(ret_peer->host, fabric->host, sizeof ret_peer->host);
    memcpy(ret_peer->addresses, fabric->addresses, sizeof ret_peer->addresses);
}

/* A generation begins -------------------------------------------------------------------------- */

static void drop_link(struct muster_link *link)
{
    struct muster_fabric *fabric = link->fabric;
    if (link->state == MUSTER_LINK_OPEN) {
        link->ops->send_goodbye(link);
    }
    HASH_DEL(fabric->by_member, link);
    retire_link(link);
}

void muster_known_peers_drop_nameless(struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        if (fabric->links[i] != NULL && is_nameless(fabric->links[i])) {
            retire_link(TAKE(fabric->links[i]));
        }
    }
}

/* A peer that has begun the generation earlier has told its rank. Where all members are known, a
 * link to another one is closed. */
static void settle_links(struct muster_fabric *fabric)
{
    bool all = fabric->known_count + 1 == fabric->link_count;
    struct muster_link *link = NULL;
    struct muster_link *next = NULL;
    HASH_ITER(hh, fabric->by_member, link, next)
    {
        if (link->rank != MUSTER_NO_RANK) {
            continue;
        }
        bool may_stay = link->state == MUSTER_LINK_OPEN || link->state == MUSTER_LINK_OPENING;
        if (all || !may_stay || muster_link_claim_rank(link) != MUSTER_OK) {
            drop_link(link);
        }
    }
}

muster_status muster_known_peers_begin(struct muster_fabric *fabric,
                                       const struct muster_fabric_generation *generation)
{
    fabric->known_count = 0;
    fabric->finder = generation->finder;
    for (struct muster_link *link = fabric->by_member; link != NULL; link = link->hh.next) {
        link->rank = MUSTER_NO_RANK;
        link->known = false;
    }
    for (uint32_t i = 0; i < generation->peer_count; i++) {
        TRY(add(fabric, &generation->peers[i], generation->ranks[i]));
    }
    settle_links(fabric);
    return MUSTER_OK;
}

/* Finding -------------------------------------------------------------------------------------- */

void muster_fabric_forget_finder(struct muster_fabric *fabric)
{
    AUTO_LOCK(&fabric->lock);
    fabric->finder = NULL;
}

static bool is_unknown(const struct muster_fabric *fabric, uint32_t rank)
{
    return rank != fabric->rank && (fabric->links[rank] == NULL || !fabric->links[rank]->known);
}

uint32_t muster_fabric_list_sought(struct muster_fabric *fabric, uint64_t generation,
                                   uint32_t least, uint32_t most, uint32_t *ret_ranks)
{
    uint32_t count = 0;
    AUTO_LOCK(&fabric->lock);
    uint32_t size = generation == fabric->generation ? fabric->link_count : 0;
    for (uint32_t rank = 0; rank < size && count < most; rank++) {
        if (fabric->links[rank] != NULL && !fabric->links[rank]->known &&
            muster_link_is_sought(fabric->links[rank])) {
            ret_ranks[count++] = rank;
        }
    }
    uint32_t sought = count;
    uint32_t last = count > 0 ? ret_ranks[count - 1] : 0;
    least = least < most ? least : most;
    for (uint32_t i = 1; i < size && sought > 0 && count < least; i++) {
        uint32_t rank = (last + i) % size;
        bool listed = fabric->links[rank] != NULL && muster_link_is_sought(fabric->links[rank]);
        if (!listed && is_unknown(fabric, rank)) {
            ret_ranks[count++] = rank;
        }
    }
    return count;
}
