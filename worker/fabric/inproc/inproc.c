/* The slots of the inproc transport, and how it moves messages; inproc.h says how. */
#include "worker/fabric/inproc/inproc.h"

#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/fabric/link_trace.h"
#include "worker/fabric/payload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* The transport's object ----------------------------------------------------------------------- */

static uint32_t inproc_addresses(const void *transport, uint32_t most,
                                 char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    const struct muster_inproc *self = transport;
    if (most > 0) {
        (void)snprintf(ret_addresses[0], MUSTER_ADDRESS_SIZE, "inproc://%s", self->fabric->member);
    }
    return most > 0;
}

static void inproc_woken(void *transport)
{
    struct muster_inproc *self = transport;
    if (atomic_exchange(&self->dialled, false)) {
        muster_inproc_accept_links(self);
    }
    for (uint32_t i = 0; i < self->fabric->link_count; i++) {
        struct muster_link *link = self->fabric->links[i];
        if (link == NULL || link->end == NULL || link->ops != &muster_inproc_transport) {
            continue;
        }
        const struct muster_inproc_side *side = link->end;
        if (atomic_exchange(&side->mine->has_work, false)) {
            muster_link_mark(link);
        }
    }
}

static void inproc_refresh(void *transport)
{
    struct muster_inproc *self = transport;
    for (struct muster_link *link = self->fabric->by_member; link != NULL; link = link->hh.next) {
        if (link->end == NULL || link->ops != &muster_inproc_transport) {
            continue;
        }
        struct muster_inproc_side *side = link->end;
        muster_mutex_lock(&side->pair->lock);
        bool gone = side->theirs->state == INPROC_LEFT || side->theirs->state == INPROC_DEAD;
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
    struct muster_inproc *self = transport;
    muster_inproc_accept_links(self);
    for (struct muster_link *link = self->fabric->by_member; link != NULL; link = link->hh.next) {
        if (link->end != NULL && link->ops == &muster_inproc_transport) {
            const struct muster_inproc_side *side = link->end;
            /* Sends that have waited for this generation are matched again. */
            muster_mutex_lock(&side->pair->lock);
            muster_transfer_table_splice(&side->mine->unexpected, &side->mine->inbox);
            muster_inproc_tell_rank(side->mine, self->fabric);
            muster_inproc_notify(side->theirs);
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

/* Goodbye -------------------------------------------------------------------------------------- */

static bool inproc_has_arrived(const struct muster_link *link, const struct muster_message_key *key)
{
    (void)link;
    (void)key;
    return false; /* nothing is buffered */
}

static void inproc_send_goodbye(struct muster_link *link)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    side->mine->state = INPROC_LEFT;
    muster_inproc_notify(side->theirs);
}

static bool inproc_goodbye_done(const struct muster_link *link)
{
    return link->end == NULL ||
           ((const struct muster_inproc_side *)link->end)->mine->state == INPROC_LEFT;
}

/* Sending -------------------------------------------------------------------------------------- */

static void inproc_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    muster_transfer_list_append(&side->theirs->inbox, transfer);
    muster_inproc_notify(side->theirs);
}

static void inproc_post_receive(struct muster_link *link, struct muster_transfer *transfer)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    struct muster_transfer *send =
        muster_transfer_table_find(&side->mine->unexpected, &transfer->key);
    if (send != NULL) {
        muster_transfer_table_remove(&side->mine->unexpected, send);
        muster_transfer_list_append(&side->mine->inbox, send);
        muster_link_mark(link);
    }
}

static void inproc_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                            struct muster_transfer_list *ret_sends)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    struct muster_transfer *being_read = side->mine->being_read;
    if (being_read != NULL && muster_operation_has(operation, &being_read->key)) {
        muster_inproc_recall_locked(side, ret_sends);
    }
    muster_transfer_list_move(&side->theirs->inbox, operation, ret_sends);
    muster_transfer_table_move(&side->theirs->unexpected, operation, ret_sends);
    muster_transfer_list_move(&side->mine->sent, operation, ret_sends);
    if (side->mine->receiving != NULL &&
        muster_operation_has(operation, &side->mine->receiving->key)) {
        side->mine->receiving = NULL;
    }
}

static void inproc_abort(struct muster_link *link, const struct muster_operation_id *operation,
                         const char *reason)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    if (side->theirs->abort_count < INPROC_ABORTS_MAX) {
        struct muster_inproc_abort *note = &side->theirs->aborts[side->theirs->abort_count++];
        note->operation = *operation;
        (void)snprintf(note->reason, sizeof note->reason, "%s", reason);
    }
    muster_inproc_notify(side->theirs);
}

