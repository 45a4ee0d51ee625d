/*
 * A toy: links between members of one host over stream sockets of the abstract name space. It shows
 * what a transport has to do itself, and is as short as it can be: a frame is copied before it is
 * sent, and its header and its payload are received by a system call each.
 */
#include "worker/base/cleanup.h"
#include "worker/base/fork_guard.h"
#include "worker/base/random.h"
#include "worker/fabric/wire/common_link_operations.h"
#include "worker/fabric/wire/whole_frames.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { READS_MAX = 16 }; /* at a time, then other links are polled */

/* The fabric's object. */
struct toy {
    struct muster_pending_connections pending_list; /* first */
    unsigned char *piece;
};

/* One connection. */
struct toy_path {
    struct muster_pending_connection pending; /* first */
    struct toy_end *end;                      /* NULL until it is known */
    unsigned char in[MUSTER_HELLO_SIZE];      /* a hello, an answer or a header that comes in */
    uint32_t have;                            /* bytes of it */
    bool in_payload;
    struct muster_arrival arrival;
};

/* What link->end points to. */
struct toy_end {
    struct muster_dialler dialler; /* first */
    struct muster_match match;
    struct toy_path *path;         /* OPEN, or the one that this end has dialled; or NULL */
    struct muster_frame_queue out; /* the bytes that go next, */
    struct muster_outgoing frame;  /* and the frame that they are, if it has data */
    bool parting;                  /* goodbye is queued */
};

extern const struct muster_transport muster_unix_transport;

static bool is_open(const struct toy_end *end)
{
    return end->path != NULL && end->path->pending.phase == MUSTER_PHASE_OPEN;
}

static void close_path(struct muster_pending_connection *pending)
{
    struct toy_path *path = (struct toy_path *)pending;
    muster_pending_remove(pending);
    muster_arrival_finish(&path->arrival);
    if (path->end != NULL && path->end->path == path) {
        path->end->path = NULL;
    }
    path->end = NULL;
    muster_watch_retire(pending->pending_list->fabric, &pending->watch);
}

/* Sending ------------------------------------------------------------------------------------ */

static bool copy_out(struct toy_end *end, const void *bytes, size_t size)
{
    unsigned char *to = muster_frame_queue_extend(&end->out, size);
    end->match.broken = end->match.broken || to == NULL;
    if (to != NULL && size > 0) {
        memcpy(to, bytes, size);
    }
    return to != NULL;
}

static bool copy_payload(struct toy_end *end)
{
    unsigned char *to = muster_frame_queue_extend(&end->out, end->frame.size);
    end->match.broken = end->match.broken || to == NULL;
    if (to != NULL) {
        muster_outgoing_copy(&end->frame, to);
    }
    return to != NULL;
}

/* Frames without data go first. */
static bool next_bytes(struct toy_end *end)
{
    struct muster_frame_queue *control = &end->match.control;
    size_t size = control->end - control->start;
    if (size > 0) {
        control->start = control->end;
        return copy_out(end, control->bytes + control->end - size, size);
    }
    return muster_match_next(&end->match, &end->frame) &&
           copy_out(end, end->frame.header, MUSTER_FRAME_SIZE) && copy_payload(end);
}

/* Sends as much as the socket takes. Its errors are left to the receiving side, which gets them
 * too. */
static void flush(struct toy_end *end)
{
    struct muster_watch *watch = &end->path->pending.watch;
    ssize_t sent = 0;
    while (sent >= 0 && (end->out.start < end->out.end || next_bytes(end))) {
        size_t size = end->out.end - end->out.start;
        sent = send(watch->fd, end->out.bytes + end->out.start, size, MSG_NOSIGNAL);
        end->out.start += sent > 0 ? (size_t)sent : 0;
        if (end->out.start == end->out.end) {
            const struct muster_outgoing frame = end->frame;
            end->frame.transfer = NULL;
            muster_match_sent(&end->match, &frame);
        }
    }
    bool full = sent < 0 && errno == EAGAIN;
    muster_watch_change(end->match.link->fabric, watch,
                        full ? EPOLLIN | EPOLLOUT : (uint32_t)EPOLLIN);
}

