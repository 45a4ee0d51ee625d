/*
 * The inproc transport: fabrics of one process. The sender's transfers stand in lists that both
 * fabrics share; the receiver's leader copies, or reduces, straight out of the sender's memory, and
 * nothing is buffered.
 *
 * Locks: fabric, hub, pair. A leader that copies a segment holds none of them; it has set
 * end->touched on the sender's side, and the sender's withdraw or close waits until that is
 * cleared, with its own fabric's lock held. Clearing it needs the pair's lock only, which the
 * waiting sender gives up, so two fabrics that take back from each other cannot wait in a circle.
 * Between segments the sender may take its transfer back at once.
 */
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/fabric/link.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { ABORTS_MAX = 16 }; /* a peer's that were not looked at; more are dropped */

enum end_state {
    END_ABSENT = 0, /* this side has not opened the link yet */
    END_PRESENT = 1,
    END_LEFT = 2,
    END_DEAD = 3,
};

struct abort_note {
    struct muster_operation_id operation;
    char reason[MUSTER_REASON_SIZE];
};

/* One side of a pair; guarded by the pair's lock, but for `news` and `receiving`. */
struct end {
    enum end_state state;
    struct inproc *owner;                 /* PRESENT: to be woken */
    atomic_bool news;                     /* something for this side's progress */
    struct muster_transfer_list inbox;    /* the peer's sends, not looked at */
    struct muster_transfer_table early;   /* the peer's sends whose receive is not posted */
    struct muster_transfer_list finished; /* this side's sends that the peer has received */
    struct muster_transfer *copying;      /* this side's send, in the peer's hands */
    bool touched;                         /* right now: a segment of it is being read */
    struct muster_transfer *receiving;    /* what the peer's send goes into; the fabric's lock */
    uint32_t abort_count;
    struct abort_note aborts[ABORTS_MAX];
};

struct pair {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* touched was cleared */
    struct muster_hub *hub;
    char names[2][MUSTER_UUID_SIZE];
    struct end ends[2];
    struct pair *prev, *next;
};

/* A fabric's part in the hub. */
struct inproc {
    struct muster_fabric *fabric;
    struct muster_hub *hub;
    atomic_bool called; /* somebody has opened a link to this fabric; look through the pairs */
    struct inproc *prev, *next;
};

struct muster_hub {
    pthread_mutex_t lock;
    struct inproc *fabrics;
    struct pair *pairs; /* those with a side that is PRESENT */
};

/* What link->end points to. */
struct side {
    struct pair *pair;
    struct end *mine, *theirs;
};

