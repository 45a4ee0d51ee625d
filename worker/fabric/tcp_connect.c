/* How connections begin: listening, dialling, hellos and verdicts. */
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/random.h"
#include "worker/fabric/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

/* Opening ------------------------------------------------------------------------------------ */

static void open_path(struct tcp_path *path, struct tcp_link *link)
{
    muster_half_leave(&path->half);
    path->have = 0;
    path->link = link;
    link->paths[link->path_count++] = path;
    muster_tcp_bound_sending(path->half.watch.fd);
    muster_tcp_path_watch(path, false);
    muster_link_mark(link->link); /* frames may have come with the hello or the answer */
}

/* The first connection of a link is there. */
static void open_link(struct tcp_path *path, struct tcp_link *link, uint32_t connections,
                      uint32_t ticket)
{
    open_path(path, link);
    link->path = path;
    link->dialler.redial_ns = MUSTER_NEVER;
    if (connections > 1) {
        link->bundle = muster_tcp_bundle_create(ticket);
        link->match.payload_max = MUSTER_PIECE_BYTES;
        link->match.broken = link->match.broken || link->bundle == NULL;
    }
    muster_link_opened(link->link);
}

/* One more connection of a bundle. */
static void widen_link(struct tcp_path *path, struct tcp_link *link)
{
    open_path(path, link);
    link->tcp->halves.fabric->figures.connections_opened++;
    muster_link_mark(link->link);
}

/* Reads up to `size` bytes of a hello or an answer. 1: all of it is there; 0: not yet; -1: errno is
 * set, 0 at the end of the stream. */
static int read_greeting(struct tcp_path *path, uint32_t size)
{
    struct iovec part = {.iov_base = path->header + path->have, .iov_len = size - path->have};
    ssize_t got = muster_tcp_path_receive(path, &part, 1, false);
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    if (got == 0) {
        errno = 0;
        return -1;
    }
    path->have += (uint32_t)got;
    return path->have == size;
}

/* Dialling ----------------------------------------------------------------------------------- */

static void lose(struct tcp_link *link, const char *what)
{
    muster_link_fail(link->link, MUSTER_LINK_LOST, what);
}

/* Returns 0, or an error number. */
static int call(struct tcp_link *link, const struct muster_socket_address *address, uint32_t index)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    if (connect(fd, (const struct sockaddr *)&address->storage, address->size) != 0 &&
        errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        return error;
    }
    struct tcp_path *path = muster_tcp_path_create(link->tcp, fd, MUSTER_PHASE_DIALLING, EPOLLOUT);
    if (path == NULL) {
        return ENOMEM;
    }
    path->remote = *address;
    path->link = link;
    path->index = index;
    path->half.deadline_ns = muster_clock_after_ms(TCP_DIAL_MS);
    if (index == 0) {
        link->path = path;
    }
    return 0;
}

/* Calls the next address that can be called; without one the link is lost, because of `error` with
 * the address before. */
static void call_next(struct tcp_link *link, int error)
{
    const struct muster_peer *peer = &link->link->peer;
    char what[MUSTER_REASON_SIZE] = "it has no TCP address";
    if (error != 0) {
        (void)snprintf(what, sizeof what, "%s: %s", peer->addresses[link->address - 1],
                       strerror(error));
    }
    while (link->address < peer->address_count) {
        const char *text = peer->addresses[link->address++];
        struct muster_socket_address address;
        if (muster_address_parse(text, &address) != MUSTER_OK) {
            (void)snprintf(what, sizeof what, "%.160s", muster_last_error());
            continue;
        }
        error = call(link, &address, 0);
        if (error == 0) {
            return;
        }
        (void)snprintf(what, sizeof what, "%s: %s", text, strerror(error));
    }
    lose(link, what);
}

void muster_tcp_dial(struct tcp_link *link)
{
    link->dialler.redial_ns = MUSTER_NEVER;
    link->address = 0;
    muster_random_bytes(&link->ticket, sizeof link->ticket);
    call_next(link, 0);
}

