/* A link of several TCP connections: copies, envelopes and bytes of its frames. wire/bundle.h
 * decides which connection sends which frame. */
#include "worker/fabric/tcp/tcp_bundle.h"

#include "worker/base/bytes.h"
#include "worker/fabric/tcp/tcp.h"
#include "worker/fabric/wire/frame.h"
#include "worker/fabric/wire/whole_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <zlib.h>

enum {
    BATCH_MAX = 16, /* frames sent by one system call */
    BATCH_BYTES = 2 * MUSTER_PIECE_BYTES,
    CALLS_MAX = 4, /* system calls for each connection before other links have their turn */
    /* Offsets in the envelope. */
    AT_NUMBER = 0,       /* 8 bytes; 0: only an acknowledgement */
    AT_ACKNOWLEDGED = 8, /* 8 bytes: the sender has received all frames before this number */
    AT_CHECKSUM = 16,    /* 4 bytes: CRC-32 of the bytes before it */
    HEADER_SIZE = TCP_ENVELOPE_SIZE + MUSTER_FRAME_SIZE,
};

static const struct muster_bundle_limits limits = {
    .first_number = 1,
    .window_bytes = TCP_WINDOW_BYTES,
    .ahead_max = MUSTER_BUNDLE_WINDOW,
};

struct muster_tcp_bundle *muster_tcp_bundle_create(void)
{
    struct muster_tcp_bundle *bundle = calloc(1, sizeof *bundle);
    if (bundle != NULL) {
        muster_bundle_init(&bundle->frames, &limits);
    }
    return bundle;
}

static struct muster_tcp_window_entry *entry_of(struct muster_tcp_bundle *bundle, uint64_t number)
{
    return &bundle->window[muster_bundle_index(number)];
}

void muster_tcp_bundle_destroy(struct muster_tcp_bundle *bundle)
{
    if (bundle == NULL) {
        return;
    }
    for (size_t i = 0; i < MUSTER_BUNDLE_WINDOW; i++) {
        free(bundle->window[i].copy);
        free(bundle->arrived[i]);
    }
    free(bundle);
}

/* Frames from the matching ------------------------------------------------------------------- */

static size_t entry_bytes(const struct muster_tcp_window_entry *entry)
{
    return HEADER_SIZE + (size_t)entry->frame.size;
}

/* Copies the payload, because the frame outlives its transfer. The transfer must not wait for an
 * acknowledgement: a peer that has all its messages may compute for long before it sends one. */
static bool keep_copy(struct muster_tcp_window_entry *entry)
{
    if (entry->frame.size > 0) {
        entry->copy = malloc(entry->frame.size);
        if (entry->copy == NULL) {
            return false;
        }
        muster_outgoing_copy(&entry->frame, entry->copy);
    }
    entry->frame.data = entry->copy;
    entry->frame.ranges = NULL;
    return true;
}

/* Adds the next frame to the window: control frames first. NULL: no frame, no room, or no memory.
 */
static struct muster_tcp_window_entry *add_next_frame(struct muster_tcp_link *end)
{
    struct muster_tcp_bundle *bundle = end->bundle;
    struct muster_match *match = &end->match;
    struct muster_tcp_window_entry *entry = entry_of(bundle, bundle->frames.next_out);
    if (!muster_bundle_has_room(&bundle->frames)) {
        return NULL;
    }
    memset(entry, 0, sizeof *entry);
    if (!muster_whole_frame_next_control(match, &entry->frame) &&
        !muster_match_next(match, &entry->frame)) {
        return NULL;
    }
    if (!keep_copy(entry)) {
        match->broken = true;
        muster_link_mark(end->link);
        return NULL;
    }
    entry->number = muster_bundle_add(&bundle->frames, entry->frame.size);
    return entry;
}

/* Sending ------------------------------------------------------------------------------------ */

/* The frames and bytes of one system call on one path. */
struct batch {
    struct muster_tcp_window_entry *entries[BATCH_MAX];
    uint32_t count;
    size_t bytes;
    struct iovec parts[3 * BATCH_MAX + 1];
    int part_count;
};

