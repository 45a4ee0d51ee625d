/*
 * Dialling: finds the peer's address that carries the link. Addresses are dialled in the order of
 * muster_addresses_order(), each TCP_STAGGER_MS after the one before it, or as soon as that has
 * failed ("happy eyeballs", RFC 8305, section 5). The first at which the peer itself answers
 * carries the link; the other attempts are closed. An attempt that reaches another member has
 * failed: bridges have the same address on many hosts.
 */
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/fabric/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

static void lose_link(struct muster_tcp_link *end, const char *what)
{
    muster_link_fail(end->link, MUSTER_LINK_LOST, what);
}

/* Adds the reason to the error text. */
static void note_failure(struct muster_tcp_link *end, const char *address, const char *what)
{
    char *failures = end->dialling.failures;
    size_t used = strlen(failures);
    (void)snprintf(failures + used, MUSTER_REASON_SIZE - used, "%s%s: %s", used == 0 ? "" : "; ",
                   address, what);
}

static void note_error(struct muster_tcp_link *end, const struct muster_socket_address *remote,
                       int error)
{
    char address[MUSTER_ADDRESS_SIZE];
    muster_address_print(remote, address);
    end->dialling.refused = end->dialling.refused || error == ECONNREFUSED;
    end->dialling.out_of_descriptors =
        end->dialling.out_of_descriptors || muster_is_out_of_descriptors(error);
    note_failure(end, address, strerror(error));
}

/* One attempt -------------------------------------------------------------------------------- */

/* Returns 0, or an error number. */
static int dial_address(struct muster_tcp_link *end, const struct muster_socket_address *address,
                        uint32_t index)
{
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int fd = MUSTER_GUARDED(socket(address->storage.ss_family, type, 0));
    int failed = fd < 0 ? errno : 0;
    if (muster_is_out_of_descriptors(failed) && muster_pending_make_room(&end->tcp->pending_list)) {
        fd = MUSTER_GUARDED(socket(address->storage.ss_family, type, 0));
        failed = fd < 0 ? errno : 0;
    }
    if (fd < 0) {
        return failed;
    }
    if (connect(fd, (const struct sockaddr *)&address->storage, address->size) != 0 &&
        errno != EINPROGRESS) {
        int error = errno;
        muster_fork_guard_close(fd);
        return error;
    }
    struct muster_tcp_path *path =
        muster_tcp_path_create(end->tcp, fd, MUSTER_PHASE_DIALLING, EPOLLOUT);
    if (path == NULL) {
        return ENOMEM;
    }
    path->remote = *address;
    path->end = end;
    path->index = index;
    path->pending.deadline_ns = muster_clock_after_ms(TCP_DIAL_MS);
    if (index == 0) {
        struct muster_tcp_dialling *dialling = &end->dialling;
        dialling->attempts[dialling->attempt_count++] = path;
        if (dialling->attempts_deadline_ns < path->pending.deadline_ns) {
            path->pending.deadline_ns = dialling->attempts_deadline_ns;
        }
    }
    return 0;
}

/* The other connections of a bundle ---------------------------------------------------------- */

static void note_missing(struct muster_tcp_link *end)
{
    muster_bundle_path_missing(&end->opening, &end->dialler, end->path_count);
}

static uint32_t count_pending(const struct muster_tcp_link *end)
{
    uint32_t count = 0;
    const struct muster_pending_connection *pending = NULL;
    DL_FOREACH(end->tcp->pending_list.list, pending)
    {
        count += ((const struct muster_tcp_path *)pending)->end == end;
    }
    return count;
}

/* Dials the missing connections of a bundle, at the address of the first one. */
static void dial_further(struct muster_tcp_link *end)
{
    uint32_t have = end->path_count + count_pending(end);
    for (uint32_t i = have; i < end->opening.wanted; i++) {
        if (dial_address(end, &end->dialled_address, i) != 0) {
            note_missing(end);
        }
    }
}

/* All addresses ------------------------------------------------------------------------------ */

/* No attempt is pending, and no address is left: decides whether to retry, to wait, or to lose the
 * link. */
static void no_attempt_left(struct muster_tcp_link *end)
{
    struct muster_tcp_dialling *dialling = &end->dialling;
    if (dialling->out_of_descriptors && end->tcp->pending_list.hello_count > 0 &&
        muster_dialler_retry(&end->dialler)) {
        return; /* unidentified connections use some descriptors, but not for long */
    }
    if (dialling->out_of_descriptors) {
        muster_link_out_of_descriptors(end->link, dialling->failures);
        return;
    }
    if (dialling->crossed) {
        muster_dialler_crossed(&end->dialler);
        return;
    }
    if (dialling->peer_closed && muster_dialler_retry(&end->dialler)) {
        return;
    }
    if (!dialling->refused && !dialling->peer_closed &&
        muster_clock_ns() < dialling->await_peer_until_ns) {
        dialling->awaiting_peer = true; /* the peer may be able to dial this member */
        end->dialler.redial_ns = dialling->await_peer_until_ns;
        return;
    }
    lose_link(end, dialling->count > 0 ? dialling->failures : "it has no TCP address");
}