/* The other connections go where the first went. One that does not come about is done without. */
static void dial_others(const struct tcp_path *first)
{
    struct tcp_link *link = first->link;
    for (uint32_t i = 1; i < link->tcp->connections; i++) {
        (void)call(link, &first->remote, i);
    }
}

static void dial_failed(struct tcp_path *path, int error)
{
    struct tcp_link *link = path->link;
    bool first = path->index == 0;
    muster_tcp_path_close(path);
    if (first) {
        call_next(link, error);
    }
}

static void await_answer(struct tcp_path *path)
{
    path->half.phase = MUSTER_PHASE_GREETING;
    path->half.deadline_ns = MUSTER_NEVER; /* the peer may answer when its generation begins */
    muster_tcp_path_watch(path, false);
}

/* The socket's buffer is empty: all of it goes out, or it is useless. */
static bool say(struct tcp_path *path, unsigned char *bytes, size_t size)
{
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    return muster_tcp_path_send(path, &part, 1) == (ssize_t)size;
}

static void send_hello(struct tcp_path *path)
{
    struct muster_hello hello = muster_hello_to(path->link->link);
    hello.ticket = path->link->ticket;
    hello.index = (uint8_t)path->index;
    hello.connections = (uint8_t)path->tcp->connections;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    muster_hello_encode(&hello, bytes);
    errno = EPROTO;
    /* Who refuses our certificate hangs up, and what it says is still to be read. */
    if (!say(path, bytes, sizeof bytes) && path->tls == NULL) {
        dial_failed(path, errno);
        return;
    }
    await_answer(path);
}

static void dial_again(struct tcp_path *path, const char *what)
{
    struct tcp_link *link = path->link;
    muster_tcp_path_close(path);
    if (!muster_dialler_again(&link->dialler)) {
        lose(link, what);
    }
}

/* It has hung up, or TLS has failed on it, before there was an answer. */
static void greeting_failed(struct tcp_path *path, int error)
{
    const char *what = error == 0 ? "it closes the connection without an answer"
                                  : muster_tcp_path_words(path, error);
    if (path->index > 0) {
        muster_tcp_path_close(path);
    } else if (path->tls != NULL && error != 0 && !muster_tls_is_cut(path->tls)) {
        lose(path->link, what);
    } else {
        dial_again(path, what);
    }
}

static void secure(struct tcp_path *path)
{
    switch (muster_tcp_secure_dialled(path)) {
    case TCP_SECURED:
        send_hello(path);
        break;
    case TCP_INSECURE:
        if (path->tls != NULL) {
            muster_tls_channel_destroy(TAKE(path->tls));
            await_answer(path); /* which is a refusal */
        } else {
            send_hello(path);
        }
        break;
    case TCP_UNSECURED:
        break;
    case TCP_BROKEN:
        if (path->tls == NULL) {
            dial_failed(path, errno);
        } else {
            greeting_failed(path, EPROTO);
        }
    }
}

static void finish_dial(struct tcp_path *path)
{
    int error = 0;
    socklen_t size = sizeof error;
    (void)getsockopt(path->half.watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        dial_failed(path, error);
    } else {
        secure(path);
    }
}

static void read_other_answer(struct tcp_path *path)
{
    enum muster_verdict verdict = MUSTER_WELCOME;
    if (muster_answer_decode(path->header, &verdict) == MUSTER_OK && verdict == MUSTER_WELCOME) {
        widen_link(path, path->link);
    } else {
        muster_tcp_path_close(path);
    }
}