static void write_envelope(struct muster_tcp_bundle *bundle, uint64_t number,
                           unsigned char *envelope)
{
    uint64_t acknowledged = muster_bundle_acknowledgement(&bundle->frames);
    memset(envelope, 0, TCP_ENVELOPE_SIZE);
    muster_bytes_put(envelope + AT_NUMBER, number, 8);
    muster_bytes_put(envelope + AT_ACKNOWLEDGED, acknowledged, 8);
    muster_bytes_put(envelope + AT_CHECKSUM, crc32(0, envelope, AT_CHECKSUM), 4);
}

/* Adds the bytes to the batch except the first *skip; subtracts from *skip the number of bytes
 * skipped. */
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

static void add_parts(struct batch *batch, struct muster_tcp_window_entry *entry)
{
    size_t skip = entry->sent;
    batch->entries[batch->count++] = entry;
    add_part(batch, entry->envelope, TCP_ENVELOPE_SIZE, &skip);
    add_part(batch, entry->frame.header, MUSTER_FRAME_SIZE, &skip);
    add_part(batch, entry->frame.data, entry->frame.size, &skip);
}

/* Gives a waiting frame to this path. */
static void carry_entry(struct batch *batch, const struct muster_tcp_path *path,
                        struct muster_tcp_window_entry *entry)
{
    struct muster_tcp_bundle *bundle = path->end->bundle;
    muster_bundle_carry(&bundle->frames, entry->number, path->place);
    entry->sent = 0;
    write_envelope(bundle, entry->number, entry->envelope);
    add_parts(batch, entry);
}

/* Queues an acknowledgement without a frame in path->control. */
static void queue_acknowledgement(struct muster_tcp_path *path)
{
    struct muster_tcp_link *end = path->end;
    unsigned char *bytes = muster_frame_queue_extend(&path->control, HEADER_SIZE);
    if (bytes == NULL) {
        end->match.broken = true;
        return;
    }
    const struct muster_frame empty = {.kind = MUSTER_FRAME_CREDIT};
    write_envelope(end->bundle, 0, bytes);
    muster_frame_encode(&empty, bytes + TCP_ENVELOPE_SIZE);
}

static bool has_room(const struct batch *batch)
{
    return batch->count < BATCH_MAX && batch->bytes < BATCH_BYTES;
}

/* Adds in this order: the rest of a partly sent frame, because the stream must continue with it;
 * queued acknowledgements; frames that wait for a path, lowest number first, since the peer needs
 * them first; new frames. Every envelope acknowledges, so an acknowledgement of its own is added
 * only if there is nothing else. */
static void fill_batch(struct batch *batch, struct muster_tcp_path *path)
{
    struct muster_tcp_bundle *bundle = path->end->bundle;
    struct muster_tcp_window_entry *entry = NULL;
    uint64_t number = 0;
    size_t skip_none = 0;
    if (path->partial != NULL) {
        add_parts(batch, path->partial);
    }
    add_part(batch, path->control.bytes + path->control.start,
             path->control.end - path->control.start, &skip_none);
    while (has_room(batch) && (number = muster_bundle_next_waiting(&bundle->frames, number)) !=
                                  bundle->frames.next_out) {
        carry_entry(batch, path, entry_of(bundle, number));
    }
    while (has_room(batch) && (entry = add_next_frame(path->end)) != NULL) {
        carry_entry(batch, path, entry);
    }
    if (batch->part_count == 0 && bundle->frames.acknowledgement_due) {
        queue_acknowledgement(path);
        add_part(batch, path->control.bytes + path->control.start,
                 path->control.end - path->control.start, &skip_none);
    }
}

static void complete_transfer(struct muster_tcp_link *end, struct muster_tcp_window_entry *entry)
{
    const struct muster_outgoing frame = entry->frame;
    entry->frame.transfer = NULL;
    muster_match_sent(&end->match, &frame);
}