/* Dials the next address at which connect() does not fail at once. */
static void dial_next_address(struct muster_tcp_link *end)
{
    struct muster_tcp_dialling *dialling = &end->dialling;
    const struct muster_peer *peer = &end->link->peer;
    while (dialling->next < dialling->count) {
        const char *text = peer->addresses[dialling->order[dialling->next++]];
        struct muster_socket_address address;
        if (muster_address_parse(text, &address) != MUSTER_OK) {
            note_failure(end, text, "cannot be read");
            continue;
        }
        int error = dial_address(end, &address, 0);
        if (error == 0) {
            bool more = dialling->next < dialling->count;
            end->dialler.redial_ns = more ? muster_clock_after_ms(TCP_STAGGER_MS) : MUSTER_NEVER;
            return;
        }
        note_error(end, &address, error);
    }
    end->dialler.redial_ns = MUSTER_NEVER;
    if (dialling->attempt_count == 0) {
        no_attempt_left(end);
    }
}

void muster_tcp_dial(struct muster_tcp_link *end)
{
    const struct muster_fabric *fabric = end->tcp->pending_list.fabric;
    struct muster_tcp_dialling *dialling = &end->dialling;
    const struct muster_peer *peer = &end->link->peer;
    memset(dialling, 0, sizeof *dialling);
    dialling->await_peer_until_ns = muster_clock_after_ms(TCP_DIAL_MS);
    dialling->attempts_deadline_ns = muster_clock_after_ms(TCP_REACH_MS);
    dialling->count = muster_addresses_order(
        &end->tcp->host_addresses, peer, strcmp(peer->host, fabric->host) == 0, dialling->order);
    muster_random_bytes(&end->opening.ticket, sizeof end->opening.ticket);
    end->opening.ticket |= 1; /* 0 is none */
    dial_next_address(end);
}

void muster_tcp_dial_due(struct muster_tcp_link *end)
{
    const struct muster_tcp_dialling *dialling = &end->dialling;
    if (end->link->state == MUSTER_LINK_OPEN) {
        dial_further(end);
    } else if (dialling->next < dialling->count) {
        dial_next_address(end);
    } else if (dialling->awaiting_peer) {
        lose_link(end, dialling->failures);
    } else {
        muster_tcp_dial(end);
    }
}

/* The attempt has failed. If it was an attempt to open the link, dials the next address. */
static void attempt_failed(struct muster_tcp_path *path, const char *what)
{
    char address[MUSTER_ADDRESS_SIZE];
    struct muster_tcp_link *end = path->end;
    bool first = path->index == 0;
    muster_address_print(&path->remote, address);
    note_failure(end, address, what);
    muster_tcp_path_close(path);
    if (first) {
        dial_next_address(end);
    } else {
        note_missing(end);
    }
}

void muster_tcp_dial_failed(struct muster_tcp_path *path, int error)
{
    path->end->dialling.refused = path->end->dialling.refused || error == ECONNREFUSED;
    attempt_failed(path, strerror(error));
}

/* Hello and answer --------------------------------------------------------------------------- */

static void await_answer(struct muster_tcp_path *path)
{
    path->pending.phase = MUSTER_PHASE_GREETING;
    path->pending.deadline_ns = MUSTER_NEVER; /* a peer that computes answers later */
    muster_tcp_path_watch(path, false);
}

static void send_hello(struct muster_tcp_path *path)
{
    struct muster_tcp_link *end = path->end;
    struct muster_hello hello = muster_hello_to(end->link);
    hello.ticket = end->opening.ticket;
    hello.index = (uint8_t)path->index;
    hello.connections = (uint8_t)path->tcp->connections;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    muster_hello_encode(&hello, bytes);
    errno = EPROTO;
    /* A peer that refuses the certificate closes the connection, but its alert is still to be read.
     */
    if (!muster_tcp_path_send_all(path, bytes, sizeof bytes) && path->tls == NULL) {
        muster_tcp_dial_failed(path, errno);
        return;
    }
    await_answer(path);
    if (path->index == 0 && end->dialling.next < end->dialling.count) {
        end->dialler.redial_ns = muster_clock_after_ms(TCP_ANSWER_STAGGER_MS);
    }
}