/* Receiving ---------------------------------------------------------------------------------- */

static muster_status begin_frame(struct toy_path *path)
{
    struct muster_frame frame;
    path->have = 0;
    path->in_payload = true;
    TRY(muster_frame_decode(path->in, &frame));
    return muster_match_header(&path->end->match, &frame, &path->arrival);
}

static muster_status end_frame(struct toy_path *path)
{
    path->in_payload = false;
    return muster_whole_frame_complete(&path->end->match, &path->arrival);
}

/* `size` bytes of the header or the payload have been received. */
static muster_status arrived(struct toy_path *path, uint32_t size)
{
    if (path->in_payload) {
        muster_arrival_filled(&path->end->match, &path->arrival, size);
    } else if ((path->have += size) == MUSTER_FRAME_SIZE) {
        TRY(begin_frame(path));
    }
    return path->in_payload && path->arrival.remaining == 0 ? end_frame(path) : MUSTER_OK;
}

static void receive(struct toy_path *path)
{
    for (int i = 0; i < READS_MAX; i++) {
        muster_fabric_yield(path->pending.pending_list->fabric);
        if (path->pending.watch.retired) {
            return;
        }
        uint32_t room = MUSTER_FRAME_SIZE - path->have;
        unsigned char *to =
            path->in_payload ? muster_arrival_buffer(&path->arrival, &room) : path->in + path->have;
        struct muster_link *link = path->end->match.link;
        ssize_t got = recv(path->pending.watch.fd, to, room, 0);
        if (got < 0 && errno == EAGAIN) {
            return;
        }
        if (got <= 0) {
            muster_link_fail(link, path->end->parting ? MUSTER_LINK_PEER_LEFT : MUSTER_LINK_LOST,
                             got == 0 ? "it closed the connection without goodbye"
                                      : strerror(errno));
        } else if (arrived(path, (uint32_t)got) != MUSTER_OK && !path->pending.watch.retired) {
            muster_whole_frame_reject(link, path->end->parting);
        }
    }
}

/* Connections -------------------------------------------------------------------------------- */

static void free_path(struct muster_watch *watch)
{
    free(watch);
}

static struct toy_path *make_path(struct toy *toy, int fd, enum muster_phase phase)
{
    const struct muster_watch watch = {.fd = fd, .events = EPOLLIN, .free = free_path};
    struct toy_path *path = muster_pending_create(&toy->pending_list, sizeof *path, phase, &watch);
    if (path != NULL) {
        path->arrival.piece = toy->piece;
    }
    return path;
}

static void open_path(struct toy_path *path, struct toy_end *end)
{
    muster_pending_remove(&path->pending);
    path->have = 0;
    path->end = end;
    end->path = path;
    muster_link_opened(end->match.link);
}

