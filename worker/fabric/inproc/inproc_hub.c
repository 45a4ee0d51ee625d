/* How the fabrics of one process find each other, and how their links open and close. */
#include "worker/fabric/inproc/inproc.h"

#include "worker/base/thread.h"
#include "worker/fabric/known_peers.h"
#include "worker/fabric/sought_links.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* The fabrics of this process that use the transport. Members are found by UUID, so that several
 * jobs may be in one process. */
static struct {
    pthread_mutex_t lock;
    struct muster_inproc *fabrics;
    struct muster_inproc_pair *pairs; /* with an end that is OPEN */
} hub = {.lock = PTHREAD_MUTEX_INITIALIZER};

void muster_inproc_notify(struct muster_inproc_end *end)
{
    atomic_store(&end->has_work, true);
    if (end->owner != NULL) {
        muster_fabric_wake(end->owner->fabric);
    }
}

/* The transport's object ------------------------------------------------------------------------
 */

muster_status muster_inproc_start(struct muster_fabric *fabric, const void *settings,
                                  void **ret_transport)
{
    (void)settings;
    struct muster_inproc *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    self->fabric = fabric;
    AUTO_LOCK(&hub.lock);
    DL_APPEND(hub.fabrics, self);
    *ret_transport = self;
    return MUSTER_OK;
}

void muster_inproc_stop(void *transport)
{
    struct muster_inproc *self = transport;
    muster_mutex_lock(&hub.lock);
    DL_DELETE(hub.fabrics, self);
    /* Ends the links that peers have opened and this fabric has not. */
    struct muster_inproc_pair *pair = NULL;
    DL_FOREACH(hub.pairs, pair)
    {
        for (int i = 0; i < 2; i++) {
            if (strcmp(pair->names[i], self->fabric->member) != 0) {
                continue;
            }
            muster_mutex_lock(&pair->lock);
            if (pair->ends[i].state == INPROC_ABSENT) {
                pair->ends[i].state = self->fabric->killed ? INPROC_DEAD : INPROC_LEFT;
                muster_inproc_notify(&pair->ends[1 - i]);
            }
            muster_mutex_unlock(&pair->lock);
        }
    }
    assert(hub.fabrics != NULL || hub.pairs == NULL); /* no pair outlives its fabrics */
    muster_mutex_unlock(&hub.lock);
    free(self);
}

void muster_inproc_tell_rank(struct muster_inproc_end *mine, const struct muster_fabric *fabric)
{
    mine->generation = fabric->generation;
    mine->rank = fabric->rank;
}

/* The link to the peer that has opened its end of the pair, if this fabric's end may be opened now.
 * The hub is locked. */
static struct muster_link *find_dialled(const struct muster_inproc *self,
                                        struct muster_inproc_pair *pair, int mine)
{
    muster_mutex_lock(&pair->lock);
    bool absent = pair->ends[mine].state == INPROC_ABSENT;
    uint64_t generation = pair->ends[1 - mine].generation;
    uint32_t rank = pair->ends[1 - mine].rank;
    muster_mutex_unlock(&pair->lock);
    struct muster_link *link =
        absent ? muster_known_peers_hear_of(self->fabric, pair->names[1 - mine], generation, rank)
               : NULL;
    bool opens = link != NULL && (link->state == MUSTER_LINK_IDLE || muster_link_is_sought(link));
    return opens ? link : NULL;
}

static void accept_link(struct muster_inproc *self, struct muster_link *link)
{
    struct muster_sought *kept =
        muster_link_is_sought(link) ? muster_link_stop_seeking(link) : NULL;
    muster_link_use_transport(link, self);
    muster_inproc_open(link);
    if (kept != NULL) {
        muster_link_resume(link, kept);
    }
}

/* Opening a link takes the locks of hub and pair, so each link is opened after the search has
 * released them, and the search begins again. */
void muster_inproc_accept_links(struct muster_inproc *self)
{
    const char *member = self->fabric->member;
    for (;;) {
        struct muster_link *link = NULL;
        muster_mutex_lock(&hub.lock);
        struct muster_inproc_pair *pair = NULL;
        DL_FOREACH(hub.pairs, pair)
        {
            int mine = strcmp(pair->names[0], member) == 0 ? 0 : 1;
            if (strcmp(pair->names[mine], member) != 0) {
                continue;
            }
            link = find_dialled(self, pair, mine);
            if (link != NULL) {
                break;
            }
        }
        muster_mutex_unlock(&hub.lock);
        if (link == NULL) {
            return;
        }
        accept_link(self, link);
    }
}

/* Opening and closing -------------------------------------------------------------------------- */

static struct muster_inproc *find_fabric(const char *member)
{
    struct muster_inproc *each = NULL;
    DL_FOREACH(hub.fabrics, each)
    {
        if (strcmp(each->fabric->member, member) == 0) {
            return each;
        }
    }
    return NULL;
}

