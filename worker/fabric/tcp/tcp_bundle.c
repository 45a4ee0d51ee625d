/* See tcp_bundle.h. */
#include "worker/fabric/tcp/tcp_bundle.h"

#include "worker/fabric/tcp/tcp.h"
#include "worker/fabric/wire/bytes.h"
#include "worker/fabric/wire/frame.h"
#include "worker/fabric/wire/whole_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <zlib.h>

enum {
    BATCH_MAX = 16, /* frames given to one system call */
    BATCH_BYTES = 2 * MUSTER_PIECE_BYTES,
    CALLS_MAX = 4,       /* for each connection, then other links have their turn */
    AT_NUMBER = 0,       /* 8 */
    AT_ACKNOWLEDGED = 8, /* 8; the sender of this has all before that number */
    AT_CHECKSUM = 16,    /* 4, of what stands before */
    HEADER_SIZE = TCP_ENVELOPE_SIZE + MUSTER_FRAME_SIZE,
};

static const struct muster_bundle_limits limits = {
    .first_number = 1, /* 0: an acknowledgement alone */
    .window_bytes = TCP_WINDOW_BYTES,
    .ahead_max = MUSTER_BUNDLE_WINDOW,
};

struct tcp_bundle *muster_tcp_bundle_create(void)
{
    struct tcp_bundle *bundle = calloc(1, sizeof *bundle);
    if (bundle != NULL) {
        muster_bundle_init(&bundle->frames, &limits);
    }
    return bundle;
}

static struct tcp_parcel *parcel_of(struct tcp_bundle *bundle, uint64_t number)
{
    return &bundle->parcels[muster_bundle_index(number)];
}

void muster_tcp_bundle_destroy(struct tcp_bundle *bundle)
{
    if (bundle == NULL) {
        return;
    }
    for (size_t i = 0; i < MUSTER_BUNDLE_WINDOW; i++) {
        free(bundle->parcels[i].copy);
        free(bundle->held[i]);
    }
    free(bundle);
}

/* Frames from the matching ------------------------------------------------------------------- */

static size_t parcel_bytes(const struct tcp_parcel *parcel)
{
    return HEADER_SIZE + (size_t)parcel->frame.size;
}

/* The frame outlives its transfer, which must not wait for the peer to acknowledge it: the peer may
 * have all it wants and be gone to compute. */
static bool keep_copy(struct tcp_parcel *parcel, const unsigned char *data)
{
    if (parcel->frame.size > 0) {
        parcel->copy = malloc(parcel->frame.size);
        if (parcel->copy == NULL) {
            return false;
        }
        memcpy(parcel->copy, data, parcel->frame.size);
    }
    parcel->frame.data = parcel->copy;
    return true;
}

/* Returns NULL if there is no frame, no room in the window, or no memory. */
static struct tcp_parcel *take_frame(struct tcp_link *link)
{
    struct tcp_bundle *bundle = link->bundle;
    struct muster_match *match = &link->match;
    struct tcp_parcel *parcel = parcel_of(bundle, bundle->frames.next_out);
    if (!muster_bundle_has_room(&bundle->frames)) {
        return NULL;
    }
    memset(parcel, 0, sizeof *parcel);
    if (!muster_whole_frame_next_control(match, &parcel->frame) &&
        !muster_match_next(match, &parcel->frame)) {
        return NULL;
    }
    if (!keep_copy(parcel, parcel->frame.data)) {
        match->broken = true;
        muster_link_mark(link->link);
        return NULL;
    }
    parcel->number = muster_bundle_add(&bundle->frames, parcel->frame.size);
    return parcel;
}

/* Sending ------------------------------------------------------------------------------------ */

/* What one system call sends on one path. */
struct batch {
    struct tcp_parcel *parcels[BATCH_MAX];
    uint32_t count;
    size_t bytes;
    struct iovec parts[3 * BATCH_MAX + 1];
    int part_count;
};

static void write_envelope(struct tcp_bundle *bundle, uint64_t number, unsigned char *envelope)
{
    uint64_t acknowledged = muster_bundle_acknowledgement(&bundle->frames);
    memset(envelope, 0, TCP_ENVELOPE_SIZE);
    muster_bytes_put(envelope + AT_NUMBER, number, 8);
    muster_bytes_put(envelope + AT_ACKNOWLEDGED, acknowledged, 8);
    muster_bytes_put(envelope + AT_CHECKSUM, crc32(0, envelope, AT_CHECKSUM), 4);
}

/* Adds what is left of `bytes` behind the first `*skip` ones of the whole. */
static void add_part(struct batch *batch, unsigned char *bytes, size_t size, size_t *skip)
{
    size_t skipped = *skip < size ? *skip : size;
    *skip -= skipped;
    if (size > skipped) {
        batch->parts[batch->part_count].iov_base = bytes + skipped;
        batch->parts[batch->part_count++].iov_len = size - skipped;
        batch->bytes += size - skipped;
    }
}

