/*
 * Dialling: which of the peer's addresses carries the link. They are called in the order of
 * muster_addresses_order(), each TCP_STAGGER_MS after the one before it, or as soon as that has
 * failed ("happy eyeballs", RFC 8305, section 5). The first at which the peer itself answers
 * carries the link; the others are closed. One at which somebody else answers has failed like any
 * other: addresses of bridges are the same on many hosts.
 */
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

static void lose(struct tcp_link *link, const char *what)
{
    muster_link_fail(link->link, MUSTER_LINK_LOST, what);
}

/* Notes why an address does not serve. */
static void note_failure(struct tcp_link *link, const char *address, const char *what)
{
    char *failures = link->dialling.failures;
    size_t used = strlen(failures);
    (void)snprintf(failures + used, MUSTER_REASON_SIZE - used, "%s%s: %s", used == 0 ? "" : "; ",
                   address, what);
}

static void note_errno(struct tcp_link *link, const struct muster_socket_address *remote, int error)
{
    char address[MUSTER_ADDRESS_SIZE];
    muster_address_print(remote, address);
    link->dialling.refused = link->dialling.refused || error == ECONNREFUSED;
    link->dialling.exhausted = link->dialling.exhausted || muster_is_out_of_descriptors(error);
    note_failure(link, address, strerror(error));
}

/* One call ----------------------------------------------------------------------------------- */