muster_status muster_hub_create(struct muster_hub **ret_hub)
{
    struct muster_hub *hub = calloc(1, sizeof *hub);
    if (hub == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_mutex_init(&hub->lock);
    *ret_hub = hub;
    return MUSTER_OK;
}

void muster_hub_destroy(struct muster_hub *hub)
{
    if (hub == NULL) {
        return;
    }
    assert(hub->fabrics == NULL && hub->pairs == NULL); /* the hub outlives its fabrics */
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

/* Something is new for that side. The pair is locked. */
static void tell(struct end *end)
{
    atomic_store(&end->news, true);
    if (end->owner != NULL) {
        muster_fabric_wake(end->owner->fabric);
    }
}

/* The fabric's part ---------------------------------------------------------------------------- */

static muster_status inproc_start(struct muster_fabric *fabric,
                                  const struct muster_fabric_options *options, void **ret_transport)
{
    if (options->hub == NULL) {
        return MUSTER_OK;
    }
    struct inproc *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    self->fabric = fabric;
    self->hub = options->hub;
    AUTO_LOCK(&self->hub->lock);
    DL_APPEND(self->hub->fabrics, self);
    *ret_transport = self;
    return MUSTER_OK;
}

static void inproc_stop(void *transport)
{
    struct inproc *self = transport;
    muster_mutex_lock(&self->hub->lock);
    DL_DELETE(self->hub->fabrics, self);
    /* Peers that opened a link which this fabric never answered see its end here. */
    struct pair *pair = NULL;
    DL_FOREACH(self->hub->pairs, pair)
    {
        for (int i = 0; i < 2; i++) {
            if (strcmp(pair->names[i], self->fabric->member) != 0) {
                continue;
            }
            muster_mutex_lock(&pair->lock);
            if (pair->ends[i].state == END_ABSENT) {
                pair->ends[i].state = self->fabric->killed ? END_DEAD : END_LEFT;
                tell(&pair->ends[1 - i]);
            }
            muster_mutex_unlock(&pair->lock);
        }
    }
    muster_mutex_unlock(&self->hub->lock);
    free(self);
}

static void inproc_address(const void *transport, char ret_address[MUSTER_ADDRESS_SIZE])
{
    const struct inproc *self = transport;
    (void)snprintf(ret_address, MUSTER_ADDRESS_SIZE, "inproc://%s", self->fabric->member);
}

/* Opens this side of pairs that a peer has opened, if the peer is a member. */
static void answer_calls(struct inproc *self)
{
    const char *member = self->fabric->member;
    for (;;) {
        struct muster_link *link = NULL;
        muster_mutex_lock(&self->hub->lock);
        struct pair *pair = NULL;
        DL_FOREACH(self->hub->pairs, pair)
        {
            int mine = strcmp(pair->names[0], member) == 0 ? 0 : 1;
            if (strcmp(pair->names[mine], member) != 0) {
                continue;
            }
            muster_mutex_lock(&pair->lock);
            bool absent = pair->ends[mine].state == END_ABSENT;
            muster_mutex_unlock(&pair->lock);
            link = absent ? muster_fabric_find_link(self->fabric, pair->names[1 - mine]) : NULL;
            if (link != NULL && link->state == MUSTER_LINK_IDLE) {
                break;
            }
            link = NULL;
        }
        muster_mutex_unlock(&self->hub->lock);
        if (link == NULL) {
            return;
        }
        muster_link_open(link);
    }
}

static void inproc_woken(void *transport)
{
    struct inproc *self = transport;
    if (atomic_exchange(&self->called, false)) {
        answer_calls(self);
    }
    for (uint32_t i = 0; i < self->fabric->link_count; i++) {
        struct muster_link *link = self->fabric->links[i];
        if (link == NULL || link->end == NULL || link->ops != &muster_inproc_ops) {
            continue;
        }
        const struct side *side = link->end;
        if (atomic_exchange(&side->mine->news, false)) {
            muster_link_mark(link);
        }
    }
}

static void inproc_refresh(void *transport)
{
    struct inproc *self = transport;
    for (struct muster_link *link = self->fabric->by_member; link != NULL; link = link->hh.next) {
        if (link->end == NULL || link->ops != &muster_inproc_ops) {
            continue;
        }
        struct side *side = link->end;
        muster_mutex_lock(&side->pair->lock);
        bool gone = side->theirs->state == END_LEFT || side->theirs->state == END_DEAD;
        muster_mutex_unlock(&side->pair->lock);
        if (gone) {
            struct muster_transfer_list none = {0};
            link->ops->close(link, &none);
            link->state = MUSTER_LINK_IDLE;
        }
    }
}

static void inproc_begin_generation(void *transport)
{
    struct inproc *self = transport;
    answer_calls(self);
    for (struct muster_link *link = self->fabric->by_member; link != NULL; link = link->hh.next) {
        if (link->end != NULL && link->ops == &muster_inproc_ops) {
            const struct side *side = link->end;
            /* What waited for this generation is looked at again. */
            muster_mutex_lock(&side->pair->lock);
            muster_transfer_table_splice(&side->mine->early, &side->mine->inbox);
            muster_mutex_unlock(&side->pair->lock);
            muster_link_mark(link);
        }
    }
}

static int64_t inproc_timers(void *transport, int64_t now_ns)
{
    (void)transport;
    (void)now_ns;
    return MUSTER_NEVER;
}

/* Opening and closing -------------------------------------------------------------------------- */

static struct inproc *find_fabric(struct muster_hub *hub, const char *member)
{
    struct inproc *each = NULL;
    DL_FOREACH(hub->fabrics, each)
    {
        if (strcmp(each->fabric->member, member) == 0) {
            return each;
        }
    }
    return NULL;
}

/* The pair whose `mine` side has not been opened yet. */
static struct pair *find_pair(struct muster_hub *hub, const char *mine, const char *theirs,
                              int *ret_index)
{
    struct pair *pair = NULL;
    DL_FOREACH(hub->pairs, pair)
    {
        for (int i = 0; i < 2; i++) {
            if (strcmp(pair->names[i], mine) == 0 && strcmp(pair->names[1 - i], theirs) == 0) {
                muster_mutex_lock(&pair->lock);
                bool absent = pair->ends[i].state == END_ABSENT;
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

static struct pair *make_pair(struct muster_hub *hub, const char *mine, const char *theirs)
{
    struct pair *pair = calloc(1, sizeof *pair);
    if (pair != NULL) {
        muster_mutex_init(&pair->lock);
        pthread_cond_init(&pair->idle, NULL);
        (void)snprintf(pair->names[0], MUSTER_UUID_SIZE, "%s", mine);
        (void)snprintf(pair->names[1], MUSTER_UUID_SIZE, "%s", theirs);
        DL_APPEND(hub->pairs, pair);
    }
    return pair;
}

/* Finds the pair that the peer has made, or makes one and calls the peer. The hub is locked. */
static struct pair *join_pair(struct muster_link *link, int *ret_index)
{
    struct inproc *self = link->transport;
    struct pair *pair = find_pair(self->hub, self->fabric->member, link->peer.member, ret_index);
    if (pair != NULL) {
        return pair;
    }
    struct inproc *peer = find_fabric(self->hub, link->peer.member);
    if (peer == NULL) {
        return NULL;
    }
    pair = make_pair(self->hub, self->fabric->member, link->peer.member);
    if (pair != NULL) {
        *ret_index = 0;
        atomic_store(&peer->called, true);
        muster_fabric_wake(peer->fabric);
    }
    return pair;
}

static void inproc_open(struct muster_link *link)
{
    struct inproc *self = link->transport;
    struct side *side = calloc(1, sizeof *side);
    int index = 0;
    muster_mutex_lock(&self->hub->lock);
    struct pair *pair = side == NULL ? NULL : join_pair(link, &index);
    if (pair != NULL) {
        side->pair = pair;
        side->mine = &pair->ends[index];
        side->theirs = &pair->ends[1 - index];
        muster_mutex_lock(&pair->lock);
        side->mine->owner = self;
        side->mine->state = END_PRESENT;
        muster_mutex_unlock(&pair->lock);
    }
    muster_mutex_unlock(&self->hub->lock);
    if (pair == NULL) {
        free(side);
        muster_link_fail(link, MUSTER_LINK_LOST, "its fabric is gone");
        return;
    }
    link->end = side;
    muster_link_opened(link);
}

/* Takes back what the peer is receiving, as soon as it does not read this side's memory. */
static void recall_locked(struct side *side, struct muster_transfer_list *ret_sends)
{
    while (side->mine->touched) {
        pthread_cond_wait(&side->pair->idle, &side->pair->lock);
    }
    if (side->mine->copying != NULL) {
        muster_transfer_list_append(ret_sends, side->mine->copying);
        side->mine->copying = NULL;
    }
}

static void free_pair(struct pair *pair)
{
    pthread_cond_destroy(&pair->idle);
    pthread_mutex_destroy(&pair->lock);
    free(pair);
}

static void inproc_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct inproc *self = link->transport;
    struct side *side = link->end;
    struct end *mine = side->mine;
    struct end *theirs = side->theirs;
    muster_mutex_lock(&side->pair->lock);
    recall_locked(side, ret_sends);
    muster_transfer_list_splice(&theirs->inbox, ret_sends);
    muster_transfer_table_splice(&theirs->early, ret_sends);
    muster_transfer_list_splice(&mine->finished, ret_sends);
    if (mine->receiving != NULL && theirs->copying != NULL) {
        muster_transfer_list_append(&mine->inbox, theirs->copying);
        theirs->copying = NULL;
    }
    mine->receiving = NULL;
    mine->state = mine->state == END_LEFT ? END_LEFT : END_DEAD;
    tell(theirs);
    muster_mutex_unlock(&side->pair->lock);

    muster_mutex_lock(&self->hub->lock);
    muster_mutex_lock(&side->pair->lock);
    mine->owner = NULL;
    bool last = theirs->owner == NULL;
    if (last) {
        DL_DELETE(self->hub->pairs, side->pair);
    }
    muster_mutex_unlock(&side->pair->lock);
    muster_mutex_unlock(&self->hub->lock);
    if (last) {
        free_pair(side->pair);
    }
    free(side);
    link->end = NULL;
}

static void inproc_goodbye(struct muster_link *link)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    side->mine->state = END_LEFT;
    tell(side->theirs);
}

static bool inproc_said_goodbye(const struct muster_link *link)
{
    return link->end == NULL || ((const struct side *)link->end)->mine->state == END_LEFT;
}

/* Sending -------------------------------------------------------------------------------------- */

static void inproc_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    muster_transfer_list_append(&side->theirs->inbox, transfer);
    tell(side->theirs);
}

static void inproc_post_receive(struct muster_link *link, struct muster_transfer *transfer)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    struct muster_transfer *send = muster_transfer_table_find(&side->mine->early, &transfer->key);
    if (send != NULL) {
        muster_transfer_table_remove(&side->mine->early, send);
        muster_transfer_list_append(&side->mine->inbox, send);
        muster_link_mark(link);
    }
}

static void inproc_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                            struct muster_transfer_list *ret_sends)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    struct muster_transfer *copying = side->mine->copying;
    if (copying != NULL && muster_operation_has(operation, &copying->key)) {
        recall_locked(side, ret_sends);
    }
    muster_transfer_list_move(&side->theirs->inbox, operation, ret_sends);
    muster_transfer_table_move(&side->theirs->early, operation, ret_sends);
    muster_transfer_list_move(&side->mine->finished, operation, ret_sends);
    if (side->mine->receiving != NULL &&
        muster_operation_has(operation, &side->mine->receiving->key)) {
        side->mine->receiving = NULL;
    }
}