/* Sends the signature only for a receive: the peer finds the call of a send in the send itself. */
static void inproc_send_signature(struct muster_link *link,
                                  const struct muster_operation_id *operation)
{
    struct muster_inproc_side *side = link->end;
    const struct muster_transfer *receive = muster_transfer_table_any(&link->receives, operation);
    if (receive == NULL) {
        return;
    }
    AUTO_LOCK(&side->pair->lock);
    if (side->theirs->signature_count < INPROC_SIGNATURES_MAX) {
        side->theirs->signatures[side->theirs->signature_count++] =
            (struct muster_inproc_signature){.key = receive->key, .call = *receive->call};
    }
    muster_inproc_notify(side->theirs);
}

static void inproc_announce(struct muster_link *link, const struct muster_operation_id *operation)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS; i++) {
        for (const struct muster_transfer *each = side->mine->unexpected.buckets[i].first;
             each != NULL; each = each->next) {
            if (muster_operation_has(operation, &each->key)) {
                muster_link_announce(link, &each->key, each->call, each->size_bytes);
            }
        }
    }
}

/* Sends of this transport are always offered. One that cannot be found has been withdrawn. */
static bool inproc_refuse(struct muster_link *link, const struct muster_message_key *key,
                          const char *reason)
{
    struct muster_inproc_side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    struct muster_transfer *send = muster_transfer_table_find(&side->mine->unexpected, key);
    struct muster_inproc_refusal *refusal = send != NULL ? malloc(sizeof *refusal) : NULL;
    if (refusal == NULL) {
        return false;
    }
    muster_transfer_table_remove(&side->mine->unexpected, send);
    muster_transfer_list_append(&side->theirs->sent, send);
    refusal->key = *key;
    (void)snprintf(refusal->reason, sizeof refusal->reason, "%s", reason);
    DL_APPEND(side->theirs->refusals, refusal);
    muster_inproc_notify(side->theirs);
    return true;
}

/* Progress ------------------------------------------------------------------------------------- */

static void move_piece(const struct muster_link *link, struct muster_transfer *receive,
                       const unsigned char *from, size_t size)
{
    uint64_t offset = receive->moved_bytes;
    enum muster_timeline_stage stage =
        receive->consume != NULL ? MUSTER_TIMELINE_REDUCE : MUSTER_TIMELINE_RECEIVE_SEGMENT;
    int64_t started_ns = muster_link_clock(link);
    if (receive->consume != NULL) {
        receive->consume(receive, offset, from + offset, size);
    } else {
        memcpy((unsigned char *)receive->data + offset, from + offset, size);
    }
    muster_link_add_part(link, receive, (struct muster_link_part){stage, started_ns, offset, size});
}

/* The same out of a message that lies in ranges, or into one. */
static void move_ranges(const struct muster_link *link, struct muster_transfer *receive,
                        const struct muster_transfer *send, size_t size)
{
    uint64_t offset = receive->moved_bytes;
    int64_t started_ns = muster_link_clock(link);
    enum muster_timeline_stage stage =
        receive->consume != NULL ? MUSTER_TIMELINE_REDUCE : MUSTER_TIMELINE_RECEIVE_SEGMENT;
    if (receive->consume == NULL) {
        muster_place_copy(muster_transfer_place(receive, offset),
                          muster_transfer_place(send, offset), size);
    }
    uint64_t there = 0;
    for (uint64_t done = 0; done < size && receive->consume != NULL; done += there) {
        const unsigned char *from = muster_transfer_at(send, offset + done, &there);
        there = there < size - done ? there : size - done;
        receive->consume(receive, offset + done, from, there);
    }
    muster_link_add_part(link, receive, (struct muster_link_part){stage, started_ns, offset, size});
}

/* True if the link is still open and neither transfer has been withdrawn. The pair is not locked.
 */
static bool may_continue(struct muster_link *link, struct muster_inproc_side *side, uint64_t opened,
                         const struct muster_transfer *receive)
{
    muster_fabric_yield(link->fabric);
    return link->end != NULL && link->opened == opened && side->mine->receiving == receive;
}

