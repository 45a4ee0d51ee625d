/* Matching, the receiving side: what each arriving frame leads to, also a stored one whose transfer
 * has been posted since; and the ends of gets. */
#include "worker/fabric/link_trace.h"
#include "worker/fabric/wire/match_parts.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Frames ------------------------------------------------------------------------------------- */

/* Compares call and size of the frame with those of the receive. If they differ, ends the receive
 * with MUSTER_INVALID. */
static bool matches_receive(struct muster_match *match, struct muster_transfer *receive,
                            const struct muster_frame *frame)
{
    muster_status status = muster_transfer_check(match->link, receive, &frame->call, frame->total);
    if (status != MUSTER_OK) {
        muster_transfer_table_remove(&match->link->receives, receive);
        muster_transfer_complete(match->link, receive, status);
    }
    return status == MUSTER_OK;
}

static bool is_stale(struct muster_match *match, const struct muster_frame *frame)
{
    bool stale = muster_fabric_stale(match->link->fabric, &frame->key);
    match->link->fabric->figures.stale_dropped += stale;
    return stale;
}

static void place_in_receive(struct muster_arrival *arrival, struct muster_transfer *receive)
{
    arrival->receive = receive;
    receive->begun_ns = receive->begun_ns != 0 ? receive->begun_ns : arrival->started_ns;
    arrival->place = receive->consume != NULL ? MUSTER_PLACE_CONSUME : MUSTER_PLACE_DATA;
}

/* The receive of a message whose EAGER frame is arriving, if it is posted, or if the listener posts
 * it now. */
static struct muster_transfer *find_receive(const struct muster_match *match,
                                            const struct muster_frame *frame)
{
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &frame->key);
    if (receive == NULL && muster_key_is_announced(&frame->key)) {
        muster_link_announce(match->link, &frame->key, &frame->call, frame->total);
        receive = muster_transfer_table_find(&match->link->receives, &frame->key);
    }
    return receive;
}

/* The payload goes into its receive, if that is posted; is dropped, if the message is stale or
 * differs from the receive; or else is stored as an unexpected message, within the eager window. */
static muster_status begin_eager(struct muster_match *match, struct muster_arrival *arrival)
{
    const struct muster_frame *frame = &arrival->frame;
    struct muster_transfer *receive = find_receive(match, frame);
    if (receive != NULL) {
        if (receive->link_word == MUSTER_WORD_GRANTED && receive->size_bytes == frame->total) {
            return muster_error_set(MUSTER_INVALID, "an eager message that was offered before");
        }
        if (matches_receive(match, receive, frame)) {
            place_in_receive(arrival, receive);
        }
        return MUSTER_OK;
    }
    if (is_stale(match, frame)) {
        return MUSTER_OK;
    }
    uint64_t charge = muster_unexpected_charge(frame);
    if (match->unexpected_bytes + charge > MUSTER_EAGER_WINDOW_BYTES) {
        return muster_error_set(MUSTER_INVALID,
                                "more unexpected messages than the eager window allows");
    }
    arrival->unexpected = muster_unexpected_create(frame);
    if (arrival->unexpected == NULL) {
        return muster_error_set(MUSTER_INVALID, "out of memory for an unexpected message");
    }
    arrival->place = MUSTER_PLACE_UNEXPECTED;
    return MUSTER_OK;
}

static muster_status begin_segment(struct muster_match *match, struct muster_arrival *arrival)
{
    const struct muster_frame *frame = &arrival->frame;
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &frame->key);
    if (receive == NULL) {
        match->link->fabric->figures.stale_dropped++; /* the receive was withdrawn, or has failed */
        return MUSTER_OK;
    }
    if (receive->link_word != MUSTER_WORD_GRANTED || receive->size_bytes != frame->total ||
        receive->moved_bytes != frame->offset) {
        return muster_error_set(MUSTER_INVALID, "a segment that was not granted");
    }
    place_in_receive(arrival, receive);
    return MUSTER_OK;
}

