/* How links over RDMA begin: a TCP connection on which the ends tell each other of their queue
 * pairs, and the proof that these reach each other. */
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/fabric/host_addresses.h"
#include "worker/fabric/verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <utlist.h>

static const char scheme[] = "verbs";

/* "verbs://10.0.0.1:4000" and "tcp://10.0.0.1:4000" differ in nothing else. */
static void print_address(const struct muster_socket_address *address,
                          char ret_text[MUSTER_ADDRESS_SIZE])
{
    char text[MUSTER_ADDRESS_SIZE];
    muster_address_print(address, text);
    (void)snprintf(ret_text, MUSTER_ADDRESS_SIZE, "%s%.*s", scheme, MUSTER_ADDRESS_SIZE - 8,
                   text + strlen("tcp"));
}

static muster_status parse_address(const char *published, struct muster_socket_address *ret_address)
{
    char text[MUSTER_ADDRESS_SIZE];
    (void)snprintf(text, sizeof text, "tcp%.120s", published + strlen(scheme));
    return muster_address_parse(text, ret_address);
}

uint32_t muster_verbs_addresses(const void *transport, uint32_t most,
                                char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    const struct verbs *verbs = transport;
    if (most > 0) {
        print_address(&verbs->own, ret_addresses[0]);
    }
    return most > 0;
}

/* Says it whole: a socket that has just begun has room, or is useless. */
static bool say(const struct verbs_path *path, const unsigned char *bytes, size_t size)
{
    return send(path->half.watch.fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* Reads as muster_half_heard() says. */
static int hear(struct verbs_path *path, uint32_t size)
{
    ssize_t got = recv(path->half.watch.fd, path->bytes + path->have, size - path->have, 0);
    return muster_half_heard(got, size, &path->have);
}

/* The proof ------------------------------------------------------------------------------------ */

static void open_path(struct verbs_path *path)
{
    struct verbs_link *link = path->link;
    char there[MUSTER_ADDRESS_SIZE];
    struct muster_socket_address remote = {.size = sizeof remote.storage};
    (void)getpeername(path->half.watch.fd, (struct sockaddr *)&remote.storage, &remote.size);
    print_address(&remote, there);
    muster_log(MUSTER_LOG_INFO, "peer=%u host=%s link over RDMA device %s to %s", link->link->rank,
               link->link->peer.host, path->verbs->device.name, there);
    muster_half_leave(&path->half);
    link->dialler.redial_ns = MUSTER_NEVER;
    muster_link_opened(link->link);
}

bool muster_verbs_prove(struct verbs_path *path)
{
    struct muster_link *link = path->link->link;
    if (path->half.phase != MUSTER_PHASE_PROVING) {
        return true;
    }
    if (path->failure[0] != '\0') {
        char what[MUSTER_REASON_SIZE];
        memcpy(what, path->failure, sizeof what);
        muster_link_try_next(link, what);
        return false;
    }
    if (path->proven) {
        if (!path->dialler) {
            muster_verbs_send_proof(path);
        }
        open_path(path);
    }
    return true;
}

static void expired(struct muster_half *half)
{
    struct verbs_path *path = (struct verbs_path *)half;
    muster_link_try_next(path->link->link,
                         half->phase == MUSTER_PHASE_DIALLING
                             ? "it cannot be reached in time"
                             : "nothing comes through between the RDMA devices: the network may "
                               "carry no packets as large as theirs (MTU), or drop UDP port 4791");
}

/* Dialling ----------------------------------------------------------------------------------- */

static const char *find_address(const struct verbs_link *link)
{
    const struct muster_peer *peer = &link->link->peer;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        if (muster_link_has_scheme(peer->addresses[i], scheme)) {
            return peer->addresses[i];
        }
    }
    return "";
}

static struct verbs_path *call(struct verbs_link *link, const struct muster_socket_address *remote)
{
    AUTO_CLOSE int fd =
        socket(remote->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, (const struct sockaddr *)&remote->storage, remote->size) != 0 &&
                   errno != EINPROGRESS)) {
        return NULL;
    }
    return muster_verbs_path_create(link->verbs, TAKE_FD(fd), MUSTER_PHASE_DIALLING, EPOLLOUT);
}