/* A socket, connected to the name or listening at it; or -1. */
static int open_socket(const char *name, int (*begin)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    memcpy(address.sun_path + 1, name, strlen(name)); /* behind a 0: the abstract name space */
    AUTO_CLOSE_GUARDED int fd =
        MUSTER_GUARDED(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    bool begun = fd >= 0 && begin(fd, (const struct sockaddr *)&address, size) == 0 &&
                 (begin == connect || listen(fd, SOMAXCONN) == 0);
    return begun ? TAKE_FD(fd) : -1;
}

/* Nothing has been sent before, so the socket takes all bytes unless the connection is broken. */
static bool send_all(const struct toy_path *path, const unsigned char *bytes, size_t size)
{
    return send(path->pending.watch.fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static void dial(struct muster_dialler *dialler)
{
    struct toy_end *end = (struct toy_end *)dialler;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    const struct muster_hello hello = muster_hello_to(end->match.link);
    int fd = open_socket(end->match.link->peer.member, connect);
    end->path = fd < 0 ? NULL : make_path(end->match.link->transport, fd, MUSTER_PHASE_GREETING);
    if (end->path == NULL) {
        muster_link_try_next(end->match.link, strerror(errno));
        return;
    }
    end->path->end = end;
    muster_hello_encode(&hello, bytes);
    if (!send_all(end->path, bytes, sizeof bytes)) {
        muster_pending_handle_close(&end->path->pending, end->match.link);
    }
}

static bool answer(struct muster_pending_connection *pending, enum muster_verdict verdict)
{
    unsigned char bytes[MUSTER_ANSWER_SIZE];
    muster_answer_encode(verdict, bytes);
    return send_all((struct toy_path *)pending, bytes, sizeof bytes);
}

static void admit(struct muster_pending_connection *pending, struct muster_link *link)
{
    if (!muster_pending_claim_link(pending, link)) {
        return;
    }
    struct toy_end *end = link->end;
    if (end->path != NULL) {
        close_path(&end->path->pending);
    }
    if (answer(pending, MUSTER_WELCOME)) {
        open_path((struct toy_path *)pending, end);
    } else {
        muster_pending_answer_failed(pending, link);
    }
}

/* Returns as muster_pending_count_received() does. */
static int receive_greeting(struct toy_path *path, uint32_t size)
{
    ssize_t got = recv(path->pending.watch.fd, path->in + path->have, size - path->have, 0);
    return muster_pending_count_received(got, size, &path->have);
}

static void read_answer(struct toy_path *path)
{
    enum muster_verdict verdict;
    int got = receive_greeting(path, MUSTER_ANSWER_SIZE);
    if (got < 0) {
        muster_pending_handle_close(&path->pending, path->end->match.link);
    } else if (got > 0 && muster_answer_decode(path->in, &verdict) != MUSTER_OK) {
        muster_link_try_next(path->end->match.link, muster_last_error());
    } else if (got > 0 && verdict == MUSTER_WELCOME) {
        open_path(path, path->end);
    } else if (got > 0 && verdict != MUSTER_WAIT) {
        muster_pending_handle_refusal(&path->pending, path->end->match.link, verdict);
    } else if (got > 0) {
        path->have = 0; /* another answer follows */
    }
}

static void ready(struct muster_watch *watch, uint32_t events)
{
    struct toy_path *path = (struct toy_path *)watch;
    if (path->pending.phase == MUSTER_PHASE_GREETING) {
        read_answer(path);
    } else if (path->pending.phase == MUSTER_PHASE_OPEN) {
        if ((events & EPOLLOUT) != 0) {
            muster_link_mark(path->end->match.link);
        }
        receive(path);
    } else if (path->pending.phase == MUSTER_PHASE_PARKED ||
               receive_greeting(path, MUSTER_HELLO_SIZE) < 0) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_SILENT);
    } else if (path->have == MUSTER_HELLO_SIZE) {
        muster_pending_check_hello(&path->pending, path->in);
    }
}

static struct muster_pending_connection *
create_connection(struct muster_pending_connections *pending_list, int fd,
                  const struct muster_socket_address *remote)
{
    (void)remote;
    return (struct muster_pending_connection *)make_path((struct toy *)pending_list, fd,
                                                         MUSTER_PHASE_HELLO);
}

static bool is_dialling(const struct muster_link *link)
{
    const struct toy_end *end = link->end;
    return end->path != NULL && end->path->pending.phase == MUSTER_PHASE_GREETING;
}

static bool is_closed(const struct muster_link *link)
{
    return muster_pending_is_closed(&((const struct toy_end *)link->end)->path->pending);
}

/* Links -------------------------------------------------------------------------------------- */

static void init_end(struct muster_link *link)
{
    struct toy_end *end = link->end;
    end->dialler.match = &end->match;
    end->match.link = link;
}

static void withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                     struct muster_transfer_list *ret_sends)
{
    struct toy_end *end = link->end;
    const struct muster_transfer *sending = end->frame.transfer;
    if (sending != NULL && muster_operation_has(operation, &sending->key)) {
        end->frame.transfer = NULL; /* its bytes were copied, and go */
    }
    if (end->path != NULL) {
        muster_arrival_withdraw(&end->path->arrival, operation);
    }
    muster_match_withdraw(&end->match, operation, ret_sends);
}