static void inproc_abort(struct muster_link *link, const struct muster_operation_id *operation,
                         const char *reason)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    if (side->theirs->abort_count < ABORTS_MAX) {
        struct abort_note *note = &side->theirs->aborts[side->theirs->abort_count++];
        note->operation = *operation;
        (void)snprintf(note->reason, sizeof note->reason, "%s", reason);
    }
    tell(side->theirs);
}

/* Progress ------------------------------------------------------------------------------------- */

static void move_piece(struct muster_transfer *receive, const unsigned char *from, uint64_t offset,
                       size_t size)
{
    if (receive->consume != NULL) {
        receive->consume(receive, offset, from + offset, size);
    } else {
        memcpy((unsigned char *)receive->data + offset, from + offset, size);
    }
}

/* Moves one piece without locks, unless the sender has taken it back. */
static bool move_segment(struct muster_link *link, struct side *side,
                         struct muster_transfer *receive, struct muster_transfer *send)
{
    uint64_t offset = receive->moved_bytes;
    struct pair *pair = side->pair;
    struct end *theirs = side->theirs;
    size_t segment =
        MUSTER_SEGMENT_BYTES / receive->element_size_bytes * receive->element_size_bytes;
    uint64_t left = receive->size_bytes - offset;
    size_t size = left < segment ? left : segment;
    muster_mutex_lock(&pair->lock);
    theirs->touched = theirs->copying == send;
    bool taken_back = !theirs->touched;
    muster_mutex_unlock(&pair->lock);
    if (taken_back) {
        return false;
    }
    uint64_t opened = link->opened;
    muster_fabric_unlock(link->fabric);
    move_piece(receive, send->data, offset, size);
    muster_mutex_lock(&pair->lock);
    theirs->touched = false;
    pthread_cond_broadcast(&pair->idle);
    muster_mutex_unlock(&pair->lock);
    muster_fabric_lock(link->fabric);
    if (link->end == NULL || link->opened != opened || side->mine->receiving != receive) {
        return false;
    }
    receive->moved_bytes = offset + size;
    return true;
}