/* The pair of these members in which `mine` is ABSENT. */
static struct muster_inproc_pair *find_pair(const char *mine, const char *theirs, int *ret_index)
{
    struct muster_inproc_pair *pair = NULL;
    DL_FOREACH(hub.pairs, pair)
    {
        for (int i = 0; i < 2; i++) {
            if (strcmp(pair->names[i], mine) == 0 && strcmp(pair->names[1 - i], theirs) == 0) {
                muster_mutex_lock(&pair->lock);
                bool absent = pair->ends[i].state == INPROC_ABSENT;
                muster_mutex_unlock(&pair->lock);
                if (absent) {
                    *ret_index = i;
                    return pair;
                }
            }
        }
    }
    return NULL;
}

static struct muster_inproc_pair *make_pair(const char *mine, const char *theirs)
{
    struct muster_inproc_pair *pair = calloc(1, sizeof *pair);
    if (pair != NULL) {
        muster_mutex_init(&pair->lock);
        pthread_cond_init(&pair->idle, NULL);
        (void)snprintf(pair->names[0], MUSTER_UUID_SIZE, "%s", mine);
        (void)snprintf(pair->names[1], MUSTER_UUID_SIZE, "%s", theirs);
        DL_APPEND(hub.pairs, pair);
    }
    return pair;
}

/* Returns the pair that the peer has created; if there is none, creates it and wakes the peer. The
 * hub is locked. */
static struct muster_inproc_pair *join_pair(struct muster_link *link, int *ret_index)
{
    struct muster_inproc *self = link->transport;
    struct muster_inproc_pair *pair = find_pair(self->fabric->member, link->peer.member, ret_index);
    if (pair != NULL) {
        return pair;
    }
    struct muster_inproc *peer = find_fabric(link->peer.member);
    if (peer == NULL) {
        return NULL;
    }
    pair = make_pair(self->fabric->member, link->peer.member);
    if (pair != NULL) {
        *ret_index = 0;
        atomic_store(&peer->dialled, true);
        muster_fabric_wake(peer->fabric);
    }
    return pair;
}

/* Joins the pair with the hub locked, so that two fabrics which open the link at the same time get
 * one pair. */
void muster_inproc_open(struct muster_link *link)
{
    struct muster_inproc *self = link->transport;
    struct muster_inproc_side *side = calloc(1, sizeof *side);
    int index = 0;
    muster_mutex_lock(&hub.lock);
    struct muster_inproc_pair *pair = side == NULL ? NULL : join_pair(link, &index);
    if (pair != NULL) {
        side->pair = pair;
        side->mine = &pair->ends[index];
        side->theirs = &pair->ends[1 - index];
        muster_mutex_lock(&pair->lock);
        side->mine->owner = self;
        muster_inproc_tell_rank(side->mine, self->fabric);
        side->mine->state = INPROC_OPEN;
        muster_mutex_unlock(&pair->lock);
    }
    muster_mutex_unlock(&hub.lock);
    if (pair == NULL) {
        free(side);
        muster_link_fail(link, MUSTER_LINK_LOST, "its fabric is gone");
        return;
    }
    link->end = side;
    muster_link_opened(link);
}

void muster_inproc_recall_locked(struct muster_inproc_side *side,
                                 struct muster_transfer_list *ret_sends)
{
    while (side->mine->reading) {
        pthread_cond_wait(&side->pair->idle, &side->pair->lock);
    }
    if (side->mine->being_read != NULL) {
        muster_transfer_list_append(ret_sends, side->mine->being_read);
        side->mine->being_read = NULL;
    }
}

static void free_pair(struct muster_inproc_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        struct muster_inproc_refusal *refusal = NULL;
        struct muster_inproc_refusal *next = NULL;
        DL_FOREACH_SAFE(pair->ends[i].refusals, refusal, next)
        {
            free(refusal);
        }
    }
    pthread_cond_destroy(&pair->idle);
    pthread_mutex_destroy(&pair->lock);
    free(pair);
}

/* First takes back this end's sends, wherever they are in the pair; then leaves the pair. The end
 * that leaves last frees the pair. */
void muster_inproc_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_inproc_side *side = link->end;
    struct muster_inproc_end *mine = side->mine;
    struct muster_inproc_end *theirs = side->theirs;
    muster_mutex_lock(&side->pair->lock);
    muster_inproc_recall_locked(side, ret_sends);
    muster_transfer_list_splice(&theirs->inbox, ret_sends);
    muster_transfer_table_splice(&theirs->unexpected, ret_sends);
    muster_transfer_list_splice(&mine->sent, ret_sends);
    /* A send of the peer that was being received returns to the inbox, where the peer's withdraw
     * and close find it. */
    if (mine->receiving != NULL && theirs->being_read != NULL) {
        muster_transfer_list_append(&mine->inbox, theirs->being_read);
        theirs->being_read = NULL;
    }
    mine->receiving = NULL;
    mine->state = mine->state == INPROC_LEFT ? INPROC_LEFT : INPROC_DEAD;
    muster_inproc_notify(theirs);
    muster_mutex_unlock(&side->pair->lock);

    muster_mutex_lock(&hub.lock);
    muster_mutex_lock(&side->pair->lock);
    mine->owner = NULL;
    bool last = theirs->owner == NULL;
    if (last) {
        DL_DELETE(hub.pairs, side->pair);
    }
    muster_mutex_unlock(&side->pair->lock);
    muster_mutex_unlock(&hub.lock);
    if (last) {
        free_pair(side->pair);
    }
    free(side);
    link->end = NULL;
}