static void add_parts(struct batch *batch, struct tcp_parcel *parcel)
{
    size_t skip = parcel->sent;
    batch->parcels[batch->count++] = parcel;
    add_part(batch, parcel->envelope, TCP_ENVELOPE_SIZE, &skip);
    add_part(batch, parcel->frame.header, MUSTER_FRAME_SIZE, &skip);
    add_part(batch, parcel->frame.data, parcel->frame.size, &skip);
}

/* It waits for a path, and gets this one. */
static void add_parcel(struct batch *batch, const struct tcp_path *path, struct tcp_parcel *parcel)
{
    struct tcp_bundle *bundle = path->link->bundle;
    muster_bundle_carry(&bundle->frames, parcel->number, path->place);
    parcel->sent = 0;
    write_envelope(bundle, parcel->number, parcel->envelope);
    add_parts(batch, parcel);
}

/* An acknowledgement for itself, to path->control. */
static void acknowledge(struct tcp_path *path)
{
    struct tcp_link *link = path->link;
    unsigned char *bytes = muster_frame_queue_extend(&path->control, HEADER_SIZE);
    if (bytes == NULL) {
        link->match.broken = true;
        return;
    }
    const struct muster_frame nothing = {.kind = MUSTER_FRAME_CREDIT};
    write_envelope(link->bundle, 0, bytes);
    muster_frame_encode(&nothing, bytes + TCP_ENVELOPE_SIZE);
}

static bool has_room(const struct batch *batch)
{
    return batch->count < BATCH_MAX && batch->bytes < BATCH_BYTES;
}

/* The frame that is half out goes first, then acknowledgements, then what nobody carries, by
 * number, then new ones. */
static void fill(struct batch *batch, struct tcp_path *path)
{
    struct tcp_bundle *bundle = path->link->bundle;
    struct tcp_parcel *parcel = NULL;
    uint64_t number = 0;
    size_t none = 0;
    if (path->torn != NULL) {
        add_parts(batch, path->torn);
    }
    add_part(batch, path->control.bytes + path->control.start,
             path->control.end - path->control.start, &none);
    while (has_room(batch) && (number = muster_bundle_next_waiting(&bundle->frames, number)) !=
                                  bundle->frames.next_out) {
        add_parcel(batch, path, parcel_of(bundle, number));
    }
    while (has_room(batch) && (parcel = take_frame(path->link)) != NULL) {
        add_parcel(batch, path, parcel);
    }
    if (batch->part_count == 0 && bundle->frames.acknowledgement_due) {
        acknowledge(path);
        add_part(batch, path->control.bytes + path->control.start,
                 path->control.end - path->control.start, &none);
    }
}

static void note_sent(struct tcp_link *link, struct tcp_parcel *parcel)
{
    const struct muster_outgoing frame = parcel->frame;
    parcel->frame.transfer = NULL;
    muster_match_sent(&link->match, &frame);
}

/* In the kernel's hands, also what TLS has made of it. */
static bool is_out(const struct tcp_link *link, uint64_t number)
{
    const struct tcp_parcel *parcel = parcel_of(link->bundle, number);
    uint32_t place = muster_bundle_carrier(&link->bundle->frames, number);
    return place != MUSTER_BUNDLE_NO_PATH && parcel->sent == parcel_bytes(parcel) &&
           !muster_tls_has_backlog(link->paths[place]->tls);
}

/* A message is out when all before it are: the peer does not look at it earlier, and this member
 * may not come back for long. */
static void end_transfers(struct tcp_link *link)
{
    const struct muster_bundle *frames = &link->bundle->frames;
    for (uint64_t number = frames->first_out; number != frames->next_out && is_out(link, number);
         number++) {
        note_sent(link, parcel_of(link->bundle, number));
    }
}

/* The connection that it is half out on needs the rest to find the next frame. */
static void leave_rest(struct tcp_link *link, struct tcp_parcel *parcel)
{
    for (uint32_t i = 0; i < MUSTER_TCP_CONNECTIONS_MAX; i++) {
        struct tcp_path *path = link->paths[i];
        if (path != NULL && path->torn == parcel) {
            path->rest = *parcel;
            path->rest.frame.transfer = NULL;
            path->torn = &path->rest;
            parcel->copy = NULL;
            return;
        }
    }
}

/* The peer has it. */
static void finish_parcel(struct tcp_link *link, struct tcp_parcel *parcel)
{
    if (parcel->sent > 0 && parcel->sent < parcel_bytes(parcel)) {
        leave_rest(link, parcel);
    }
    free(TAKE(parcel->copy));
    note_sent(link, parcel);
}