/* The peer's send goes into this side's receive. The pair is locked on entry, not on return; then
 * the link may be closed. */
static void receive_send(struct muster_link *link, struct side *side,
                         struct muster_transfer *receive, struct muster_transfer *send)
{
    uint64_t opened = link->opened;
    side->theirs->copying = send;
    side->mine->receiving = receive;
    muster_mutex_unlock(&side->pair->lock);
    bool moved = true;
    uint64_t size = receive->size_bytes;
    while (moved && receive->moved_bytes < size) {
        moved = move_segment(link, side, receive, send);
    }
    if (link->end == NULL || link->opened != opened) {
        return;
    }
    muster_mutex_lock(&side->pair->lock);
    side->mine->receiving = NULL;
    if (side->theirs->copying == send) {
        side->theirs->copying = NULL;
        muster_transfer_list_append(&side->theirs->finished, send);
        tell(side->theirs);
    }
    muster_mutex_unlock(&side->pair->lock);
    if (moved) {
        muster_transfer_table_remove(&link->receives, receive);
        muster_transfer_complete(link, receive, MUSTER_OK);
    }
}

/* The pair is locked on entry, not on return. Only the leader takes from the inbox. */
static void look_at(struct muster_link *link, struct side *side, struct muster_transfer *send)
{
    struct muster_transfer *receive = muster_transfer_table_find(&link->receives, &send->key);
    if (receive == NULL && !muster_fabric_stale(link->fabric, &send->key)) {
        muster_transfer_table_insert(&side->mine->early, send);
        muster_mutex_unlock(&side->pair->lock);
        return;
    }
    muster_status status = MUSTER_OK;
    if (receive != NULL) {
        status = muster_transfer_check(link, receive, send->call, send->size_bytes);
        if (status == MUSTER_OK) {
            receive_send(link, side, receive, send);
            return;
        }
    }
    muster_transfer_list_append(&side->theirs->finished, send);
    tell(side->theirs);
    muster_mutex_unlock(&side->pair->lock);
    if (receive != NULL) {
        muster_transfer_table_remove(&link->receives, receive);
        muster_transfer_complete(link, receive, status);
    } else {
        link->fabric->figures.stale_dropped++;
    }
}