/* Returns 0, or an error number. */
static int call(struct tcp_link *link, const struct muster_socket_address *address, uint32_t index)
{
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int fd = socket(address->storage.ss_family, type, 0);
    int failed = fd < 0 ? errno : 0;
    if (muster_is_out_of_descriptors(failed) &&
        muster_pending_make_room(&link->tcp->pending_list)) {
        fd = socket(address->storage.ss_family, type, 0);
        failed = fd < 0 ? errno : 0;
    }
    if (fd < 0) {
        return failed;
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
    path->pending.deadline_ns = muster_clock_after_ms(TCP_DIAL_MS);
    if (index == 0) {
        struct tcp_dialling *dialling = &link->dialling;
        dialling->calls[dialling->call_count++] = path;
        if (dialling->give_up_ns < path->pending.deadline_ns) {
            path->pending.deadline_ns = dialling->give_up_ns;
        }
    }
    return 0;
}

/* The other connections of a bundle ---------------------------------------------------------- */

static void miss_one(struct tcp_link *link)
{
    muster_bundle_path_missing(&link->calls, &link->dialler, link->path_count);
}

static uint32_t count_calls(const struct tcp_link *link)
{
    uint32_t count = 0;
    const struct muster_pending_connection *pending = NULL;
    DL_FOREACH(link->tcp->pending_list.list, pending)
    {
        count += ((const struct tcp_path *)pending)->link == link;
    }
    return count;
}

/* They go where the first went. */
static void dial_others(struct tcp_link *link)
{
    uint32_t have = link->path_count + count_calls(link);
    for (uint32_t i = have; i < link->calls.wanted; i++) {
        if (call(link, &link->there, i) != 0) {
            miss_one(link);
        }
    }
}

/* All addresses ------------------------------------------------------------------------------ */

/* No call is under way, and no address is left. */
static void give_up(struct tcp_link *link)
{
    struct tcp_dialling *dialling = &link->dialling;
    if (dialling->exhausted && link->tcp->pending_list.hello_count > 0 &&
        muster_dialler_retry(&link->dialler)) {
        return; /* strangers have some of them, but not for long */
    }
    if (dialling->exhausted) {
        muster_link_out_of_descriptors(link->link, dialling->failures);
        return;
    }
    if (dialling->crossed) {
        muster_dialler_crossed(&link->dialler);
        return;
    }
    if (dialling->hung_up && muster_dialler_retry(&link->dialler)) {
        return;
    }
    if (!dialling->refused && !dialling->hung_up && muster_clock_ns() < dialling->wait_until_ns) {
        dialling->waiting = true; /* the way from there to here may be open */
        link->dialler.redial_ns = dialling->wait_until_ns;
        return;
    }
    lose(link, dialling->count > 0 ? dialling->failures : "it has no TCP address");
}

/* Calls the next address that can be called. */
static void call_next(struct tcp_link *link)
{
    struct tcp_dialling *dialling = &link->dialling;
    const struct muster_peer *peer = &link->link->peer;
    while (dialling->next < dialling->count) {
        const char *text = peer->addresses[dialling->order[dialling->next++]];
        struct muster_socket_address address;
        if (muster_address_parse(text, &address) != MUSTER_OK) {
            note_failure(link, text, "cannot be read");
            continue;
        }
        int error = call(link, &address, 0);
        if (error == 0) {
            bool more = dialling->next < dialling->count;
            link->dialler.redial_ns = more ? muster_clock_after_ms(TCP_STAGGER_MS) : MUSTER_NEVER;
            return;
        }
        note_errno(link, &address, error);
    }
    link->dialler.redial_ns = MUSTER_NEVER;
    if (dialling->call_count == 0) {
        give_up(link);
    }
}

void muster_tcp_dial(struct tcp_link *link)
{
    const struct muster_fabric *fabric = link->tcp->pending_list.fabric;
    struct tcp_dialling *dialling = &link->dialling;
    const struct muster_peer *peer = &link->link->peer;
    memset(dialling, 0, sizeof *dialling);
    dialling->wait_until_ns = muster_clock_after_ms(TCP_DIAL_MS);
    dialling->give_up_ns = muster_clock_after_ms(TCP_REACH_MS);
    dialling->count = muster_addresses_order(
        &link->tcp->here, peer, strcmp(peer->host, fabric->host) == 0, dialling->order);
    muster_random_bytes(&link->calls.ticket, sizeof link->calls.ticket);
    link->calls.ticket |= 1; /* 0 is none */
    call_next(link);
}

void muster_tcp_dial_due(struct tcp_link *link)
{
    const struct tcp_dialling *dialling = &link->dialling;
    if (link->link->state == MUSTER_LINK_OPEN) {
        dial_others(link);
    } else if (dialling->next < dialling->count) {
        call_next(link);
    } else if (dialling->waiting) {
        lose(link, dialling->failures);
    } else {
        muster_tcp_dial(link);
    }
}

/* This call has failed. If it was to open the link, another one may. */
static void go_on(struct tcp_path *path, const char *what)
{
    char address[MUSTER_ADDRESS_SIZE];
    struct tcp_link *link = path->link;
    bool first = path->index == 0;
    muster_address_print(&path->remote, address);
    note_failure(link, address, what);
    muster_tcp_path_close(path);
    if (first) {
        call_next(link);
    } else {
        miss_one(link);
    }
}

void muster_tcp_dial_failed(struct tcp_path *path, int error)
{
    path->link->dialling.refused = path->link->dialling.refused || error == ECONNREFUSED;
    go_on(path, strerror(error));
}

/* Hello and answer --------------------------------------------------------------------------- */

static void await_answer(struct tcp_path *path)
{
    path->pending.phase = MUSTER_PHASE_GREETING;
    path->pending.deadline_ns = MUSTER_NEVER; /* the peer answers when it looks */
    muster_tcp_path_watch(path, false);
}

static void send_hello(struct tcp_path *path)
{
    struct tcp_link *link = path->link;
    struct muster_hello hello = muster_hello_to(link->link);
    hello.ticket = link->calls.ticket;
    hello.index = (uint8_t)path->index;
    hello.connections = (uint8_t)path->tcp->connections;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    muster_hello_encode(&hello, bytes);
    errno = EPROTO;
    /* Who refuses our certificate hangs up, and what it says is still to be read. */
    if (!muster_tcp_path_say(path, bytes, sizeof bytes) && path->tls == NULL) {
        muster_tcp_dial_failed(path, errno);
        return;
    }
    await_answer(path);
    if (path->index == 0 && link->dialling.next < link->dialling.count) {
        link->dialler.redial_ns = muster_clock_after_ms(TCP_SILENT_MS);
    }
}

/* It has hung up, or TLS has failed on it, before there was an answer. */
static void greeting_failed(struct tcp_path *path, int error)
{
    struct tcp_dialling *dialling = &path->link->dialling;
    if (path->tls != NULL && error != 0 && !muster_tls_is_cut(path->tls)) {
        dialling->refused = true;
    } else {
        dialling->hung_up = true; /* it may be crowded by strangers */
    }
    go_on(path, error == 0 ? "it closes the connection without an answer"
                           : muster_tcp_path_words(path, error));
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
            muster_tcp_dial_failed(path, errno);
        } else {
            greeting_failed(path, EPROTO);
        }
    }
}