void muster_verbs_dial(struct verbs_link *link)
{
    struct muster_socket_address remote;
    link->dialler.redial_ns = MUSTER_NEVER;
    if (parse_address(find_address(link), &remote) != MUSTER_OK) {
        muster_link_try_next(link->link, muster_last_error());
        return;
    }
    struct verbs_path *path = call(link, &remote);
    if (path == NULL) {
        muster_link_try_next(link->link, strerror(errno));
        return;
    }
    path->dialler = true;
    path->link = link;
    link->path = path;
    path->half.deadline_ns = muster_clock_after_ms(VERBS_DIAL_MS);
}

static void connected(struct verbs_path *path)
{
    struct verbs_link *link = path->link;
    unsigned char bytes[VERBS_HELLO_SIZE];
    struct verbs_greeting greeting;
    int error = 0;
    socklen_t size = sizeof error;
    (void)getsockopt(path->half.watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        muster_link_try_next(link->link, strerror(error));
        return;
    }
    if (muster_verbs_pair_create(path) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "peer=%u not over RDMA: %s", link->link->rank,
                   muster_last_error());
        muster_link_try_next(link->link, muster_last_error());
        return;
    }
    const struct muster_hello hello = muster_hello_to(link->link);
    muster_hello_encode(&hello, bytes);
    muster_verbs_greeting_of(path, &greeting);
    muster_verbs_greeting_encode(&greeting, bytes + MUSTER_HELLO_SIZE);
    path->half.phase = MUSTER_PHASE_GREETING;
    path->half.deadline_ns = MUSTER_NEVER; /* it may compute: the caller's deadline counts */
    muster_watch_change(path->verbs->halves.fabric, &path->half.watch, EPOLLIN);
    if (!say(path, bytes, sizeof bytes)) {
        muster_half_hung_up(&path->half, link->link);
    }
}

static void welcomed(struct verbs_path *path)
{
    struct verbs_link *link = path->link;
    if (muster_verbs_greeting_decode(path->bytes + MUSTER_ANSWER_SIZE, &path->theirs) !=
            MUSTER_OK ||
        muster_verbs_pair_connect(path) != MUSTER_OK) {
        muster_link_try_next(link->link, muster_last_error());
        return;
    }
    muster_half_prove(&path->half);
    muster_verbs_send_proof(path);
    muster_link_mark(link->link);
}

static void judge_answer(struct verbs_path *path)
{
    struct muster_link *link = path->link->link;
    enum muster_verdict verdict;
    if (muster_answer_decode(path->bytes, &verdict) != MUSTER_OK) {
        muster_link_try_next(link, "it answers otherwise than a Muster peer");
    } else if (verdict == MUSTER_WELCOME) {
        welcomed(path);
    } else if (verdict == MUSTER_WAIT) {
        path->have = 0;
    } else {
        muster_half_refused(&path->half, link, verdict);
    }
}

static void read_answer(struct verbs_path *path)
{
    int got = hear(path, VERBS_ANSWER_SIZE);
    if (got < 0) {
        muster_half_hung_up(&path->half, path->link->link);
    } else if (got > 0) {
        judge_answer(path);
    }
}

/* Accepting ---------------------------------------------------------------------------------- */

static void close_half(struct muster_half *half)
{
    muster_verbs_path_close((struct verbs_path *)half);
}

static bool answer(struct muster_half *half, enum muster_verdict verdict)
{
    const struct verbs_path *path = (const struct verbs_path *)half;
    unsigned char bytes[VERBS_ANSWER_SIZE] = {0};
    muster_answer_encode(verdict, bytes);
    if (verdict == MUSTER_WELCOME) {
        struct verbs_greeting greeting;
        muster_verbs_greeting_of(path, &greeting);
        muster_verbs_greeting_encode(&greeting, bytes + MUSTER_ANSWER_SIZE);
    }
    return say(path, bytes, sizeof bytes);
}

static void say_from(const struct muster_half *half, char ret_from[MUSTER_ADDRESS_SIZE])
{
    struct muster_socket_address remote = {.size = sizeof remote.storage};
    (void)getpeername(half->watch.fd, (struct sockaddr *)&remote.storage, &remote.size);
    print_address(&remote, ret_from);
}

