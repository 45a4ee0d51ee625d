/*
 * The inproc transport: fabrics of one process. The sender's transfers stand in lists that both
 * fabrics share; the receiver's leader copies, or reduces, straight out of the sender's memory, and
 * nothing is buffered.
 */
#include "worker/fabric/inproc/inproc.h"

#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/fabric/link_trace.h"

#include <stdio.h>
#include <string.h>

/* The fabric's part --------------------------------------------------------------------------- */

static uint32_t inproc_addresses(const void *transport, uint32_t most,
                                 char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    const struct inproc *self = transport;
    if (most > 0) {
        (void)snprintf(ret_addresses[0], MUSTER_ADDRESS_SIZE, "inproc://%s", self->fabric->member);
    }
    return most > 0;
}

static void inproc_woken(void *transport)
{
    struct inproc *self = transport;
    if (atomic_exchange(&self->called, false)) {
        muster_inproc_answer_calls(self);
    }
    for (uint32_t i = 0; i < self->fabric->link_count; i++) {
        struct muster_link *link = self->fabric->links[i];
        if (link == NULL || link->end == NULL || link->ops != &muster_inproc_transport) {
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
        if (link->end == NULL || link->ops != &muster_inproc_transport) {
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
    muster_inproc_answer_calls(self);
    for (struct muster_link *link = self->fabric->by_member; link != NULL; link = link->hh.next) {
        if (link->end != NULL && link->ops == &muster_inproc_transport) {
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

/* Goodbye -------------------------------------------------------------------------------------- */

static bool inproc_has_arrived(const struct muster_link *link, const struct muster_message_key *key)
{
    (void)link;
    (void)key;
    return false; /* nothing is kept: the peer's sends end when they are received */
}

static void inproc_send_goodbye(struct muster_link *link)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    side->mine->state = END_LEFT;
    muster_inproc_tell(side->theirs);
}

static bool inproc_goodbye_done(const struct muster_link *link)
{
    return link->end == NULL || ((const struct side *)link->end)->mine->state == END_LEFT;
}

/* Sending -------------------------------------------------------------------------------------- */

static void inproc_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct side *side = link->end;
    AUTO_LOCK(&side->pair->lock);
    muster_transfer_list_append(&side->theirs->inbox, transfer);
    muster_inproc_tell(side->theirs);
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
        muster_inproc_recall_locked(side, ret_sends);
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
    muster_inproc_tell(side->theirs);
}

/* Sends end when the peer has looked at them. */
static void inproc_send_signature(struct muster_link *link,
                                  const struct muster_operation_id *operation)
{
    struct side *side = link->end;
    const struct muster_transfer *receive = muster_transfer_table_any(&link->receives, operation);
    if (receive == NULL) {
        return;
    }
    AUTO_LOCK(&side->pair->lock);
    if (side->theirs->call_count < CALLS_MAX) {
        side->theirs->calls[side->theirs->call_count++] =
            (struct call_note){.key = receive->key, .call = *receive->call};
    }
    muster_inproc_tell(side->theirs);
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

/* True while the link is the same and neither end has taken its transfer back. The pair is not
 * locked. */
static bool goes_on(struct muster_link *link, struct side *side, uint64_t opened,
                    const struct muster_transfer *receive)
{
    muster_fabric_yield(link->fabric);
    return link->end != NULL && link->opened == opened && side->mine->receiving == receive;
}

/* Moves one piece without locks, unless the sender has taken it back. */
static bool move_segment(struct muster_link *link, struct side *side,
                         struct muster_transfer *receive, struct muster_transfer *send)
{
    struct pair *pair = side->pair;
    struct end *theirs = side->theirs;
    uint64_t offset = receive->moved_bytes;
    size_t segment =
        muster_link_segment_bytes(link, MUSTER_SEGMENT_BYTES, receive->element_size_bytes);
    uint64_t left = receive->size_bytes - offset;
    size_t size = left < segment ? left : segment;
    muster_mutex_lock(&pair->lock);
    theirs->touched = theirs->copying == send;
    bool taken_back = !theirs->touched;
    muster_mutex_unlock(&pair->lock);
    if (taken_back) {
        return false;
    }
    if (receive->begun_ns == 0) {
        receive->begun_ns = muster_link_clock(link);
    }
    muster_fabric_unlock(link->fabric);
    move_piece(link, receive, send->data, size);
    muster_mutex_lock(&pair->lock);
    theirs->touched = false;
    pthread_cond_broadcast(&pair->idle);
    muster_mutex_unlock(&pair->lock);
    muster_fabric_lock(link->fabric);
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
    bool here = true;
    while (here && moved && receive->moved_bytes < receive->size_bytes) {
        here = goes_on(link, side, opened, receive);
        moved = here && move_segment(link, side, receive, send);
    }
    if (link->end == NULL || link->opened != opened) {
        return;
    }
    muster_mutex_lock(&side->pair->lock);
    side->mine->receiving = NULL;
    if (side->theirs->copying == send) {
        side->theirs->copying = NULL;
        muster_transfer_list_append(&side->theirs->finished, send);
        muster_inproc_tell(side->theirs);
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
        const struct muster_message_key key = send->key;
        const struct muster_call call = *send->call;
        muster_transfer_table_insert(&side->mine->early, send);
        muster_mutex_unlock(&side->pair->lock);
        muster_link_check_signature(link, &key, &call);
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
    muster_inproc_tell(side->theirs);
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

static void take_calls(struct muster_link *link, struct side *side)
{
    struct call_note notes[CALLS_MAX];
    muster_mutex_lock(&side->pair->lock);
    uint32_t count = side->mine->call_count;
    memcpy(notes, side->mine->calls, count * sizeof notes[0]);
    side->mine->call_count = 0;
    muster_mutex_unlock(&side->pair->lock);
    for (uint32_t i = 0; i < count; i++) {
        muster_link_check_signature(link, &notes[i].key, &notes[i].call);
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
    take_calls(link, side);
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
        muster_link_fail(link, peer == END_LEFT ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST,
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
    .progress = inproc_progress,
    .send_goodbye = inproc_send_goodbye,
    .goodbye_done = inproc_goodbye_done,
    .peer_left = muster_inproc_close,
    .has_arrived = inproc_has_arrived,
    .close = muster_inproc_close,
};