/* Moves one segment, without locks. False: the sender has withdrawn. */
static bool move_segment(struct muster_link *link, struct muster_inproc_side *side,
                         struct muster_transfer *receive, struct muster_transfer *send)
{
    struct muster_inproc_pair *pair = side->pair;
    struct muster_inproc_end *theirs = side->theirs;
    uint64_t offset = receive->moved_bytes;
    size_t segment =
        muster_link_segment_bytes(link, MUSTER_SEGMENT_BYTES, receive->element_size_bytes);
    uint64_t left = receive->size_bytes - offset;
    size_t size = left < segment ? left : segment;
    muster_mutex_lock(&pair->lock);
    theirs->reading = theirs->being_read == send;
    bool recalled = !theirs->reading;
    muster_mutex_unlock(&pair->lock);
    if (recalled) {
        return false;
    }
    if (receive->begun_ns == 0) {
        receive->begun_ns = muster_link_clock(link);
    }
    muster_fabric_unlock(link->fabric);
    if (send->ranges != NULL || receive->ranges != NULL) {
        move_ranges(link, receive, send, size);
    } else {
        move_piece(link, receive, send->data, size);
    }
    muster_mutex_lock(&pair->lock);
    theirs->reading = false;
    pthread_cond_broadcast(&pair->idle);
    muster_mutex_unlock(&pair->lock);
    muster_fabric_lock(link->fabric);
    receive->moved_bytes = offset + size;
    return true;
}

/* Moves the peer's send into this end's receive, segment by segment. The pair is locked on entry,
 * not on return; the link may be closed then. */
static void receive_message(struct muster_link *link, struct muster_inproc_side *side,
                            struct muster_transfer *receive, struct muster_transfer *send)
{
    uint64_t opened = link->opened;
    side->theirs->being_read = send;
    side->mine->receiving = receive;
    muster_mutex_unlock(&side->pair->lock);
    bool moved = true;
    bool here = true;
    while (here && moved && receive->moved_bytes < receive->size_bytes) {
        here = may_continue(link, side, opened, receive);
        moved = here && move_segment(link, side, receive, send);
    }
    if (link->end == NULL || link->opened != opened) {
        return;
    }
    muster_mutex_lock(&side->pair->lock);
    side->mine->receiving = NULL;
    if (side->theirs->being_read == send) {
        side->theirs->being_read = NULL;
        muster_transfer_list_append(&side->theirs->sent, send);
        muster_inproc_notify(side->theirs);
    }
    muster_mutex_unlock(&side->pair->lock);
    if (moved) {
        muster_transfer_table_remove(&link->receives, receive);
        muster_transfer_complete(link, receive, MUSTER_OK);
    }
}

/* Matches a send from the inbox: receives it if its receive is posted; otherwise stores it as
 * unexpected, or drops it if it is stale. The pair is locked on entry, not on return. Only the
 * leader takes sends out of the inbox. */
static void match_send(struct muster_link *link, struct muster_inproc_side *side,
                       struct muster_transfer *send)
{
    struct muster_transfer *receive = muster_transfer_table_find(&link->receives, &send->key);
    if (receive == NULL && !muster_fabric_stale(link->fabric, &send->key)) {
        const struct muster_message_key key = send->key;
        const struct muster_call call = *send->call;
        const uint64_t size_bytes = send->size_bytes;
        muster_transfer_table_insert(&side->mine->unexpected, send);
        muster_mutex_unlock(&side->pair->lock);
        muster_link_check_signature(link, &key, &call);
        muster_link_announce(link, &key, &call, size_bytes);
        return;
    }
    muster_status status = MUSTER_OK;
    if (receive != NULL) {
        status = muster_transfer_check(link, receive, send->call, send->size_bytes);
        if (status == MUSTER_OK) {
            receive_message(link, side, receive, send);
            return;
        }
    }
    muster_transfer_list_append(&side->theirs->sent, send);
    muster_inproc_notify(side->theirs);
    muster_mutex_unlock(&side->pair->lock);
    if (receive != NULL) {
        muster_transfer_table_remove(&link->receives, receive);
        muster_transfer_complete(link, receive, status);
    } else {
        link->fabric->figures.stale_dropped++;
    }
}

/* Of a send that the peer has received or refused. */
static muster_status result_of(struct muster_inproc_side *side, const struct muster_transfer *send)
{
    if (!muster_key_is_announced(&send->key)) {
        return MUSTER_OK;
    }
    AUTO_LOCK(&side->pair->lock);
    struct muster_inproc_refusal *each = NULL;
    DL_FOREACH(side->mine->refusals, each)
    {
        if (muster_key_equal(&each->key, &send->key)) {
            (void)muster_error_set(MUSTER_INVALID, "%s", each->reason);
            DL_DELETE(side->mine->refusals, each);
            free(each);
            return MUSTER_INVALID;
        }
    }
    return MUSTER_OK;
}