static struct muster_half *accepted(struct muster_halves *halves, int fd,
                                    const struct muster_socket_address *remote)
{
    (void)remote;
    struct verbs_path *path =
        muster_verbs_path_create((struct verbs *)halves, fd, MUSTER_PHASE_HELLO, EPOLLIN);
    return path != NULL ? &path->half : NULL;
}

static bool calls(const struct muster_link *link)
{
    const struct verbs_link *end = link->end;
    return end->path != NULL && end->path->dialler &&
           (end->path->half.phase == MUSTER_PHASE_GREETING ||
            end->path->half.phase == MUSTER_PHASE_PROVING);
}

static void take_call(struct muster_half *half, struct muster_link *link)
{
    struct verbs_path *path = (struct verbs_path *)half;
    if (!muster_half_counts(half, link)) {
        return;
    }
    struct verbs_link *end = link->end;
    if (end->path != NULL) {
        muster_verbs_path_close(end->path);
    }
    muster_half_prove(half);
    path->link = end;
    end->path = path;
    if (muster_verbs_pair_create(path) != MUSTER_OK ||
        muster_verbs_pair_connect(path) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "peer=%u not over RDMA: %s", link->rank, muster_last_error());
        (void)answer(half, MUSTER_REFUSED_VERBS);
        muster_link_try_next(link, muster_last_error());
    } else if (!answer(half, MUSTER_WELCOME)) {
        muster_half_unheard(half, link);
    }
}

static void read_hello(struct verbs_path *path)
{
    int got = hear(path, VERBS_HELLO_SIZE);
    if (got < 0) {
        muster_half_refuse(&path->half, MUSTER_STRANGER_SILENT);
    } else if (!muster_hello_begins(path->bytes, path->have) ||
               (got > 0 && muster_verbs_greeting_decode(path->bytes + MUSTER_HELLO_SIZE,
                                                        &path->theirs) != MUSTER_OK)) {
        muster_half_refuse(&path->half, MUSTER_STRANGER_GARBAGE);
    } else if (got > 0) {
        muster_half_greeted(&path->half, path->bytes);
    }
}

/* Open ----------------------------------------------------------------------------------------- */

/* Nothing is said any more but that it leaves. */
static void read_end(struct verbs_path *path)
{
    unsigned char byte = 0;
    ssize_t got = recv(path->half.watch.fd, &byte, 1, 0);
    if (got == 1) {
        path->leaving = true;
        return;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    const char *what = got == 0 ? "it closed the connection without goodbye" : strerror(errno);
    if (path->half.phase == MUSTER_PHASE_OPEN) {
        muster_verbs_ended(path->link, what);
        return;
    }
    /* The proof may have come all the same, and what came behind it. */
    struct verbs_link *link = path->link;
    muster_verbs_take(path->verbs);
    if (path->proven && muster_verbs_prove(path)) {
        muster_verbs_ended(link, what);
    } else if (link->path == path) {
        muster_link_try_next(link->link, "it gives up the RDMA connection");
    }
}

static void path_ready(struct muster_watch *watch, uint32_t events)
{
    struct verbs_path *path = (struct verbs_path *)watch;
    (void)events;
    switch (path->half.phase) {
    case MUSTER_PHASE_DIALLING:
        connected(path);
        break;
    case MUSTER_PHASE_GREETING:
        read_answer(path);
        break;
    case MUSTER_PHASE_HELLO:
        read_hello(path);
        break;
    case MUSTER_PHASE_PARKED:
        muster_half_refuse(&path->half, MUSTER_STRANGER_SILENT); /* it has hung up, most likely */
        break;
    case MUSTER_PHASE_PROVING:
    case MUSTER_PHASE_OPEN:
        read_end(path);
        break;
    }
}

/* Listening ---------------------------------------------------------------------------------- */

/* The address of the RDMA device itself, where it has one: who reaches it is in its network. */
static bool address_of_gid(const struct muster_verbs_gid *gid,
                           struct muster_socket_address *ret_address)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    memset(ret_address, 0, sizeof *ret_address);
    if (gid->type == MUSTER_VERBS_INFINIBAND || muster_verbs_gid_is_link_local(gid)) {
        return false;
    }
    if (muster_verbs_gid_is_ipv4(gid)) {
        memcpy(&four.sin_addr, gid->bytes + 12, sizeof four.sin_addr);
        memcpy(&ret_address->storage, &four, sizeof four);
        ret_address->size = sizeof four;
    } else {
        memcpy(&six.sin6_addr, gid->bytes, sizeof six.sin6_addr);
        memcpy(&ret_address->storage, &six, sizeof six);
        ret_address->size = sizeof six;
    }
    return true;
}