/* Whether the kernel has accepted all bytes of the frame, also those that TLS has made of it. */
static bool is_sent(const struct muster_tcp_link *end, uint64_t number)
{
    const struct muster_tcp_window_entry *entry = entry_of(end->bundle, number);
    uint32_t place = muster_bundle_carrier(&end->bundle->frames, number);
    return place != MUSTER_BUNDLE_NO_PATH && entry->sent == entry_bytes(entry) &&
           !muster_tls_has_backlog(end->paths[place]->tls);
}

/* A transfer completes when its frames and all frames before them are sent: the peer cannot deliver
 * them earlier, and after its transfers this member may compute for long without sending the rest.
 */
static void complete_transfers(struct muster_tcp_link *end)
{
    const struct muster_bundle *frames = &end->bundle->frames;
    for (uint64_t number = frames->first_out; number != frames->next_out && is_sent(end, number);
         number++) {
        complete_transfer(end, entry_of(end->bundle, number));
    }
}

/* A partly sent frame has been acknowledged, since it arrived by another path. Its rest is still
 * sent, or the peer could not find the next frame in the stream. The rest moves to the path, so
 * that the frame can leave the window. */
static void leave_acknowledged_rest(struct muster_tcp_link *end,
                                    struct muster_tcp_window_entry *entry)
{
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        struct muster_tcp_path *path = end->paths[i];
        if (path != NULL && path->partial == entry) {
            path->acknowledged_rest = *entry;
            path->acknowledged_rest.frame.transfer = NULL;
            path->partial = &path->acknowledged_rest;
            entry->copy = NULL;
            return;
        }
    }
}

/* The frame is acknowledged and out of the window. */
static void retire_entry(struct muster_tcp_link *end, struct muster_tcp_window_entry *entry)
{
    if (entry->sent > 0 && entry->sent < entry_bytes(entry)) {
        leave_acknowledged_rest(end, entry);
    }
    free(TAKE(entry->copy));
    complete_transfer(end, entry);
}

static void drop_partial(struct muster_tcp_path *path)
{
    if (path->partial == &path->acknowledged_rest) {
        free(TAKE(path->acknowledged_rest.copy));
    }
    path->partial = NULL;
}

static size_t advance_entry(struct muster_tcp_window_entry *entry, size_t bytes)
{
    size_t left = entry_bytes(entry) - entry->sent;
    size_t taken = bytes < left ? bytes : left;
    entry->sent += taken;
    return bytes - taken;
}

/* The kernel has accepted `bytes` bytes of the batch. Frames of which nothing was accepted wait
 * again, for any path. */
static void advance_batch(struct batch *batch, struct muster_tcp_path *path, size_t bytes)
{
    struct muster_tcp_link *end = path->end;
    uint32_t first = 0;
    if (path->partial != NULL) {
        bytes = advance_entry(path->partial, bytes);
        if (path->partial->sent == entry_bytes(path->partial)) {
            drop_partial(path);
        }
        first = 1;
    }
    size_t control = path->control.end - path->control.start;
    control = bytes < control ? bytes : control;
    path->control.start += control;
    bytes -= control;
    for (uint32_t i = first; i < batch->count; i++) {
        struct muster_tcp_window_entry *entry = batch->entries[i];
        bytes = advance_entry(entry, bytes);
        if (entry->sent == 0) {
            muster_bundle_put_back(&end->bundle->frames, entry->number);
        } else if (entry->sent < entry_bytes(entry)) {
            path->partial = entry;
        }
    }
    complete_transfers(end);
}

enum outcome {
    SENT_ALL,
    SENT_PARTLY, /* the path waits for room in the socket */
    SENT_NOTHING,
    SENT_PATH_GONE, /* the path is closed, and perhaps the link */
};

/* Sends one batch on the path, without the lock. Accepted bytes are recorded before a failure
 * abandons the path, so that each frame of the batch is then either waiting or carried by a path.
 */