static void take_finished(struct muster_link *link, struct side *side)
{
    struct muster_transfer_list finished = {0};
    muster_mutex_lock(&side->pair->lock);
    muster_transfer_list_splice(&side->mine->finished, &finished);
    muster_mutex_unlock(&side->pair->lock);
    struct muster_transfer *send = NULL;
    while ((send = muster_transfer_list_pop(&finished)) != NULL) {
        muster_transfer_complete(link, send, MUSTER_OK);
    }
}

static void take_aborts(struct muster_link *link, struct side *side)
{
    struct abort_note notes[ABORTS_MAX];
    muster_mutex_lock(&side->pair->lock);
    uint32_t count = side->mine->abort_count;
    memcpy(notes, side->mine->aborts, count * sizeof notes[0]);
    side->mine->abort_count = 0;
    muster_mutex_unlock(&side->pair->lock);
    for (uint32_t i = 0; i < count; i++) {
        muster_link_aborted(link, &notes[i].operation, notes[i].reason);
    }
}

/* As many sends as there are now; what comes meanwhile has its turn after the other links. Returns
 * false if the link was closed. */
static bool take_inbox(struct muster_link *link, struct side *side)
{
    uint64_t opened = link->opened;
    muster_mutex_lock(&side->pair->lock);
    uint32_t left = side->mine->inbox.count;
    muster_mutex_unlock(&side->pair->lock);
    for (; left > 0; left--) {
        muster_mutex_lock(&side->pair->lock);
        struct muster_transfer *send = muster_transfer_list_pop(&side->mine->inbox);
        if (send == NULL) {
            muster_mutex_unlock(&side->pair->lock);
            break;
        }
        look_at(link, side, send);
        if (link->end == NULL || link->opened != opened) {
            return false;
        }
    }
    return true;
}

static void inproc_progress(struct muster_link *link)
{
    struct side *side = link->end;
    take_finished(link, side);
    take_aborts(link, side);
    if (!take_inbox(link, side)) {
        return;
    }
    muster_mutex_lock(&side->pair->lock);
    enum end_state peer = side->theirs->state;
    bool more = side->mine->inbox.first != NULL || side->mine->finished.first != NULL;
    muster_mutex_unlock(&side->pair->lock);
    if (more) {
        muster_link_mark(link);
    } else if (peer == END_LEFT || peer == END_DEAD) {
        muster_link_fail(link, peer == END_LEFT ? MUSTER_LINK_LEFT : MUSTER_LINK_LOST,
                         "its fabric died");
    }
}

const struct muster_link_ops muster_inproc_ops = {
    .scheme = "inproc",
    .start = inproc_start,
    .stop = inproc_stop,
    .address = inproc_address,
    .woken = inproc_woken,
    .refresh = inproc_refresh,
    .begin_generation = inproc_begin_generation,
    .timers = inproc_timers,
    .open = inproc_open,
    .post_send = inproc_post_send,
    .post_receive = inproc_post_receive,
    .withdraw = inproc_withdraw,
    .abort = inproc_abort,
    .progress = inproc_progress,
    .goodbye = inproc_goodbye,
    .said_goodbye = inproc_said_goodbye,
    .close = inproc_close,
};