static void drop_rest(struct tcp_path *path)
{
    if (path->torn == &path->rest) {
        free(TAKE(path->rest.copy));
    }
    path->torn = NULL;
}

static size_t advance_parcel(struct tcp_parcel *parcel, size_t bytes)
{
    size_t left = parcel_bytes(parcel) - parcel->sent;
    size_t taken = bytes < left ? bytes : left;
    parcel->sent += taken;
    return bytes - taken;
}

/* So many bytes of the batch are out. What was not begun may go by another path. */
static void advance(struct batch *batch, struct tcp_path *path, size_t bytes)
{
    struct tcp_link *link = path->link;
    uint32_t first = 0;
    if (path->torn != NULL) {
        bytes = advance_parcel(path->torn, bytes);
        if (path->torn->sent == parcel_bytes(path->torn)) {
            drop_rest(path);
        }
        first = 1;
    }
    size_t control = path->control.end - path->control.start;
    control = bytes < control ? bytes : control;
    path->control.start += control;
    bytes -= control;
    for (uint32_t i = first; i < batch->count; i++) {
        struct tcp_parcel *parcel = batch->parcels[i];
        bytes = advance_parcel(parcel, bytes);
        if (parcel->sent == 0) {
            muster_bundle_put_back(&link->bundle->frames, parcel->number);
        } else if (parcel->sent < parcel_bytes(parcel)) {
            path->torn = parcel;
        }
    }
    end_transfers(link);
}

enum outcome {
    OUT_ALL,
    OUT_PARTLY, /* the path waits for room */
    OUT_NOTHING,
    OUT_GONE, /* the path is closed, and the link perhaps too */
};

static enum outcome send_batch(struct tcp_path *path)
{
    struct muster_fabric *fabric = path->tcp->pending_list.fabric;
    struct batch batch = {.count = 0};
    muster_fabric_yield(fabric);
    if (path->pending.watch.retired) {
        return OUT_GONE;
    }
    fill(&batch, path);
    if (batch.part_count == 0 && !muster_tls_has_backlog(path->tls)) {
        return OUT_NOTHING;
    }
    muster_fabric_unlock(fabric);
    ssize_t sent = muster_tcp_path_send(path, batch.parts, batch.part_count);
    int error = errno;
    muster_fabric_lock(fabric);
    advance(&batch, path, sent > 0 ? (size_t)sent : 0);
    if (sent < 0 && error != EAGAIN && error != EINTR) {
        path->deaf = true; /* reading says what has become of it */
        muster_tcp_bundle_abandon(path);
        muster_tcp_path_watch(path, false);
        return OUT_PARTLY;
    }
    bool all = sent >= 0 && (size_t)sent == batch.bytes && !muster_tls_has_backlog(path->tls);
    muster_tcp_path_watch(path, !all);
    return all ? OUT_ALL : OUT_PARTLY;
}

/* The next path in turn that takes something; NULL if none does. */
static struct tcp_path *choose_path(struct tcp_link *link)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < MUSTER_TCP_CONNECTIONS_MAX; i++) {
        const struct tcp_path *path = link->paths[i];
        bool takes = path != NULL && !path->deaf && (path->pending.watch.events & EPOLLOUT) == 0;
        ready |= (uint32_t)takes << i;
    }
    uint32_t place = muster_bundle_choose(&link->bundle->frames, ready);
    return place != MUSTER_BUNDLE_NO_PATH ? link->paths[place] : NULL;
}