static muster_status choose_address(const struct verbs *verbs,
                                    const struct muster_fabric_options *options,
                                    struct muster_socket_address *ret_address, uint16_t *ret_first,
                                    uint16_t *ret_last)
{
    struct muster_socket_address listening = {0};
    *ret_first = 0;
    *ret_last = 0;
    if (options->listen != NULL) {
        TRY(muster_address_parse_listen(options->listen, &listening, ret_first, ret_last));
    }
    if (address_of_gid(&verbs->device.gid, ret_address)) {
        return MUSTER_OK;
    }
    if (listening.size > 0) {
        *ret_address = listening;
        return MUSTER_OK;
    }
    AUTO_FREE struct muster_host_addresses *here = calloc(1, sizeof *here);
    uint32_t chosen = 0;
    uint32_t count = 0;
    if (here == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    TRY(muster_host_addresses_read(here));
    TRY(muster_addresses_choose(here, options->interfaces, options->first_address, 1, &chosen,
                                &count));
    *ret_address = here->all[chosen].address;
    return MUSTER_OK;
}

/* Of a range of ports the last that is free: TCP begins with the first. */
static muster_status bind_within(int fd, struct muster_socket_address *address, uint16_t first,
                                 uint16_t last)
{
    if (first != 0 && first == last) {
        return muster_error_set(MUSTER_INVALID,
                                "listen (MUSTER_LISTEN) has one port, which TCP takes: RDMA needs "
                                "another one");
    }
    for (uint32_t port = last; first == 0 || port > first; port--) {
        muster_address_set_port(address, (uint16_t)port);
        if (bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0) {
            return MUSTER_OK;
        }
        if (errno != EADDRINUSE || first == 0) {
            break;
        }
    }
    char text[MUSTER_ADDRESS_SIZE];
    print_address(address, text);
    return muster_error_errno(MUSTER_INVALID, "%s", text);
}

muster_status muster_verbs_listen(struct verbs *verbs, const struct muster_fabric_options *options)
{
    uint16_t first = 0;
    uint16_t last = 0;
    const int yes = 1;
    TRY(choose_address(verbs, options, &verbs->own, &first, &last));
    AUTO_CLOSE int fd =
        socket(verbs->own.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "socket");
    }
    if (first != 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    }
    TRY(bind_within(fd, &verbs->own, first, last));
    verbs->own.size = sizeof verbs->own.storage;
    if (listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&verbs->own.storage, &verbs->own.size) != 0) {
        return muster_error_errno(MUSTER_FATAL, "listen");
    }
    return muster_halves_listen(&verbs->halves, TAKE_FD(fd));
}

static void dial(struct muster_dialler *dialler)
{
    muster_verbs_dial((struct verbs_link *)dialler);
}

static void free_verbs(struct muster_halves *halves)
{
    struct verbs *verbs = (struct verbs *)halves;
    muster_verbs_device_close(&verbs->device);
    free(verbs->piece);
    free(verbs);
}

static void init_end(struct muster_link *link)
{
    struct verbs_link *end = link->end;
    end->dialler.match = &end->match;
    end->link = link;
    end->verbs = link->transport;
    end->match.link = link;
    end->match.payload_max = VERBS_PAYLOAD_MAX;
    end->arrival.piece = end->verbs->piece;
}

static bool ended(const struct muster_link *link)
{
    const struct verbs_link *end = link->end;
    return end->path->failure[0] != '\0' || muster_half_ended(&end->path->half);
}

const struct muster_half_ops muster_verbs_half_ops = {
    .elsewhere = MUSTER_REFUSED_VERBS,
    .accepted = accepted,
    .ready = path_ready,
    .answer = answer,
    .close = close_half,
    .from = say_from,
    .end_size_bytes = sizeof(struct verbs_link),
    .init_end = init_end,
    .calls = calls,
    .take = take_call,
    .expired = expired,
    .dial = dial,
    .ended = ended,
    .free = free_verbs,
};
