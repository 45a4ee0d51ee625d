/* How connections begin: listening, dialling, hellos and verdicts. */
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
    struct tcp *tcp = path->tcp;
    muster_tcp_leave_halves(path);
    path->phase = TCP_OPEN;
    path->deadline_ns = MUSTER_NEVER;
    path->have = 0;
    path->link = link;
    link->paths[link->path_count++] = path;
    muster_tcp_bound_sending(path->watch.fd);
    muster_watch_change(tcp->fabric, &path->watch, EPOLLIN);
}

/* The first connection of a link is there. */
static void open_link(struct tcp_path *path, struct tcp_link *link, uint32_t connections,
                      uint32_t ticket)
{
    open_path(path, link);
    link->path = path;
    link->redial_ns = MUSTER_NEVER;
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
    link->tcp->fabric->figures.connections_opened++;
    muster_link_mark(link->link);
}

/* Reads up to `size` bytes of a hello or an answer. 1: all of it is there; 0: not yet; -1: errno is
 * set, 0 at the end of the stream. */
static int read_greeting(struct tcp_path *path, uint32_t size)
{
    ssize_t got = read(path->watch.fd, path->header + path->have, size - path->have);
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
    struct tcp_path *path = muster_tcp_path_create(link->tcp, fd, TCP_DIALLING, EPOLLOUT);
    if (path == NULL) {
        return ENOMEM;
    }
    path->remote = *address;
    path->link = link;
    path->index = index;
    path->deadline_ns = muster_clock_after_ms(TCP_DIAL_MS);
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
    link->redial_ns = MUSTER_NEVER;
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

static void send_hello(struct tcp_path *path)
{
    const struct muster_fabric *fabric = path->tcp->fabric;
    struct muster_hello hello = {.generation = fabric->generation,
                                 .ticket = path->link->ticket,
                                 .index = (uint8_t)path->index,
                                 .connections = (uint8_t)path->tcp->connections};
    unsigned char bytes[MUSTER_HELLO_SIZE];
    memcpy(hello.from, fabric->member, sizeof hello.from);
    memcpy(hello.to, path->link->link->peer.member, sizeof hello.to);
    memcpy(hello.token, fabric->token, sizeof hello.token);
    muster_hello_encode(&hello, bytes);
    ssize_t sent = send(path->watch.fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    if (sent != (ssize_t)sizeof bytes) { /* the socket's buffer is empty: all of it or an error */
        dial_failed(path, sent < 0 ? errno : EPROTO);
        return;
    }
    path->phase = TCP_GREETING;
    path->deadline_ns = MUSTER_NEVER; /* the peer may answer when its generation begins */
    muster_watch_change(path->tcp->fabric, &path->watch, EPOLLIN);
}

static void finish_dial(struct tcp_path *path)
{
    int error = 0;
    socklen_t size = sizeof error;
    (void)getsockopt(path->watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        dial_failed(path, error);
    } else {
        send_hello(path);
    }
}

/* The peer hung up before it had answered: it may be crowded by strangers. */
static void dial_again(struct tcp_path *path, const char *what)
{
    struct tcp_link *link = path->link;
    muster_tcp_path_close(path);
    if (++link->hang_ups >= TCP_HANG_UPS_MAX) {
        lose(link, what);
        return;
    }
    link->redial_ns = muster_clock_after_ms((uint32_t)TCP_REDIAL_MS << link->hang_ups);
}

static void read_other_answer(struct tcp_path *path, int got)
{
    enum muster_verdict verdict = MUSTER_WELCOME;
    if (got == 0) {
        return;
    }
    if (got > 0 && muster_answer_decode(path->header, &verdict) == MUSTER_OK &&
        verdict == MUSTER_WELCOME) {
        widen_link(path, path->link);
    } else {
        muster_tcp_path_close(path);
    }
}

static void read_answer(struct tcp_path *path)
{
    struct tcp_link *link = path->link;
    int got = read_greeting(path, MUSTER_ANSWER_SIZE);
    if (path->index > 0) {
        read_other_answer(path, got);
        return;
    }
    if (got < 0) {
        dial_again(path,
                   errno == 0 ? "it closes the connection without an answer" : strerror(errno));
        return;
    }
    if (got == 0) {
        return;
    }
    enum muster_verdict verdict = MUSTER_WELCOME;
    if (muster_answer_decode(path->header, &verdict) != MUSTER_OK) {
        lose(link, muster_last_error());
    } else if (verdict == MUSTER_WELCOME) {
        open_link(path, link, path->tcp->connections, link->ticket);
        dial_others(path);
    } else if (verdict == MUSTER_REFUSED_CROSSED) {
        muster_tcp_path_close(path); /* its call comes; if not, ours goes again */
        link->redial_ns = muster_clock_after_ms(TCP_CROSSED_MS);
    } else {
        lose(link, muster_verdict_text(verdict));
    }
}

/* Accepting ---------------------------------------------------------------------------------- */

static bool answer(struct tcp_path *path, enum muster_verdict verdict)
{
    unsigned char bytes[MUSTER_ANSWER_SIZE];
    muster_answer_encode(verdict, bytes);
    return send(path->watch.fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes;
}

static void turn_away(struct tcp_path *path, enum muster_verdict verdict, enum muster_stranger kind)
{
    (void)answer(path, verdict); /* a courtesy */
    muster_tcp_refuse(path, kind);
}

static void park(struct tcp_path *path)
{
    struct tcp *tcp = path->tcp;
    if (path->phase == TCP_PARKED) {
        return;
    }
    if (tcp->parked >= TCP_PARKED_MAX) {
        muster_tcp_refuse(path, MUSTER_STRANGER_PUSHED);
        return;
    }
    tcp->half_open--;
    tcp->parked++;
    path->phase = TCP_PARKED;
    path->deadline_ns = muster_clock_after_ms(TCP_PARKED_MS);
    muster_watch_change(tcp->fabric, &path->watch, EPOLLRDHUP); /* it has to wait for us */
}

static struct tcp_link *end_of(struct muster_link *link)
{
    return link->ops == &muster_tcp_ops ? link->end : NULL;
}

static enum muster_verdict begin_link(struct tcp *tcp, struct muster_link *link)
{
    link->ops = &muster_tcp_ops;
    link->transport = tcp;
    muster_tcp_accepted(link);
    return link->end != NULL ? MUSTER_WELCOME : MUSTER_REFUSED_LOST;
}

/* Which of two calls counts must be decided alike by both ends. A hello may also come late, when
 * the caller has already taken our call instead: one that finds an open link is turned down. If its
 * sender means it, because the link is dead and we do not know yet, it dials again. */
static enum muster_verdict judge_call(struct tcp *tcp, struct muster_link *link)
{
    const struct tcp_link *end = end_of(link);
    switch (link->state) {
    case MUSTER_LINK_IDLE:
        return begin_link(tcp, link);
    case MUSTER_LINK_OPENING:
        return end == NULL ||
                       (end->path != NULL && strcmp(tcp->fabric->member, link->peer.member) < 0)
                   ? MUSTER_REFUSED_CROSSED
                   : MUSTER_WELCOME;
    case MUSTER_LINK_OPEN:
        return MUSTER_REFUSED_CROSSED;
    case MUSTER_LINK_LEFT:
    case MUSTER_LINK_LOST:
        break;
    }
    return MUSTER_REFUSED_LOST;
}

/* One more connection of a link that is open. */
static void take_other_call(struct tcp_path *path, struct muster_link *link)
{
    struct tcp_link *end = end_of(link);
    bool fits = link->state == MUSTER_LINK_OPEN && end != NULL && end->bundle != NULL &&
                end->bundle->ticket == path->hello.ticket &&
                end->path_count < MUSTER_TCP_CONNECTIONS_MAX;
    if (!answer(path, fits ? MUSTER_WELCOME : MUSTER_REFUSED_CROSSED) || !fits) {
        muster_tcp_path_close(path);
        return;
    }
    widen_link(path, end);
}

static void take_call(struct tcp_path *path, struct muster_link *link)
{
    if (path->hello.index > 0) {
        take_other_call(path, link);
        return;
    }
    enum muster_verdict verdict = judge_call(path->tcp, link);
    struct tcp_link *end = end_of(link);
    if (verdict != MUSTER_WELCOME) {
        (void)answer(path, verdict);
        muster_tcp_path_close(path);
        return;
    }
    if (end->path != NULL) {
        muster_tcp_path_close(end->path);
    }
    if (!answer(path, verdict)) {
        muster_tcp_path_close(path); /* the caller will notice, and dial again */
        end->redial_ns = muster_clock_ns();
        return;
    }
    open_link(path, end, path->hello.connections, path->hello.ticket);
}

static void judge(struct tcp_path *path)
{
    struct muster_fabric *fabric = path->tcp->fabric;
    const struct muster_hello *hello = &path->hello;
    if (fabric->parting) {
        muster_tcp_path_close(path);
        return;
    }
    if (fabric->generation == 0) {
        park(path); /* the link token is not known yet */
        return;
    }
    if (!muster_token_equal(hello->token, fabric->token)) {
        turn_away(path, MUSTER_REFUSED_TOKEN, MUSTER_STRANGER_TOKEN);
        return;
    }
    bool for_us = strcmp(hello->to, fabric->member) == 0;
    struct muster_link *link = muster_fabric_find_link(fabric, hello->from);
    if (for_us && link != NULL) {
        take_call(path, link);
    } else if (for_us && hello->generation > fabric->generation) {
        park(path);
    } else {
        turn_away(path, MUSTER_REFUSED_STRANGER, MUSTER_STRANGER_UNKNOWN);
    }
}

void muster_tcp_judge_parked(struct tcp *tcp)
{
    struct tcp_path *path = NULL;
    struct tcp_path *next = NULL;
    DL_FOREACH_SAFE(tcp->halves, path, next)
    {
        if (path->phase == TCP_PARKED) {
            judge(path);
        }
    }
}

static void read_hello(struct tcp_path *path)
{
    int got = read_greeting(path, MUSTER_HELLO_SIZE);
    if (got < 0) {
        muster_tcp_refuse(path, MUSTER_STRANGER_SILENT);
        return;
    }
    if (!muster_hello_begins(path->header, path->have)) {
        muster_tcp_refuse(path, MUSTER_STRANGER_GARBAGE);
        return;
    }
    if (got == 0) {
        return;
    }
    switch (muster_hello_decode(path->header, &path->hello)) {
    case MUSTER_OK:
        judge(path);
        break;
    case MUSTER_FATAL:
        turn_away(path, MUSTER_REFUSED_VERSION, MUSTER_STRANGER_VERSION);
        break;
    default:
        muster_tcp_refuse(path, MUSTER_STRANGER_GARBAGE);
    }
}

static void push_out_oldest(struct tcp *tcp)
{
    struct tcp_path *path = NULL;
    DL_FOREACH(tcp->halves, path)
    {
        if (path->phase == TCP_HELLO) {
            muster_tcp_refuse(path, MUSTER_STRANGER_PUSHED);
            return;
        }
    }
}

static void accept_ready(struct muster_watch *watch, uint32_t events)
{
    struct tcp *tcp = (struct tcp *)watch;
    (void)events;
    for (int i = 0; i < TCP_ACCEPTS_MAX && !watch->retired; i++) {
        struct muster_socket_address remote = {.size = sizeof remote.storage};
        int fd = accept4(watch->fd, (struct sockaddr *)&remote.storage, &remote.size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                tcp->accept_again_ns = muster_clock_after_ms(TCP_ACCEPT_PAUSE_MS);
                muster_watch_change(tcp->fabric, watch, 0);
            }
            return;
        }
        if (tcp->half_open >= TCP_HALF_OPEN_MAX) {
            push_out_oldest(tcp);
        }
        struct tcp_path *path = muster_tcp_path_create(tcp, fd, TCP_HELLO, EPOLLIN);
        if (path != NULL) {
            path->remote = remote;
            path->deadline_ns = muster_clock_after_ms(TCP_HELLO_MS);
        }
    }
}

void muster_tcp_path_ready(struct muster_watch *watch, uint32_t events)
{
    struct tcp_path *path = (struct tcp_path *)watch;
    switch (path->phase) {
    case TCP_DIALLING:
        finish_dial(path);
        return;
    case TCP_GREETING:
        read_answer(path);
        return;
    case TCP_HELLO:
        read_hello(path);
        return;
    case TCP_PARKED:
        muster_tcp_refuse(path, MUSTER_STRANGER_SILENT); /* it has hung up */
        return;
    case TCP_OPEN:
        break;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        muster_tcp_receive(path);
    }
    if ((events & EPOLLOUT) != 0 && !watch->retired) {
        if (path->link->bundle != NULL) {
            muster_watch_change(path->tcp->fabric, watch, EPOLLIN);
        }
        muster_link_mark(path->link->link);
    }
}

/* Time --------------------------------------------------------------------------------------- */

static void expire(struct tcp_path *path)
{
    switch (path->phase) {
    case TCP_DIALLING:
        dial_failed(path, ETIMEDOUT);
        break;
    case TCP_HELLO:
        muster_tcp_refuse(path, MUSTER_STRANGER_SLOW);
        break;
    default:
        muster_tcp_refuse(path, MUSTER_STRANGER_EARLY);
    }
}

static int64_t expire_halves(struct tcp *tcp, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct tcp_path *path = tcp->halves;
    while (path != NULL) {
        if (path->deadline_ns <= now_ns) {
            expire(path);
            path = tcp->halves; /* a lost link may have closed others */
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = path->deadline_ns < due_ns ? path->deadline_ns : due_ns;
        path = path->next;
    }
    return due_ns;
}

static int64_t redial(struct tcp *tcp, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct tcp_link *link = tcp->links;
    while (link != NULL) {
        if (link->redial_ns <= now_ns) {
            muster_tcp_dial(link);
            link = tcp->links;
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = link->redial_ns < due_ns ? link->redial_ns : due_ns;
        link = link->next;
    }
    return due_ns;
}

int64_t muster_tcp_connect_timers(struct tcp *tcp, int64_t now_ns)
{
    int64_t due_ns = tcp->halves != NULL ? expire_halves(tcp, now_ns) : MUSTER_NEVER;
    int64_t redial_ns = redial(tcp, now_ns);
    if (tcp->accept_again_ns <= now_ns) {
        tcp->accept_again_ns = MUSTER_NEVER;
        muster_watch_change(tcp->fabric, &tcp->listener, EPOLLIN);
    }
    due_ns = redial_ns < due_ns ? redial_ns : due_ns;
    return tcp->accept_again_ns < due_ns ? tcp->accept_again_ns : due_ns;
}

/* Listening ---------------------------------------------------------------------------------- */

static void free_tcp(struct muster_watch *watch)
{
    struct tcp *tcp = (struct tcp *)watch;
    free(tcp->staging);
    free(tcp->piece);
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
    int fd = socket(tcp->own.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "listen \"%s\"", where);
    }
    tcp->listener =
        (struct muster_watch){.fd = fd, .events = EPOLLIN, .ready = accept_ready, .free = free_tcp};
    int error = EADDRINUSE;
    for (uint32_t port = first; port <= last && error == EADDRINUSE; port++) {
        error = listen_at(fd, &tcp->own, (uint16_t)port);
    }
    if (error != 0) {
        return muster_error_set(MUSTER_INVALID, "listen \"%s\": %s%s", where,
                                error == EADDRINUSE && last > first ? "every port of it: " : "",
                                strerror(error));
    }
    return muster_watch_add(tcp->fabric, &tcp->listener);
}