/* Only on one host may a message be read out of the sender's memory. */
static muster_status check_get_frames(const struct muster_match *match,
                                      const struct muster_frame *frame)
{
    bool by_get = frame->kind == MUSTER_FRAME_GET_DONE ||
                  (frame->kind == MUSTER_FRAME_OFFER && frame->length > 0) ||
                  (frame->kind == MUSTER_FRAME_GRANT && frame->offset != 0);
    return by_get && match->get_ops == NULL
               ? muster_error_set(MUSTER_INVALID, "a frame that only members of one host may send")
               : MUSTER_OK;
}

/* Credit is added at once. For kinds with a payload this decides where the payload goes;
 * muster_match_arrived() handles the frame when all of it has arrived. */
muster_status muster_match_header(struct muster_match *match, const struct muster_frame *frame,
                                  struct muster_arrival *arrival)
{
    if (frame->credit > match->eager_out_bytes) {
        return muster_error_set(MUSTER_INVALID, "credit for more than was sent");
    }
    TRY(check_get_frames(match, frame));
    match->link->activity++;
    match->eager_out_bytes -= frame->credit;
    arrival->frame = *frame;
    arrival->started_ns = muster_link_clock(match->link);
    arrival->place = MUSTER_PLACE_NOWHERE;
    arrival->remaining = frame->length;
    arrival->receive = NULL;
    arrival->unexpected = NULL;
    arrival->carried = 0;
    switch (frame->kind) {
    case MUSTER_FRAME_EAGER:
        return begin_eager(match, arrival);
    case MUSTER_FRAME_SEGMENT:
        return begin_segment(match, arrival);
    case MUSTER_FRAME_ABORT:
    case MUSTER_FRAME_REFUSAL:
    case MUSTER_FRAME_OFFER:
        memset(arrival->text, 0, sizeof arrival->text);
        arrival->place = MUSTER_PLACE_TEXT;
        return MUSTER_OK;
    case MUSTER_FRAME_GET_DONE:
    case MUSTER_FRAME_GRANT:
    case MUSTER_FRAME_CREDIT:
    case MUSTER_FRAME_GOODBYE:
    case MUSTER_FRAME_SIGNATURE:
    case MUSTER_FRAME_RANK:
        break;
    }
    return MUSTER_OK;
}

static muster_status store_unexpected(struct muster_match *match,
                                      struct muster_unexpected *unexpected)
{
    if (unexpected == NULL || !muster_unexpected_insert(&match->unexpected, unexpected)) {
        free(unexpected);
        return muster_error_set(MUSTER_INVALID, "more than %d unexpected frames",
                                MUSTER_UNEXPECTED_MAX);
    }
    const struct muster_frame frame = unexpected->frame;
    muster_link_check_signature(match->link, &frame.key,
                                &frame.call); /* may drop the stored frame */
    return MUSTER_OK;
}

static void send_grant(struct muster_match *match, struct muster_transfer *receive)
{
    receive->link_word = MUSTER_WORD_GRANTED;
    muster_match_queue_about(match, MUSTER_FRAME_GRANT, receive);
}

static struct muster_unexpected *copy_offer(const struct muster_frame *frame, const void *payload)
{
    struct muster_unexpected *unexpected = muster_unexpected_create(frame);
    if (unexpected != NULL) {
        memcpy(unexpected->data, payload, frame->length);
    }
    return unexpected;
}

static muster_status handle_offer(struct muster_match *match, const struct muster_frame *frame,
                                  const void *payload)
{
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &frame->key);
    if (receive == NULL) {
        TRY(is_stale(match, frame) ? MUSTER_OK
                                   : store_unexpected(match, copy_offer(frame, payload)));
        muster_link_announce(match->link, &frame->key, &frame->call, frame->total);
        return MUSTER_OK;
    }
    if (!matches_receive(match, receive, frame) || receive->link_word != 0) {
        return MUSTER_OK;
    }
    struct muster_unexpected *get = frame->length > 0 ? copy_offer(frame, payload) : NULL;
    if (get == NULL) {
        send_grant(match, receive);
        return MUSTER_OK;
    }
    receive->link_word = MUSTER_WORD_GET;
    DL_APPEND(match->gets, get);
    muster_link_mark(match->link);
    return MUSTER_OK;
}