static void read_answer(struct tcp_path *path)
{
    struct tcp_link *link = path->link;
    int got = read_greeting(path, MUSTER_ANSWER_SIZE);
    if (got < 0) {
        greeting_failed(path, errno);
        return;
    }
    if (got == 0) {
        return;
    }
    if (path->index > 0) {
        read_other_answer(path);
        return;
    }
    enum muster_verdict verdict = MUSTER_WELCOME;
    if (muster_answer_decode(path->header, &verdict) != MUSTER_OK) {
        lose(link, muster_last_error());
    } else if (verdict == MUSTER_WELCOME) {
        open_link(path, link, path->tcp->connections, link->ticket);
        dial_others(path);
    } else if (verdict == MUSTER_REFUSED_CROSSED) {
        muster_tcp_path_close(path);
        muster_dialler_crossed(&link->dialler);
    } else {
        lose(link, muster_verdict_text(verdict));
    }
}

/* Accepting ---------------------------------------------------------------------------------- */

static void close_half(struct muster_half *half)
{
    muster_tcp_path_close((struct tcp_path *)half);
}

static bool answer(struct muster_half *half, enum muster_verdict verdict)
{
    unsigned char bytes[MUSTER_ANSWER_SIZE];
    muster_answer_encode(verdict, bytes);
    return say((struct tcp_path *)half, bytes, sizeof bytes);
}

static void say_from(const struct muster_half *half, char ret_from[MUSTER_ADDRESS_SIZE])
{
    const struct tcp_path *path = (const struct tcp_path *)half;
    muster_address_print(&path->remote, ret_from);
}

static struct muster_half *accepted(struct muster_halves *halves, int fd,
                                    const struct muster_socket_address *remote)
{
    struct tcp_path *path =
        muster_tcp_path_create((struct tcp *)halves, fd, MUSTER_PHASE_HELLO, EPOLLIN);
    if (path == NULL) {
        return NULL;
    }
    path->remote = *remote;
    return &path->half;
}

static struct tcp_link *end_of(struct muster_link *link)
{
    return link->ops == &muster_tcp_ops ? link->end : NULL;
}

static bool calls(const struct muster_link *link)
{
    const struct tcp_link *end = link->end;
    return end->path != NULL;
}

/* One more connection of a link that is open. */
static void take_other_call(struct tcp_path *path, struct muster_link *link)
{
    struct tcp_link *end = end_of(link);
    bool fits = link->state == MUSTER_LINK_OPEN && end != NULL && end->bundle != NULL &&
                end->bundle->ticket == path->half.hello.ticket &&
                end->path_count < MUSTER_TCP_CONNECTIONS_MAX;
    if (!answer(&path->half, fits ? MUSTER_WELCOME : MUSTER_REFUSED_CROSSED) || !fits) {
        muster_tcp_path_close(path);
        return;
    }
    widen_link(path, end);
}

static void take_call(struct muster_half *half, struct muster_link *link)
{
    struct tcp_path *path = (struct tcp_path *)half;
    if (path->half.hello.index > 0) {
        take_other_call(path, link);
        return;
    }
    enum muster_verdict verdict = muster_half_verdict(half->all, link);
    struct tcp_link *end = end_of(link);
    if (verdict != MUSTER_WELCOME) {
        (void)answer(&path->half, verdict);
        muster_tcp_path_close(path);
        return;
    }
    if (end->path != NULL) {
        muster_tcp_path_close(end->path);
    }
    if (!answer(&path->half, verdict)) {
        muster_tcp_path_close(path); /* the caller will notice, and dial again */
        end->dialler.redial_ns = muster_clock_ns();
        return;
    }
    open_link(path, end, path->half.hello.connections, path->half.hello.ticket);
}

static void read_hello(struct tcp_path *path)
{
    if (muster_tcp_secure_accepted(path) == TCP_UNSECURED) {
        return;
    }
    int got = read_greeting(path, MUSTER_HELLO_SIZE);
    if (got < 0) {
        muster_half_refuse(&path->half, MUSTER_STRANGER_SILENT);
        return;
    }
    if (!muster_hello_begins(path->header, path->have)) {
        muster_half_refuse(&path->half, MUSTER_STRANGER_GARBAGE);
        return;
    }
    if (got == 0) {
        return;
    }
    if (path->tcp->tls != NULL && path->tls == NULL) {
        muster_half_turn_away(&path->half, MUSTER_REFUSED_TLS, MUSTER_STRANGER_PLAIN);
        return;
    }
    muster_half_greeted(&path->half, path->header);
}