static enum outcome send_batch(struct muster_tcp_path *path)
{
    struct muster_fabric *fabric = path->tcp->pending_list.fabric;
    struct batch batch = {.count = 0};
    muster_fabric_yield(fabric);
    if (path->pending.watch.retired) {
        return SENT_PATH_GONE;
    }
    fill_batch(&batch, path);
    if (batch.part_count == 0 && !muster_tls_has_backlog(path->tls)) {
        return SENT_NOTHING;
    }
    muster_fabric_unlock(fabric);
    ssize_t sent = muster_tcp_path_send(path, batch.parts, batch.part_count);
    int error = errno;
    muster_fabric_lock(fabric);
    advance_batch(&batch, path, sent > 0 ? (size_t)sent : 0);
    if (sent < 0 && error != EAGAIN && error != EINTR) {
        path->send_failed = true; /* reading will report how it ended */
        muster_tcp_bundle_abandon(path);
        muster_tcp_path_watch(path, false);
        return SENT_PARTLY;
    }
    bool all = sent >= 0 && (size_t)sent == batch.bytes && !muster_tls_has_backlog(path->tls);
    muster_tcp_path_watch(path, !all);
    return all ? SENT_ALL : SENT_PARTLY;
}

/* The next path in turn that is ready to send; NULL if none is. */
static struct muster_tcp_path *choose_path(struct muster_tcp_link *end)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        const struct muster_tcp_path *path = end->paths[i];
        bool can_send =
            path != NULL && !path->send_failed && (path->pending.watch.events & EPOLLOUT) == 0;
        ready |= (uint32_t)can_send << i;
    }
    uint32_t place = muster_bundle_choose(&end->bundle->frames, ready);
    return place != MUSTER_BUNDLE_NO_PATH ? end->paths[place] : NULL;
}

static bool all_is_sent(const struct muster_tcp_link *end)
{
    const struct muster_bundle *frames = &end->bundle->frames;
    for (uint64_t number = frames->first_out; number != frames->next_out; number++) {
        if (!is_sent(end, number)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        if (end->paths[i] != NULL && end->paths[i]->partial != NULL) {
            return false;
        }
    }
    return end->match.control.start == end->match.control.end;
}

static void send_end_of_stream(struct muster_tcp_link *end)
{
    if (end->goodbye_queued && !end->goodbye_sent && all_is_sent(end)) {
        end->goodbye_sent = true;
        for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
            if (end->paths[i] != NULL) {
                muster_tcp_path_shutdown(end->paths[i]);
            }
        }
    }
}

/* Sends one batch on each path in turn, until no path has anything to send. A path
 * that has nothing to send does not end the loop: another one may have the rest of a frame. */
void muster_tcp_bundle_flush(struct muster_tcp_link *end)
{
    uint32_t calls = 0;
    uint32_t idle = 0; /* paths in a row that had nothing to send */
    struct muster_tcp_path *path = NULL;
    while (idle < end->path_count && (path = choose_path(end)) != NULL) {
        enum outcome outcome = send_batch(path);
        if (outcome == SENT_PATH_GONE) {
            return;
        }
        if (outcome == SENT_NOTHING) {
            idle++;
            continue;
        }
        idle = 0;
        if (++calls == CALLS_MAX * end->path_count) {
            muster_link_mark(end->link);
            return;
        }
    }
    send_end_of_stream(end);
}

void muster_tcp_bundle_abandon(struct muster_tcp_path *path)
{
    struct muster_bundle *frames = &path->end->bundle->frames;
    drop_partial(path);
    muster_bundle_abandon(frames, path->place);
    frames->acknowledgement_due = true; /* the last one may be lost with this path */
    muster_link_mark(path->end->link);
}

void muster_tcp_bundle_withdraw(struct muster_tcp_link *end,
                                const struct muster_operation_id *operation)
{
    const struct muster_bundle *frames = &end->bundle->frames;
    for (uint64_t number = frames->first_out; number != frames->next_out; number++) {
        struct muster_tcp_window_entry *entry = entry_of(end->bundle, number);
        const struct muster_transfer *transfer = entry->frame.transfer;
        if (transfer != NULL && muster_operation_has(operation, &transfer->key)) {
            /* The frame stays: the peer needs it to deliver the next number. */
            entry->frame.transfer = NULL;
        }
    }
}

/* Receiving ---------------------------------------------------------------------------------- */