/* The peer has closed the connection before it answered, or TLS has failed. */
static void greeting_failed(struct muster_tcp_path *path, int error)
{
    struct muster_tcp_dialling *dialling = &path->end->dialling;
    if (path->tls != NULL && error != 0 && !muster_tls_is_disconnected(path->tls)) {
        dialling->refused = true;
    } else {
        dialling->peer_closed = true; /* the peer may have too many pending connections */
    }
    attempt_failed(path, error == 0 ? "it closes the connection without an answer"
                                    : muster_tcp_path_error(path, error));
}

/* Continues the TLS handshake of an attempt. When it is complete, or not needed, sends the hello;
 * if the peer answers in plain text, waits for its refusal. */
static void secure(struct muster_tcp_path *path)
{
    switch (muster_tcp_secure_dialled(path)) {
    case TCP_TLS_READY:
        send_hello(path);
        break;
    case TCP_TLS_PLAIN:
        if (path->tls != NULL) {
            muster_tls_channel_destroy(TAKE(path->tls));
            await_answer(path); /* the plain answer is a refusal */
        } else {
            send_hello(path);
        }
        break;
    case TCP_TLS_PENDING:
        break;
    case TCP_TLS_FAILED:
        if (path->tls == NULL) {
            muster_tcp_dial_failed(path, errno);
        } else {
            greeting_failed(path, EPROTO);
        }
    }
}

void muster_tcp_connected(struct muster_tcp_path *path)
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

/* The answer is "crossed": the peer dials this member, or has accepted another attempt. Attempts
 * whose hello has been sent are kept, because the accepted one is among them. */
static void cross_attempts(struct muster_tcp_path *path)
{
    struct muster_tcp_link *end = path->end;
    struct muster_tcp_dialling *dialling = &end->dialling;
    dialling->crossed = true;
    dialling->next = dialling->count;
    muster_tcp_path_close(path);
    for (uint32_t i = dialling->attempt_count; i > 0; i--) {
        if (dialling->attempts[i - 1]->pending.phase == MUSTER_PHASE_DIALLING) {
            muster_tcp_path_close(dialling->attempts[i - 1]);
        }
    }
    dial_next_address(end);
}

/* The peer's answer to an attempt to open the link: opens it, waits, tries the next address, or
 * loses it. */
static void handle_verdict(struct muster_tcp_path *path, enum muster_verdict verdict)
{
    struct muster_tcp_link *end = path->end;
    switch (verdict) {
    case MUSTER_WELCOME:
        end->dialled_address = path->remote;
        end->opening.wanted = path->tcp->connections;
        muster_tcp_open_link(path, end, path->tcp->connections);
        dial_further(end);
        break;
    case MUSTER_WAIT:
        end->dialler.redial_ns = MUSTER_NEVER;
        muster_tcp_attempts_close(end, path);
        break;
    case MUSTER_REFUSED_CROSSED:
        cross_attempts(path);
        break;
    case MUSTER_REFUSED_LOST: /* the peer itself has lost the link */
        lose_link(end, muster_verdict_text(verdict));
        break;
    case MUSTER_REFUSED_VERSION:
    case MUSTER_REFUSED_TOKEN:
    case MUSTER_REFUSED_UNKNOWN:
    case MUSTER_REFUSED_MEMORY:
    case MUSTER_REFUSED_TLS:
    case MUSTER_REFUSED_PLAIN:
    case MUSTER_REFUSED_VERBS:
    case MUSTER_REFUSED_RANK:
        end->dialling.refused = true;
        attempt_failed(path, muster_verdict_text(verdict));
    }
}

/* The answer for one more connection of a bundle. There is no room for it if the peer has dialled
 * connections, too, which violates the protocol. */
static void handle_further_verdict(struct muster_tcp_path *path, enum muster_verdict verdict)
{
    struct muster_tcp_link *end = path->end;
    if (verdict == MUSTER_WELCOME && end->path_count < MUSTER_CONNECTIONS_MAX) {
        muster_tcp_add_path(path, end);
    } else if (verdict != MUSTER_WAIT) {
        muster_tcp_path_close(path);
        note_missing(end);
    }
}

/* True: the answer is "wait", and another answer may follow at once. */
static bool read_one_answer(struct muster_tcp_path *path)
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
        path->end->dialling.refused = true;
        attempt_failed(path, muster_last_error());
        return false;
    }
    if (path->index > 0) {
        handle_further_verdict(path, verdict);
    } else {
        handle_verdict(path, verdict);
    }
    return verdict == MUSTER_WAIT;
}

void muster_tcp_read_answer(struct muster_tcp_path *path)
{
    for (int i = 0; i < TCP_ANSWERS_MAX && read_one_answer(path); i++) {
    }
}