static bool all_is_out(const struct tcp_link *link)
{
    const struct muster_bundle *frames = &link->bundle->frames;
    for (uint64_t number = frames->first_out; number != frames->next_out; number++) {
        if (!is_out(link, number)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < MUSTER_TCP_CONNECTIONS_MAX; i++) {
        if (link->paths[i] != NULL && link->paths[i]->torn != NULL) {
            return false;
        }
    }
    return link->match.control.start == link->match.control.end;
}

static void part(struct tcp_link *link)
{
    if (link->parting && !link->parted && all_is_out(link)) {
        link->parted = true;
        for (uint32_t i = 0; i < MUSTER_TCP_CONNECTIONS_MAX; i++) {
            if (link->paths[i] != NULL) {
                muster_tcp_path_end(link->paths[i]);
            }
        }
    }
}

void muster_tcp_bundle_flush(struct tcp_link *link)
{
    uint32_t calls = 0;
    uint32_t idle =
        0; /* paths in a row that have nothing to send: one may be half through a frame */
    struct tcp_path *path = NULL;
    while (idle < link->path_count && (path = choose_path(link)) != NULL) {
        enum outcome outcome = send_batch(path);
        if (outcome == OUT_GONE) {
            return;
        }
        if (outcome == OUT_NOTHING) {
            idle++;
            continue;
        }
        idle = 0;
        if (++calls == CALLS_MAX * link->path_count) {
            muster_link_mark(link->link);
            return;
        }
    }
    part(link);
}

void muster_tcp_bundle_abandon(struct tcp_path *path)
{
    struct muster_bundle *frames = &path->link->bundle->frames;
    drop_rest(path);
    muster_bundle_abandon(frames, path->place);
    frames->acknowledgement_due = true; /* the last one may have been lost with it */
    muster_link_mark(path->link->link);
}

void muster_tcp_bundle_withdraw(struct tcp_link *link, const struct muster_operation_id *operation)
{
    const struct muster_bundle *frames = &link->bundle->frames;
    for (uint64_t number = frames->first_out; number != frames->next_out; number++) {
        struct tcp_parcel *parcel = parcel_of(link->bundle, number);
        const struct muster_transfer *transfer = parcel->frame.transfer;
        if (transfer != NULL && muster_operation_has(operation, &transfer->key)) {
            /* The peer needs the frame to go on with the next number. */
            parcel->frame.transfer = NULL;
        }
    }
}

/* Receiving ---------------------------------------------------------------------------------- */

/* The peer has all before this number. */
static muster_status acknowledged(struct tcp_link *link, uint64_t number)
{
    struct muster_bundle *frames = &link->bundle->frames;
    uint64_t oldest = 0;
    if (!muster_bundle_acknowledge_before(frames, number)) {
        return muster_error_set(MUSTER_INVALID, "an acknowledgement of what was not sent");
    }
    while (muster_bundle_retire(frames, &oldest)) {
        finish_parcel(link, parcel_of(link->bundle, oldest));
    }
    muster_link_mark(link->link);
    return MUSTER_OK;
}

muster_status muster_tcp_bundle_begin(struct tcp_path *path)
{
    const unsigned char *envelope = path->header;
    struct muster_frame frame;
    uint64_t number = muster_bytes_get(envelope + AT_NUMBER, 8);
    if (muster_bytes_get(envelope + AT_CHECKSUM, 4) != crc32(0, envelope, AT_CHECKSUM)) {
        return muster_error_set(MUSTER_INVALID, "an envelope with a wrong checksum");
    }
    if (muster_bundle_judge(&path->link->bundle->frames, number) == MUSTER_BUNDLE_TOO_FAR) {
        return muster_error_set(MUSTER_INVALID, "more frames ahead than were agreed");
    }
    TRY(muster_frame_decode(path->header + TCP_ENVELOPE_SIZE, &frame));
    if (frame.length > MUSTER_PIECE_BYTES || (number == 0 && frame.length > 0)) {
        return muster_error_set(MUSTER_INVALID, "a frame of %u bytes", frame.length);
    }
    TRY(acknowledged(path->link, muster_bytes_get(envelope + AT_ACKNOWLEDGED, 8)));
    if (number == 0) {
        return MUSTER_OK;
    }
    struct tcp_held *held = malloc(sizeof *held + frame.length);
    if (held == NULL) {
        return muster_error_set(MUSTER_INVALID, "out of memory for a frame");
    }
    held->number = number;
    held->frame = frame;
    held->have = 0;
    path->coming = held;
    return MUSTER_OK;
}

static muster_status hand_over(struct tcp_link *link, const struct tcp_held *held)
{
    struct muster_arrival arrival = {.piece = link->tcp->piece};
    muster_status status =
        muster_whole_frame_consume(&link->match, &arrival, &held->frame, held->payload);
    if (status == MUSTER_OK) {
        status = muster_whole_frame_complete(&link->match, &arrival);
    }
    muster_arrival_finish(&arrival);
    return status;
}

muster_status muster_tcp_bundle_end(struct tcp_path *path)
{
    struct tcp_bundle *bundle = path->link->bundle;
    struct tcp_held *held = TAKE(path->coming);
    if (muster_bundle_arrive(&bundle->frames, held->number) != MUSTER_BUNDLE_NEW) {
        muster_link_mark(path->link->link); /* to acknowledge it */
        free(held);
        return MUSTER_OK;
    }
    bundle->held[muster_bundle_index(held->number)] = held;
    while (muster_bundle_has_next(&bundle->frames)) {
        held = TAKE(bundle->held[muster_bundle_index(bundle->frames.next_in)]);
        muster_bundle_deliver(&bundle->frames, held->frame.length);
        muster_status status = hand_over(path->link, held);
        free(held);
        if (status != MUSTER_OK) {
            return status;
        }
        if (path->pending.watch.retired) {
            return MUSTER_OK;
        }
        muster_link_mark(path->link->link);
        muster_fabric_yield(path->tcp->pending_list.fabric);
        if (path->pending.watch.retired) {
            return MUSTER_OK;
        }
    }
    return MUSTER_OK;
}
