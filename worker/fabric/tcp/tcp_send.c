/* Sends the frames of a single connection: many in one system call, straight from the transfers'
 * memory. */
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    CALL_BYTES = 512 * 1024, /* no frame is added to a system call beyond this */
    CALLS_MAX = 4,           /* system calls before other links have their turn */
    PARTS_MAX = 128,         /* of a system call: frames of ranges have many */
    SMALL_BYTES = 2048, /* with header, sent with the lock, since to hand that over takes longer */
};

static size_t frame_bytes(const struct muster_tcp_sent_frame *out)
{
    return MUSTER_FRAME_SIZE + out->frame.size;
}

static void fill_frames(struct muster_tcp_path *path)
{
    size_t bytes = 0;
    for (uint32_t i = path->accepted_count; i < path->frame_count; i++) {
        bytes += frame_bytes(&path->frames[i]);
    }
    while (path->frame_count < TCP_FRAMES_MAX && bytes < CALL_BYTES) {
        struct muster_tcp_sent_frame *out = &path->frames[path->frame_count];
        if (!muster_match_next(&path->end->match, &out->frame)) {
            return;
        }
        out->sent = 0;
        out->copy = NULL;
        path->frame_count++;
        bytes += frame_bytes(out);
    }
}

static void add_part(struct iovec *parts, int *count, unsigned char *bytes, size_t size)
{
    if (size > 0) {
        parts[*count].iov_base = bytes;
        parts[*count].iov_len = size;
        (*count)++;
    }
}

/* False: there was no room for all of the frame. There is room for one part. */
static bool add_frame_parts(struct iovec *parts, int *count, struct muster_tcp_sent_frame *out)
{
    size_t header = out->sent < MUSTER_FRAME_SIZE ? out->sent : MUSTER_FRAME_SIZE;
    size_t data = out->sent - header;
    add_part(parts, count, out->frame.header + header, MUSTER_FRAME_SIZE - header);
    size_t left = out->frame.size - data;
    return muster_place_add_parts(muster_outgoing_place(&out->frame, data), left, parts, PARTS_MAX,
                                  count) == left;
}

static bool has_partial(const struct muster_tcp_path *path)
{
    return path->accepted_count < path->frame_count && path->frames[path->accepted_count].sent > 0;
}

/* In this order: the rest of a partly sent frame, since frames must not be interleaved; control
 * frames; the other frames. */
static int collect_parts(struct muster_tcp_path *path, struct iovec *parts)
{
    int count = 0;
    uint32_t next = path->accepted_count;
    if (has_partial(path) && !add_frame_parts(parts, &count, &path->frames[next++])) {
        return count;
    }
    if (count == PARTS_MAX) {
        return count;
    }
    add_part(parts, &count, path->control.bytes + path->control.start,
             path->control.end - path->control.start);
    bool fits = true;
    for (; next < path->frame_count && fits && count < PARTS_MAX; next++) {
        fits = add_frame_parts(parts, &count, &path->frames[next]);
    }
    return count;
}

static void remove_frame(struct muster_tcp_path *path, uint32_t index)
{
    free(path->frames[index].copy);
    path->frame_count--;
    memmove(&path->frames[index], &path->frames[index + 1],
            (path->frame_count - index) * sizeof path->frames[0]);
}

/* Counts accepted bytes for the first frame that is not wholly accepted; returns how many are left
 * for the next frames. */
static size_t advance_frame(struct muster_tcp_path *path, size_t bytes)
{
    struct muster_tcp_sent_frame *out = &path->frames[path->accepted_count];
    size_t left = frame_bytes(out) - out->sent;
    size_t taken = bytes < left ? bytes : left;
    out->sent += taken;
    path->accepted_count += taken == left;
    return bytes - taken;
}

/* A transfer completes when the kernel has accepted its bytes. Encrypted bytes that still wait in
 * the TLS channel do not count: nothing would send them while the caller computes. */
static void complete_accepted(struct muster_tcp_path *path)
{
    while (path->accepted_count > 0 && !muster_tls_has_backlog(path->tls)) {
        struct muster_outgoing frame = path->frames[0].frame;
        path->accepted_count--;
        remove_frame(path, 0);
        muster_match_sent(&path->end->match, &frame);
    }
}

static void advance_frames(struct muster_tcp_path *path, size_t bytes)
{
    if (has_partial(path)) {
        bytes = advance_frame(path, bytes);
    }
    size_t control = path->control.end - path->control.start;
    control = bytes < control ? bytes : control;
    path->control.start += control;
    bytes -= control;
    while (bytes > 0) {
        bytes = advance_frame(path, bytes);
    }
    complete_accepted(path);
}

/* Control frames may be queued while the path writes others without the lock. So the path writes
 * from a queue of its own; when that is empty, it is exchanged for the matching's queue. */
static void swap_control(struct muster_tcp_path *path)
{
    if (path->control.start == path->control.end) {
        struct muster_frame_queue empty = path->control;
        empty.start = 0;
        empty.end = 0;
        path->control = path->end->match.control;
        path->end->match.control = empty;
    }
}