static void complete_sent(struct muster_link *link, struct muster_inproc_side *side)
{
    struct muster_transfer_list sent = {0};
    muster_mutex_lock(&side->pair->lock);
    muster_transfer_list_splice(&side->mine->sent, &sent);
    muster_mutex_unlock(&side->pair->lock);
    struct muster_transfer *send = NULL;
    while ((send = muster_transfer_list_pop(&sent)) != NULL) {
        muster_transfer_complete(link, send, result_of(side, send));
    }
}

static void handle_aborts(struct muster_link *link, struct muster_inproc_side *side)
{
    struct muster_inproc_abort notes[INPROC_ABORTS_MAX];
    muster_mutex_lock(&side->pair->lock);
    uint32_t count = side->mine->abort_count;
    memcpy(notes, side->mine->aborts, count * sizeof notes[0]);
    side->mine->abort_count = 0;
    muster_mutex_unlock(&side->pair->lock);
    for (uint32_t i = 0; i < count; i++) {
        muster_link_aborted(link, &notes[i].operation, notes[i].reason);
    }
}

static void check_signatures(struct muster_link *link, struct muster_inproc_side *side)
{
    struct muster_inproc_signature notes[INPROC_SIGNATURES_MAX];
    muster_mutex_lock(&side->pair->lock);
    uint32_t count = side->mine->signature_count;
    memcpy(notes, side->mine->signatures, count * sizeof notes[0]);
    side->mine->signature_count = 0;
    muster_mutex_unlock(&side->pair->lock);
    for (uint32_t i = 0; i < count; i++) {
        muster_link_check_signature(link, &notes[i].key, &notes[i].call);
    }
}

/* Matches as many sends as there are now; later ones have their turn after the other links. False:
 * the link is closed. */
static bool handle_inbox(struct muster_link *link, struct muster_inproc_side *side)
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
        match_send(link, side, send);
        if (link->end == NULL || link->opened != opened) {
            return false;
        }
    }
    return true;
}

/* False: the link is closed, as the peer has another rank than this member knows. */
static bool handle_rank(struct muster_link *link, struct muster_inproc_side *side)
{
    muster_mutex_lock(&side->pair->lock);
    uint64_t generation = side->theirs->generation;
    uint32_t rank = side->theirs->rank;
    muster_mutex_unlock(&side->pair->lock);
    if (generation == link->told_generation ||
        muster_link_told_rank(link, generation, rank) == MUSTER_OK) {
        return true;
    }
    char what[MUSTER_REASON_SIZE];
    (void)snprintf(what, sizeof what, "%.200s", muster_last_error());
    muster_link_fail(link, MUSTER_LINK_LOST, what);
    return false;
}

static void inproc_progress(struct muster_link *link)
{
    struct muster_inproc_side *side = link->end;
    if (!handle_rank(link, side)) {
        return;
    }
    complete_sent(link, side);
    handle_aborts(link, side);
    check_signatures(link, side);
    if (!handle_inbox(link, side)) {
        return;
    }
    muster_mutex_lock(&side->pair->lock);
    enum muster_inproc_state peer = side->theirs->state;
    bool more = side->mine->inbox.first != NULL || side->mine->sent.first != NULL;
    muster_mutex_unlock(&side->pair->lock);
    if (more) {
        muster_link_mark(link);
    } else if (peer == INPROC_LEFT || peer == INPROC_DEAD) {
        muster_link_fail(link, peer == INPROC_LEFT ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST,
                         "its fabric died");
    }
}

const struct muster_transport muster_inproc_transport = {
    .name = "inproc",
    .start = muster_inproc_start,
    .stop = muster_inproc_stop,
    .addresses = inproc_addresses,
    .woken = inproc_woken,
    .refresh = inproc_refresh,
    .begin_generation = inproc_begin_generation,
    .timers = inproc_timers,
    .open = muster_inproc_open,
    .post_send = inproc_post_send,
    .post_receive = inproc_post_receive,
    .withdraw = inproc_withdraw,
    .abort = inproc_abort,
    .send_signature = inproc_send_signature,
    .announce = inproc_announce,
    .refuse = inproc_refuse,
    .progress = inproc_progress,
    .send_goodbye = inproc_send_goodbye,
    .goodbye_done = inproc_goodbye_done,
    .peer_left = muster_inproc_close,
    .has_arrived = inproc_has_arrived,
    .close = muster_inproc_close,
};