void muster_tcp_path_ready(struct muster_watch *watch, uint32_t events)
{
    struct tcp_path *path = (struct tcp_path *)watch;
    switch (path->half.phase) {
    case MUSTER_PHASE_DIALLING:
        if (path->tls == NULL) {
            finish_dial(path);
        } else {
            secure(path);
        }
        return;
    case MUSTER_PHASE_GREETING:
        read_answer(path);
        return;
    case MUSTER_PHASE_HELLO:
        read_hello(path);
        return;
    case MUSTER_PHASE_PARKED:
        muster_half_refuse(&path->half, MUSTER_STRANGER_SILENT); /* it has hung up, most likely */
        return;
    case MUSTER_PHASE_PROVING:
    case MUSTER_PHASE_OPEN:
        break;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        muster_tcp_receive(path);
    }
    if ((events & EPOLLOUT) != 0 && !watch->retired) {
        if (path->link->bundle != NULL) {
            muster_watch_change(path->tcp->halves.fabric, watch, EPOLLIN);
        }
        muster_link_mark(path->link->link);
    }
}

/* Listening ---------------------------------------------------------------------------------- */

static void free_tcp(struct muster_watch *watch)
{
    struct tcp *tcp = (struct tcp *)watch;
    free(tcp->staging);
    free(tcp->piece);
    muster_tls_release(tcp->tls);
    free(tcp);
}

/* Returns 0, or an error number. */
static int listen_at(int fd, struct muster_socket_address *address, uint16_t port)
{
    const int yes = 1;
    muster_address_set_port(address, port);
    if (port != 0) {
        /* Connections of an earlier process on that port may still be waiting for their end. */
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    }
    socklen_t size = sizeof address->storage;
    return bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0 &&
                   listen(fd, SOMAXCONN) == 0 &&
                   getsockname(fd, (struct sockaddr *)&address->storage, &size) == 0
               ? 0
               : errno;
}

muster_status muster_tcp_listen(struct tcp *tcp, const char *where)
{
    uint16_t first;
    uint16_t last;
    TRY(muster_address_parse_listen(where, &tcp->own, &first, &last));
    if (muster_address_is_any(&tcp->own)) {
        return muster_error_set(MUSTER_INVALID, "listen \"%s\": peers need a real address", where);
    }
    AUTO_CLOSE int fd =
        socket(tcp->own.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "listen \"%s\"", where);
    }
    int error = EADDRINUSE;
    for (uint32_t port = first; port <= last && error == EADDRINUSE; port++) {
        error = listen_at(fd, &tcp->own, (uint16_t)port);
    }
    if (error != 0) {
        return muster_error_set(MUSTER_INVALID, "listen \"%s\": %s%s", where,
                                error == EADDRINUSE && last > first ? "every port of it: " : "",
                                strerror(error));
    }
    return muster_halves_listen(&tcp->halves, TAKE_FD(fd), free_tcp);
}

static void expired(struct muster_half *half)
{
    dial_failed((struct tcp_path *)half, ETIMEDOUT);
}

static void dial(struct muster_dialler *dialler)
{
    muster_tcp_dial((struct tcp_link *)dialler);
}

const struct muster_half_ops muster_tcp_half_ops = {
    .link_ops = &muster_tcp_ops,
    .elsewhere = MUSTER_REFUSED_CROSSED,
    .accepted = accepted,
    .answer = answer,
    .close = close_half,
    .from = say_from,
    .begin = muster_tcp_begin,
    .calls = calls,
    .take = take_call,
    .expired = expired,
    .dial = dial,
};