/* The peer has received all frames before this number. */
static muster_status handle_acknowledgement(struct muster_tcp_link *end, uint64_t number)
{
    struct muster_bundle *frames = &end->bundle->frames;
    uint64_t oldest = 0;
    if (!muster_bundle_acknowledge_before(frames, number)) {
        return muster_error_set(MUSTER_INVALID, "an acknowledgement of a frame that was not sent");
    }
    while (muster_bundle_retire(frames, &oldest)) {
        retire_entry(end, entry_of(end->bundle, oldest));
    }
    muster_link_mark(end->link);
    return MUSTER_OK;
}

/* Checks everything before it applies the acknowledgement, which may complete transfers. */
muster_status muster_tcp_bundle_receive_header(struct muster_tcp_path *path)
{
    const unsigned char *envelope = path->header;
    struct muster_frame frame;
    uint64_t number = muster_bytes_get(envelope + AT_NUMBER, 8);
    if (muster_bytes_get(envelope + AT_CHECKSUM, 4) != crc32(0, envelope, AT_CHECKSUM)) {
        return muster_error_set(MUSTER_INVALID, "an envelope with a wrong checksum");
    }
    if (muster_bundle_classify(&path->end->bundle->frames, number) == MUSTER_BUNDLE_TOO_FAR) {
        return muster_error_set(MUSTER_INVALID, "a frame too far ahead of the missing one");
    }
    TRY(muster_frame_decode(path->header + TCP_ENVELOPE_SIZE, &frame));
    if (frame.length > MUSTER_PIECE_BYTES || (number == 0 && frame.length > 0)) {
        return muster_error_set(MUSTER_INVALID, "a frame of %u bytes", frame.length);
    }
    TRY(handle_acknowledgement(path->end, muster_bytes_get(envelope + AT_ACKNOWLEDGED, 8)));
    if (number == 0) {
        return MUSTER_OK;
    }
    struct muster_tcp_arrived_frame *arrived = malloc(sizeof *arrived + frame.length);
    if (arrived == NULL) {
        return muster_error_set(MUSTER_INVALID, "out of memory for a frame");
    }
    arrived->number = number;
    arrived->frame = frame;
    arrived->have = 0;
    path->arriving = arrived;
    return MUSTER_OK;
}

static muster_status deliver_frame(struct muster_tcp_link *end,
                                   const struct muster_tcp_arrived_frame *arrived)
{
    struct muster_arrival arrival = {.piece = end->tcp->piece};
    muster_status status =
        muster_whole_frame_consume(&end->match, &arrival, &arrived->frame, arrived->payload);
    if (status == MUSTER_OK) {
        status = muster_whole_frame_complete(&end->match, &arrival);
    }
    muster_arrival_finish(&arrival);
    return status;
}

/* Delivering a frame releases the lock, and meanwhile the link may be closed. So the path is
 * checked after each frame. */
muster_status muster_tcp_bundle_receive_frame(struct muster_tcp_path *path)
{
    struct muster_tcp_bundle *bundle = path->end->bundle;
    struct muster_tcp_arrived_frame *arrived = TAKE(path->arriving);
    if (muster_bundle_arrive(&bundle->frames, arrived->number) != MUSTER_BUNDLE_NEW) {
        muster_link_mark(path->end->link); /* to send an acknowledgement */
        free(arrived);
        return MUSTER_OK;
    }
    bundle->arrived[muster_bundle_index(arrived->number)] = arrived;
    while (muster_bundle_has_next(&bundle->frames)) {
        arrived = TAKE(bundle->arrived[muster_bundle_index(bundle->frames.next_in)]);
        muster_bundle_deliver(&bundle->frames, arrived->frame.length);
        muster_status status = deliver_frame(path->end, arrived);
        free(arrived);
        if (status != MUSTER_OK) {
            return status;
        }
        if (path->pending.watch.retired) {
            return MUSTER_OK;
        }
        muster_link_mark(path->end->link);
        muster_fabric_yield(path->tcp->pending_list.fabric);
        if (path->pending.watch.retired) {
            return MUSTER_OK;
        }
    }
    return MUSTER_OK;
}