static void send_end_of_stream(struct muster_tcp_path *path)
{
    muster_tcp_path_watch(path, false);
    struct muster_tcp_link *end = path->end;
    if (end->goodbye_queued && !end->goodbye_sent) {
        end->goodbye_sent = true;
        muster_tcp_path_shutdown(path);
    }
}

static bool has_control(const struct muster_tcp_path *path)
{
    return path->end->match.control.start != path->end->match.control.end ||
           path->control.start != path->control.end;
}

/* Sends one batch. True: all of it is sent, and there may be more. */
static bool flush_once(struct muster_tcp_path *path)
{
    struct iovec parts[PARTS_MAX];
    muster_fabric_yield(path->tcp->pending_list.fabric);
    if (path->pending.watch.retired) {
        return false;
    }
    swap_control(path);
    fill_frames(path);
    int count = collect_parts(path, parts);
    if (count == 0 && !muster_tls_has_backlog(path->tls)) {
        send_end_of_stream(path);
        return false;
    }
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        total += parts[i].iov_len;
    }
    struct muster_fabric *fabric = path->tcp->pending_list.fabric;
    muster_fabric_unlock(fabric);
    ssize_t sent = muster_tcp_path_send(path, parts, count);
    int error = errno;
    muster_fabric_lock(fabric);
    if (sent < 0 && error != EAGAIN && error != EINTR) {
        path->send_failed = true; /* reading reports whether the peer left or died */
        muster_tcp_path_watch(path, false);
        return false;
    }
    if (sent >= 0) {
        advance_frames(path, (size_t)sent);
    }
    bool all = sent >= 0 && (size_t)sent == total && !muster_tls_has_backlog(path->tls);
    muster_tcp_path_watch(path, !all);
    return all;
}

static bool is_small(const struct muster_tcp_path *path)
{
    const struct muster_transfer *transfer = path->end->match.ready.first;
    return path->tls == NULL && path->end->match.ready.count == 1 && path->frame_count == 0 &&
           !has_control(path) && transfer->ranges == NULL &&
           transfer->size_bytes <= SMALL_BYTES - MUSTER_FRAME_SIZE;
}

/* A single small frame, where nothing else is to be sent: header and payload in one piece, without
 * lists. False: there is more, for flush_once(). */
static bool flush_small(struct muster_tcp_path *path)
{
    struct muster_match *match = &path->end->match;
    unsigned char bytes[SMALL_BYTES];
    struct muster_tcp_sent_frame *out = &path->frames[0];
    if (!is_small(path)) {
        return false;
    }
    (void)muster_match_next(match, &out->frame);
    size_t total = frame_bytes(out);
    memcpy(bytes, out->frame.header, MUSTER_FRAME_SIZE);
    if (out->frame.size > 0) {
        memcpy(bytes + MUSTER_FRAME_SIZE, out->frame.data, out->frame.size);
    }
    ssize_t sent = send(path->pending.watch.fd, bytes, total, MSG_NOSIGNAL);
    if (sent != (ssize_t)total) {
        out->sent = sent > 0 ? (size_t)sent : 0;
        out->copy = NULL;
        path->frame_count = 1;
        return false; /* an error comes again */
    }
    muster_match_sent(match, &out->frame);
    return match->ready.first == NULL && !has_control(path);
}

void muster_tcp_flush(struct muster_tcp_path *path)
{
    muster_fabric_yield(path->tcp->pending_list.fabric);
    if (path->send_failed || path->pending.watch.retired || flush_small(path)) {
        return;
    }
    int calls = 0;
    while (flush_once(path)) {
        if (++calls == CALLS_MAX) {
            muster_link_mark(path->end->link);
            return;
        }
    }
}

/* Removes the operation's frames from the path, last first. A frame of which nothing was sent is
 * dropped. The rest of a partly sent frame is sent from a copy. An accepted frame only forgets its
 * transfer. */
void muster_tcp_send_withdraw(struct muster_tcp_path *path,
                              const struct muster_operation_id *operation)
{
    for (uint32_t i = path->frame_count; i > 0; i--) {
        struct muster_tcp_sent_frame *out = &path->frames[i - 1];
        const struct muster_transfer *transfer = out->frame.transfer;
        if (transfer == NULL || !muster_operation_has(operation, &transfer->key)) {
            continue;
        }
        if (i <= path->accepted_count) {
            out->frame.transfer = NULL; /* its memory is not needed any more */
            continue;
        }
        if (out->sent == 0) {
            muster_match_unsent(&path->end->match, &out->frame);
            remove_frame(path, i - 1);
            continue;
        }
        /* Partly sent: the peer needs the rest to find the next frame; it is sent from a copy. */
        out->copy = malloc(out->frame.size + 1);
        if (out->copy == NULL) {
            path->end->match.broken = true;
            path->send_failed = true;
        } else {
            muster_outgoing_copy(&out->frame, out->copy);
        }
        out->frame.data = out->copy;
        out->frame.ranges = NULL;
        out->frame.transfer = NULL;
    }
}