static muster_status handle_grant(struct muster_match *match, const struct muster_frame *frame)
{
    struct muster_transfer *send = muster_transfer_table_find(&match->waiting, &frame->key);
    if (send == NULL) {
        return is_stale(match, frame) ? MUSTER_OK
                                      : store_unexpected(match, muster_unexpected_create(frame));
    }
    muster_status status = muster_transfer_check(match->link, send, &frame->call, frame->total);
    if (status == MUSTER_OK && frame->offset == MUSTER_GRANT_BY_GET) {
        return MUSTER_OK; /* the offer, which is under way, says where the data is */
    }
    muster_transfer_table_remove(&match->waiting, send);
    muster_match_retract_offer(match, send);
    if (status != MUSTER_OK) {
        muster_transfer_complete(match->link, send, status);
        return MUSTER_OK;
    }
    send->link_word = 0;
    muster_transfer_list_insert(&match->ready, send);
    muster_link_mark(match->link);
    return MUSTER_OK;
}

static void complete_receive(struct muster_match *match, struct muster_transfer *receive)
{
    muster_transfer_table_remove(&match->link->receives, receive);
    muster_transfer_complete(match->link, receive, MUSTER_OK);
}

static muster_status handle_get_done(struct muster_match *match, const struct muster_frame *frame)
{
    struct muster_transfer *send = muster_transfer_table_find(&match->waiting, &frame->key);
    if (send != NULL && send->size_bytes == frame->total) {
        muster_transfer_table_remove(&match->waiting, send);
        muster_match_retract_offer(match, send);
        muster_transfer_complete(match->link, send, MUSTER_OK);
    }
    return MUSTER_OK;
}

static muster_status handle_refusal(struct muster_match *match, const struct muster_frame *frame,
                                    const char *reason)
{
    struct muster_transfer *send = muster_transfer_table_find(&match->waiting, &frame->key);
    if (send != NULL) {
        muster_transfer_table_remove(&match->waiting, send);
        muster_match_retract_offer(match, send);
        muster_transfer_complete(match->link, send, muster_error_set(MUSTER_INVALID, "%s", reason));
    }
    return MUSTER_OK;
}

static muster_status handle_eager(struct muster_match *match, struct muster_arrival *arrival)
{
    struct muster_unexpected *unexpected = TAKE(arrival->unexpected);
    if (unexpected == NULL) {
        muster_match_credit(match, muster_unexpected_charge(&arrival->frame));
        return MUSTER_OK;
    }
    match->unexpected_bytes += muster_unexpected_charge(&unexpected->frame);
    if (muster_transfer_table_find(&match->link->receives, &unexpected->frame.key) != NULL) {
        muster_match_queue_matched(match, unexpected); /* its receive was posted meanwhile */
        return MUSTER_OK;
    }
    return store_unexpected(match, unexpected);
}

/* The receive is completed first: its done function may post the next one. */
muster_status muster_match_arrived(struct muster_match *match, struct muster_arrival *arrival)
{
    struct muster_operation_id operation = muster_key_operation(&arrival->frame.key);
    struct muster_transfer *receive = TAKE(arrival->receive);
    if (arrival->carried > 0) {
        return muster_error_set(MUSTER_INVALID, "a segment that ends within an element");
    }
    if (receive != NULL) {
        muster_link_add_part(match->link, receive,
                             (struct muster_link_part){MUSTER_TIMELINE_RECEIVE_SEGMENT,
                                                       arrival->started_ns, arrival->frame.offset,
                                                       arrival->frame.length});
    }
    if (receive != NULL && receive->moved_bytes == receive->size_bytes) {
        complete_receive(match, receive);
    }
    switch (arrival->frame.kind) {
    case MUSTER_FRAME_EAGER:
        return handle_eager(match, arrival);
    case MUSTER_FRAME_OFFER:
        return handle_offer(match, &arrival->frame, arrival->text);
    case MUSTER_FRAME_GRANT:
        return handle_grant(match, &arrival->frame);
    case MUSTER_FRAME_GET_DONE:
        return handle_get_done(match, &arrival->frame);
    case MUSTER_FRAME_REFUSAL:
        return handle_refusal(match, &arrival->frame, arrival->text);
    case MUSTER_FRAME_ABORT:
        muster_link_aborted(match->link, &operation, arrival->text);
        return MUSTER_OK;
    case MUSTER_FRAME_RANK:
        return muster_link_told_rank(match->link, arrival->frame.key.generation,
                                     arrival->frame.call.root);
    case MUSTER_FRAME_SIGNATURE:
        muster_link_check_signature(match->link, &arrival->frame.key, &arrival->frame.call);
        return MUSTER_OK;
    case MUSTER_FRAME_SEGMENT:
    case MUSTER_FRAME_CREDIT:
    case MUSTER_FRAME_GOODBYE:
        break;
    }
    return MUSTER_OK;
}

