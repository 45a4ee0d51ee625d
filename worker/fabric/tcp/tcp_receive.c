/* Receives bytes: payloads straight to where they belong, what follows them into the staging
 * buffer, which is emptied before anything else is read. */
#include "worker/fabric/tcp/tcp.h"
#include "worker/fabric/wire/whole_frames.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

enum {
    READS_MAX = 8,  /* system calls before other links have their turn */
    PARTS_MAX = 64, /* of a payload that is read into ranges by one system call */
};

static void reject_peer(struct muster_tcp_path *path)
{
    muster_whole_frame_reject(path->end->link, path->end->goodbye_queued);
}

static bool is_bundled(const struct muster_tcp_path *path)
{
    return path->end->bundle != NULL;
}

static void complete_frame(struct muster_tcp_path *path)
{
    path->in_payload = false;
    if (is_bundled(path)) {
        if (muster_tcp_bundle_receive_frame(path) != MUSTER_OK && !path->pending.watch.retired) {
            reject_peer(path);
        }
    } else if (muster_whole_frame_complete(&path->end->match, &path->in) != MUSTER_OK) {
        reject_peer(path);
    }
}

static void begin_bundle_frame(struct muster_tcp_path *path)
{
    if (muster_tcp_bundle_receive_header(path) != MUSTER_OK) {
        reject_peer(path);
        return;
    }
    path->in_payload = path->arriving != NULL;
    if (path->in_payload && path->arriving->frame.length == 0) {
        complete_frame(path);
    }
}

static void begin_frame(struct muster_tcp_path *path)
{
    struct muster_frame frame;
    path->have = 0;
    if (is_bundled(path)) {
        begin_bundle_frame(path);
        return;
    }
    if (muster_frame_decode(path->header, &frame) != MUSTER_OK ||
        muster_match_header(&path->end->match, &frame, &path->in) != MUSTER_OK) {
        reject_peer(path);
        return;
    }
    path->in_payload = true;
    if (path->in.remaining == 0) {
        complete_frame(path);
    }
}

static size_t receive_header(struct muster_tcp_path *path, const unsigned char *bytes, size_t size)
{
    size_t whole = MUSTER_FRAME_SIZE + (is_bundled(path) ? (size_t)TCP_ENVELOPE_SIZE : 0);
    size_t missing = whole - path->have;
    size_t taken = size < missing ? size : missing;
    memcpy(path->header + path->have, bytes, taken);
    path->have += (uint32_t)taken;
    if (path->have == whole) {
        begin_frame(path);
    }
    return taken;
}

/* Where to read the next bytes of the payload to, and how many at most. */
static unsigned char *payload_buffer(struct muster_tcp_path *path, uint32_t *ret_room)
{
    struct muster_tcp_arrived_frame *held = path->arriving;
    if (held == NULL) {
        return muster_arrival_buffer(&path->in, ret_room);
    }
    *ret_room = held->frame.length - held->have;
    return held->payload + held->have;
}

/* The same in parts; returns their number, and how many bytes they hold together. */
static int payload_parts(struct muster_tcp_path *path, struct iovec parts[PARTS_MAX],
                         uint32_t *ret_room)
{
    if (path->arriving == NULL) {
        return muster_arrival_parts(&path->in, parts, PARTS_MAX, ret_room);
    }
    parts[0].iov_base = payload_buffer(path, ret_room);
    parts[0].iov_len = *ret_room;
    return 1;
}

/* `size` bytes of the payload have been written to where these say. */
static void payload_received(struct muster_tcp_path *path, uint32_t size)
{
    if (path->arriving != NULL) {
        path->arriving->have += size;
        if (path->arriving->have == path->arriving->frame.length) {
            complete_frame(path);
        }
        return;
    }
    muster_arrival_filled(&path->end->match, &path->in, size);
    if (!path->pending.watch.retired && path->in.remaining == 0) {
        complete_frame(path);
    }
}

static void receive_staged(struct muster_tcp_path *path, const unsigned char *bytes, size_t size)
{
    while (size > 0 && !path->pending.watch.retired) {
        if (!path->in_payload) {
            size_t taken = receive_header(path, bytes, size);
            bytes += taken;
            size -= taken;
            continue;
        }
        uint32_t room = 0;
        unsigned char *to = payload_buffer(path, &room);
        uint32_t taken = size < room ? (uint32_t)size : room;
        memcpy(to, bytes, taken);
        bytes += taken;
        size -= taken;
        payload_received(path, taken);
    }
}

/* Reads once from the socket, or from what TLS has buffered. True: there may be more. Sets *any if
 * there was anything, or the connection has ended. */
static bool receive_once(struct muster_tcp_path *path, bool buffered_only, bool *any)
{
    struct muster_tcp *tcp = path->tcp;
    struct iovec parts[PARTS_MAX + 1];
    muster_fabric_yield(tcp->pending_list.fabric);
    if (path->pending.watch.retired) {
        return false;
    }
    uint32_t room = 0;
    int count = 0;
    if (path->in_payload) {
        count = payload_parts(path, parts, &room);
    }
    parts[count].iov_base = tcp->staging;
    /* If the buffer is smaller than the payload, the staged bytes begin with more payload. */
    size_t staged = path->in_payload ? TCP_TAIL_BYTES : TCP_STAGING_BYTES;
    parts[count++].iov_len = staged;
    muster_fabric_unlock(tcp->pending_list.fabric);
    ssize_t got = muster_tcp_path_receive(path, parts, count, buffered_only);
    int error = errno;
    muster_fabric_lock(tcp->pending_list.fabric);
    if (got < 0 && (error == EAGAIN || error == EINTR)) {
        return false;
    }
    *any = true;
    if (got <= 0) {
        muster_tcp_path_lost(path, got < 0 ? muster_tcp_path_error(path, error)
                                           : "it closed the connection without goodbye");
        return false;
    }
    size_t bytes = (size_t)got;
    size_t placed = bytes < room ? bytes : room;
    if (placed > 0) {
        payload_received(path, (uint32_t)placed);
    }
    receive_staged(path, tcp->staging, bytes - placed);
    return !path->pending.watch.retired &&
           (bytes == room + staged || muster_tls_has_buffered(path->tls));
}

bool muster_tcp_receive(struct muster_tcp_path *path)
{
    bool more = true;
    bool any = false;
    for (int i = 0; i < READS_MAX && more; i++) {
        more = receive_once(path, false, &any);
    }
    while (more &&
           muster_tls_has_buffered(path->tls)) { /* epoll reports only what is in the socket */
        more = receive_once(path, true, &any);
    }
    return any;
}

bool muster_tcp_receive_buffered(struct muster_tcp_link *end)
{
    struct muster_link *link = end->link;
    bool any = false;
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        while (end->paths[i] != NULL && muster_tls_has_buffered(end->paths[i]->tls)) {
            (void)receive_once(end->paths[i], true, &any);
            if (link->end != end) {
                return false;
            }
        }
    }
    return true;
}