static void progress(struct muster_link *link)
{
    struct toy_end *end = link->end;
    uint64_t opened = link->opened;
    if (!is_open(end) && link->state != MUSTER_LINK_PEER_LEFT) {
        return;
    }
    if (muster_match_progress(&end->match, ((struct toy *)link->transport)->piece) &&
        link->end == end && link->opened == opened && is_open(end)) {
        flush(end);
    }
}

static void send_goodbye(struct muster_link *link)
{
    struct toy_end *end = link->end;
    if (!end->parting) {
        end->parting = true;
        muster_match_goodbye(&end->match);
    }
}

/* The kernel delivers what it has taken, even if this process ends. */
static bool goodbye_done(const struct muster_link *link)
{
    const struct toy_end *end = link->end;
    return end->match.control.start == end->match.control.end && end->out.start == end->out.end;
}

static void peer_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct toy_end *end = link->end;
    close_path(&end->path->pending);
    end->frame.transfer = NULL;
    muster_match_peer_left(&end->match, ret_sends);
}

static void close_link(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct toy_end *end = link->end;
    const struct muster_frame_queue *control = &end->match.control;
    if (is_open(end) && end->parting && end->out.start == end->out.end) {
        (void)send_all(end->path, control->bytes + control->start, control->end - control->start);
    }
    if (end->path != NULL) {
        close_path(&end->path->pending);
    }
    free(end->out.bytes);
    muster_common_link_destroy(link, ret_sends);
}

/* The fabric's part -------------------------------------------------------------------------- */

static void free_toy(struct muster_pending_connections *pending_list)
{
    free(((struct toy *)pending_list)->piece);
    free(pending_list);
}

static muster_status start(struct muster_fabric *fabric, const void *settings, void **ret_transport)
{
    struct toy *toy = calloc(1, sizeof *toy);
    (void)settings;
    muster_pending_connections_init(&toy->pending_list, fabric, &muster_unix_transport);
    toy->piece = aligned_alloc(64, MUSTER_PIECE_BYTES);
    int fd = open_socket(fabric->member, bind);
    muster_status status = fd < 0 ? muster_error_errno(MUSTER_FATAL, "a socket")
                                  : muster_pending_connections_listen(&toy->pending_list, fd);
    if (status != MUSTER_OK) {
        muster_pending_connections_stop(&toy->pending_list);
        return status;
    }
    *ret_transport = toy;
    return MUSTER_OK;
}

static uint32_t addresses(const void *transport, uint32_t most,
                          char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    (void)most;
    (void)snprintf(ret_addresses[0], MUSTER_ADDRESS_SIZE, "unix://%s",
                   ((const struct toy *)transport)->pending_list.fabric->member);
    return 1;
}

const struct muster_transport muster_unix_transport = {
    .name = "unix",
    MUSTER_COMMON_LINK_OPERATIONS,
    .start = start,
    .stop = muster_common_link_stop,
    .addresses = addresses,
    .begin_generation = muster_common_link_begin_generation,
    .timers = muster_common_link_timers,
    .post_send = muster_common_link_post_send,
    .withdraw = withdraw,
    .progress = progress,
    .send_goodbye = send_goodbye,
    .goodbye_done = goodbye_done,
    .peer_left = peer_left,
    .close = close_link,
    .connection =
        {
            .elsewhere = MUSTER_REFUSED_CROSSED,
            .end_size_bytes = sizeof(struct toy_end),
            .init_end = init_end,
            .create = create_connection,
            .ready = ready,
            .answer = answer,
            .close = close_path,
            .is_dialling = is_dialling,
            .admit = admit,
            .dial = dial,
            .is_closed = is_closed,
            .free = free_toy,
        },
};