/* Getting ------------------------------------------------------------------------------------ */

struct muster_transfer *muster_match_get_receive(const struct muster_match *match,
                                                 const struct muster_unexpected *get)
{
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &get->frame.key);
    return receive != NULL && receive->link_word == MUSTER_WORD_GET ? receive : NULL;
}

void muster_match_get_done(struct muster_match *match, struct muster_unexpected *get)
{
    struct muster_transfer *receive = muster_match_get_receive(match, get);
    DL_DELETE(match->gets, get);
    muster_match_queue_about(match, MUSTER_FRAME_GET_DONE, receive);
    free(get);
    complete_receive(match, receive);
}

void muster_match_get_failed(struct muster_match *match, struct muster_unexpected *get)
{
    struct muster_transfer *receive = muster_match_get_receive(match, get);
    DL_DELETE(match->gets, get);
    free(get);
    if (receive != NULL && receive->moved_bytes == 0) {
        send_grant(match, receive);
    }
}

/* Stored frames ------------------------------------------------------------------------------ */

static void deliver_stored(struct muster_match *match, const struct muster_unexpected *unexpected,
                           unsigned char *piece)
{
    struct muster_link *link = match->link;
    struct muster_arrival arrival = {.frame = unexpected->frame};
    struct muster_transfer *receive =
        muster_transfer_table_find(&link->receives, &unexpected->frame.key);
    if (receive == NULL || !matches_receive(match, receive, &unexpected->frame)) {
        return;
    }
    if (receive->link_word == MUSTER_WORD_GRANTED) {
        match->broken = true; /* an eager message of which an OFFER has arrived, too */
        return;
    }
    arrival.piece = piece;
    arrival.remaining = unexpected->frame.length;
    place_in_receive(&arrival, receive);
    muster_arrival_consume(match, &arrival, unexpected->data, arrival.remaining);
    complete_receive(match, receive);
}

/* A stored eager message no longer occupies the window: its credit is returned before the delivery,
 * whose done function may post the next message. */
bool muster_match_progress(struct muster_match *match, unsigned char *piece)
{
    while (match->matched != NULL) {
        struct muster_unexpected *unexpected = match->matched;
        DL_DELETE(match->matched, unexpected);
        muster_status status = MUSTER_OK;
        switch (unexpected->frame.kind) {
        case MUSTER_FRAME_OFFER:
            status = handle_offer(match, &unexpected->frame, unexpected->data);
            break;
        case MUSTER_FRAME_GRANT:
            status = handle_grant(match, &unexpected->frame);
            break;
        default:
            match->unexpected_bytes -= muster_unexpected_charge(&unexpected->frame);
            muster_match_credit(match, muster_unexpected_charge(&unexpected->frame));
            deliver_stored(match, unexpected, piece);
        }
        free(unexpected);
        match->broken = match->broken || status != MUSTER_OK;
    }
    if (match->broken) {
        muster_link_fail(match->link, MUSTER_LINK_LOST,
                         "out of memory for its frames, or they contradict each other");
        return false;
    }
    return true;
}