void muster_tcp_connected(struct tcp_path *path)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (path->tls == NULL) {
        (void)getsockopt(path->pending.watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) {
        muster_tcp_dial_failed(path, error);
    } else {
        secure(path);
    }
}

/* The peer calls, or has taken another of our calls: those whose hello is out may be that one. */
static void crossed(struct tcp_path *path)
{
    struct tcp_link *link = path->link;
    struct tcp_dialling *dialling = &link->dialling;
    dialling->crossed = true;
    dialling->next = dialling->count;
    muster_tcp_path_close(path);
    for (uint32_t i = dialling->call_count; i > 0; i--) {
        if (dialling->calls[i - 1]->pending.phase == MUSTER_PHASE_DIALLING) {
            muster_tcp_path_close(dialling->calls[i - 1]);
        }
    }
    call_next(link);
}

static void answered(struct tcp_path *path, enum muster_verdict verdict)
{
    struct tcp_link *link = path->link;
    switch (verdict) {
    case MUSTER_WELCOME:
        link->there = path->remote;
        link->calls.wanted = path->tcp->connections;
        muster_tcp_open_link(path, link, path->tcp->connections);
        dial_others(link);
        break;
    case MUSTER_WAIT:
        link->dialler.redial_ns = MUSTER_NEVER;
        muster_tcp_calls_drop(link, path);
        break;
    case MUSTER_REFUSED_CROSSED:
        crossed(path);
        break;
    case MUSTER_REFUSED_LOST: /* it is the peer that says so */
        lose(link, muster_verdict_text(verdict));
        break;
    case MUSTER_REFUSED_VERSION:
    case MUSTER_REFUSED_TOKEN:
    case MUSTER_REFUSED_UNKNOWN:
    case MUSTER_REFUSED_MEMORY:
    case MUSTER_REFUSED_TLS:
    case MUSTER_REFUSED_PLAIN:
    case MUSTER_REFUSED_VERBS:
        link->dialling.refused = true;
        go_on(path, muster_verdict_text(verdict));
    }
}

/* To one more connection of a bundle. A peer that breaks the rules may have called for some, too,
 * and taken the room. */
static void answered_other(struct tcp_path *path, enum muster_verdict verdict)
{
    struct tcp_link *link = path->link;
    if (verdict == MUSTER_WELCOME && link->path_count < MUSTER_CONNECTIONS_MAX) {
        muster_tcp_widen_link(path, link);
    } else if (verdict != MUSTER_WAIT) {
        muster_tcp_path_close(path);
        miss_one(link);
    }
}

/* Returns true if it was told to wait: the answer may have come with that. */
static bool read_one_answer(struct tcp_path *path)
{
    int got = muster_tcp_read_greeting(path, MUSTER_ANSWER_SIZE);
    enum muster_verdict verdict = MUSTER_WELCOME;
    if (got < 0) {
        greeting_failed(path, errno);
        return false;
    }
    if (got == 0) {
        return false;
    }
    path->have = 0;
    if (muster_answer_decode(path->header, &verdict) != MUSTER_OK) {
        path->link->dialling.refused = true;
        go_on(path, muster_last_error());
        return false;
    }
    if (path->index > 0) {
        answered_other(path, verdict);
    } else {
        answered(path, verdict);
    }
    return verdict == MUSTER_WAIT;
}

void muster_tcp_read_answer(struct tcp_path *path)
{
    for (int i = 0; i < TCP_ANSWERS_MAX && read_one_answer(path); i++) {
    }
}
