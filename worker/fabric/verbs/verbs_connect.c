/*
 * Opens paths over RDMA: a TCP connection over which the ends exchange the attributes of their
 * queue pairs, and the proof that the queue pairs reach each other; and detects the end of that
 * connection.
 *
 * The first path opens the link. Its dialler then dials the others, and again those that are lost
 * or could not be opened. The i-th path connects the i-th device of the dialler with the i-th of
 * the acceptor, modulo their numbers of devices.
 */
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <utlist.h>

/* For the first bytes of a connection, when its send buffer is empty: false if not all are sent. */
static bool send_all(const struct muster_verbs_path *path, const unsigned char *bytes, size_t size)
{
    return send(path->pending.watch.fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* Returns as muster_pending_count_received() does. */
static int receive_greeting(struct muster_verbs_path *path, uint32_t size)
{
    ssize_t got = recv(path->pending.watch.fd, path->bytes + path->have, size - path->have, 0);
    return muster_pending_count_received(got, size, &path->have);
}

bool muster_verbs_answer(struct muster_pending_connection *pending, enum muster_verdict verdict)
{
    const struct muster_verbs_path *path = (const struct muster_verbs_path *)pending;
    unsigned char bytes[VERBS_ANSWER_SIZE] = {0};
    muster_answer_encode(verdict, bytes);
    if (verdict == MUSTER_WELCOME) {
        struct muster_verbs_greeting greeting;
        muster_verbs_greeting_of(path, &greeting);
        muster_verbs_greeting_encode(&greeting, bytes + MUSTER_ANSWER_SIZE);
    }
    return send_all(path, bytes, sizeof bytes);
}

/* Paths of a link ------------------------------------------------------------------------------ */

static bool is_opening(const struct muster_verbs_link *end)
{
    return end->link->state == MUSTER_LINK_OPENING;
}

static struct muster_verbs_device *device_of(const struct muster_verbs_link *end, uint32_t place)
{
    return &end->verbs->devices[place % end->verbs->device_count];
}

static void place_path(struct muster_verbs_path *path, struct muster_verbs_link *end,
                       uint32_t place)
{
    path->end = end;
    path->place = place;
    path->device = device_of(end, place);
    end->paths[place] = path;
    end->path_end = place < end->path_end ? end->path_end : place + 1;
}

static void path_missing(struct muster_verbs_link *end)
{
    muster_bundle_path_missing(&end->opening, &end->dialler, muster_verbs_count_usable(end));
}

/* The path cannot be opened: closes it, and the link tries another transport if this path was to
 * open it. False: the link is closed now. */
static bool drop_path(struct muster_verbs_path *path, const char *what)
{
    struct muster_verbs_link *end = path->end;
    if (is_opening(end)) {
        muster_link_try_next(end->link, what);
        return false;
    }
    muster_log(MUSTER_LOG_DEBUG, "peer=%u no further path over RDMA: %s", end->link->rank, what);
    bool drained = muster_verbs_drain(path, what);
    if (path->proven && (!drained || !muster_verbs_abandon_receives(path))) {
        /* Frames that followed the proof may be lost. */
        muster_link_fail(end->link, MUSTER_LINK_LOST, what);
        return false;
    }
    muster_verbs_path_close(path);
    muster_verbs_vacate(end); /* the peer may have opened it, and sent by it */
    path_missing(end);
    muster_link_mark(end->link);
    return true;
}

/* Tells the user that this member cannot have RDMA links or paths, and why: the fault is not one of
 * this pair only. A missing link is a warning. A missing further path is a warning once; later ones
 * are logged at level debug, until the link loses a path. */
static void log_unavailable(struct muster_verbs_link *end)
{
    bool again = !is_opening(end) && end->warned;
    end->warned = !is_opening(end);
    muster_log(again ? MUSTER_LOG_DEBUG : MUSTER_LOG_WARN, "peer=%u %s over RDMA: %s",
               end->link->rank, is_opening(end) ? "no link" : "no further path",
               muster_last_error());
}

/* The proof ------------------------------------------------------------------------------------ */

static void log_open(const struct muster_verbs_path *path)
{
    const struct muster_link *link = path->end->link;
    char there[MUSTER_ADDRESS_SIZE];
    struct muster_socket_address remote = {.size = sizeof remote.storage};
    (void)getpeername(path->pending.watch.fd, (struct sockaddr *)&remote.storage, &remote.size);
    muster_verbs_print_address(&remote, there);
    bool opens = is_opening(path->end);
    muster_log(opens ? MUSTER_LOG_INFO : MUSTER_LOG_DEBUG,
               "peer=%u host=%s %s over RDMA device %s to %s", link->rank, link->peer.host,
               opens ? "link" : "further path", path->device->name, there);
}

static void open_path(struct muster_verbs_path *path)
{
    struct muster_verbs_link *end = path->end;
    log_open(path);
    muster_pending_remove(&path->pending);
    if (!is_opening(end)) {
        muster_bundle_path_opened(&end->dialler);
        return;
    }
    end->opening.wanted = path->dialler ? end->verbs->connections : 0;
    end->dialler.redial_ns = end->opening.wanted > 1 ? muster_clock_ns() : MUSTER_NEVER;
    muster_link_opened(end->link);
}

/* The peer's greeting has arrived. The acceptor answers with its own; the dialler sends the proof.
 */
static muster_status connect_path(struct muster_verbs_path *path)
{
    path->connecting = false;
    muster_status status = muster_verbs_pair_connect(path);
    if (!path->dialler) {
        if (!muster_verbs_answer(&path->pending,
                                 status == MUSTER_OK ? MUSTER_WELCOME : MUSTER_REFUSED_VERBS)) {
            return muster_error_set(MUSTER_INVALID, "it closed the connection");
        }
    } else if (status == MUSTER_OK) {
        muster_verbs_send_proof(path);
    }
    return status;
}

/* The queue pairs do not reach each other. Returns as drop_path() does. */
static bool proof_failed(struct muster_verbs_path *path, const char *what)
{
    (void)muster_error_set(MUSTER_INVALID,
                           "%.90s: the network may carry no packets as large as the RDMA devices' "
                           "(MTU), or drop UDP port 4791",
                           what);
    log_unavailable(path->end);
    return drop_path(path, muster_last_error());
}

bool muster_verbs_prove(struct muster_verbs_path *path)
{
    if (path->pending.phase != MUSTER_PHASE_PROVING) {
        return true;
    }
    if (path->connecting && connect_path(path) != MUSTER_OK) {
        log_unavailable(path->end);
        return drop_path(path, muster_last_error());
    }
    if (path->failure[0] != '\0') {
        return proof_failed(path, path->failure);
    }
    if (path->proven) {
        if (!path->dialler) {
            muster_verbs_send_proof(path);
        }
        open_path(path);
    }
    return true;
}

void muster_verbs_timed_out(struct muster_pending_connection *pending)
{
    struct muster_verbs_path *path = (struct muster_verbs_path *)pending;
    if (pending->phase == MUSTER_PHASE_DIALLING) {
        (void)drop_path(path, "it cannot be reached in time");
    } else {
        (void)proof_failed(path, "nothing comes through between the RDMA devices");
    }
}

/* Dialling ----------------------------------------------------------------------------------- */

static bool is_verbs_address(const char *address)
{
    return muster_address_has_scheme(address, VERBS_SCHEME);
}

/* The peer's RDMA address for this place, modulo their number. */
static const char *find_address(const struct muster_verbs_link *end, uint32_t place)
{
    const struct muster_peer *peer = &end->link->peer;
    const char *found[MUSTER_ADDRESSES_MAX] = {""};
    uint32_t count = 0;
    for (uint32_t i = 0; i < peer->address_count; i++) {
        if (is_verbs_address(peer->addresses[i])) {
            found[count++] = peer->addresses[i];
        }
    }
    return found[count > 0 ? place % count : 0];
}

/* Does not dial if the port is down: the kernel would then try for a second to resolve the peer,
 * and the fabric would make no progress meanwhile. */
static struct muster_verbs_path *dial_path(struct muster_verbs_link *end, uint32_t place)
{
    struct muster_socket_address remote;
    if (muster_verbs_check_port(device_of(end, place)) != MUSTER_OK ||
        muster_verbs_parse_address(find_address(end, place), &remote) != MUSTER_OK) {
        return NULL;
    }
    AUTO_CLOSE_GUARDED int fd = MUSTER_GUARDED(
        socket(remote.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0 || (connect(fd, (const struct sockaddr *)&remote.storage, remote.size) != 0 &&
                   errno != EINPROGRESS)) {
        (void)muster_error_errno(MUSTER_INVALID, "it cannot be reached");
        return NULL;
    }
    struct muster_verbs_path *path =
        muster_verbs_path_create(end->verbs, TAKE_FD(fd), MUSTER_PHASE_DIALLING, EPOLLOUT);
    if (path == NULL) {
        (void)muster_error_set(MUSTER_FATAL, "out of memory");
        return NULL;
    }
    place_path(path, end, place);
    path->dialler = true;
    path->pending.deadline_ns = muster_clock_after_ms(VERBS_DIAL_MS);
    return path;
}

static void dial_missing(struct muster_verbs_link *end)
{
    for (uint32_t place = 0; place < end->opening.wanted; place++) {
        if (end->paths[place] == NULL && dial_path(end, place) == NULL) {
            log_unavailable(end);
            path_missing(end);
        }
    }
}

void muster_verbs_dial(struct muster_verbs_link *end)
{
    end->dialler.redial_ns = MUSTER_NEVER;
    if (!is_opening(end)) {
        dial_missing(end);
        return;
    }
    muster_random_bytes(&end->opening.ticket, sizeof end->opening.ticket);
    if (dial_path(end, 0) == NULL) {
        muster_link_try_next(end->link, muster_last_error());
    }
}

static void connection_closed(struct muster_verbs_path *path)
{
    if (is_opening(path->end)) {
        muster_pending_handle_close(&path->pending, path->end->link);
    } else {
        (void)drop_path(path, "it closes the connection without an answer");
    }
}

/* connect() has ended: creates the queue pair, then sends the hello with the greeting that
 * describes it. */
static void connected(struct muster_verbs_path *path)
{
    struct muster_verbs_link *end = path->end;
    unsigned char bytes[VERBS_HELLO_SIZE];
    struct muster_verbs_greeting greeting;
    int error = 0;
    socklen_t size = sizeof error;
    (void)getsockopt(path->pending.watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        (void)drop_path(path, strerror(error));
        return;
    }
    if (muster_verbs_pair_create(path) != MUSTER_OK) {
        log_unavailable(end);
        (void)drop_path(path, muster_last_error());
        return;
    }
    struct muster_hello hello = muster_hello_to(end->link);
    hello.ticket = end->opening.ticket;
    hello.index = is_opening(end) ? 0 : (uint8_t)(path->place + 1);
    hello.connections = (uint8_t)end->verbs->connections;
    muster_hello_encode(&hello, bytes);
    muster_verbs_greeting_of(path, &greeting);
    muster_verbs_greeting_encode(&greeting, bytes + MUSTER_HELLO_SIZE);
    path->pending.phase = MUSTER_PHASE_GREETING;
    path->pending.deadline_ns =
        MUSTER_NEVER; /* the peer may compute: only the caller's deadline counts */
    muster_watch_change(path->verbs->pending_list.fabric, &path->pending.watch, EPOLLIN);
    if (!send_all(path, bytes, sizeof bytes)) {
        connection_closed(path);
    }
}

/* The leader connects the queue pair when it progresses the link. */
static void connect_later(struct muster_verbs_path *path)
{
    muster_pending_await_proof(&path->pending);
    path->connecting = true;
    muster_link_mark(path->end->link);
}

static void handle_answer(struct muster_verbs_path *path)
{
    enum muster_verdict verdict;
    muster_status status = muster_answer_decode(path->bytes, &verdict);
    if (status == MUSTER_FATAL && is_opening(path->end)) {
        muster_link_fail(path->end->link, MUSTER_LINK_LOST, muster_last_error());
    } else if (status != MUSTER_OK) {
        (void)drop_path(path, "its answer is not that of a Muster peer");
    } else if (verdict == MUSTER_WAIT) {
        path->have = 0;
    } else if (verdict != MUSTER_WELCOME && is_opening(path->end)) {
        muster_pending_handle_refusal(&path->pending, path->end->link, verdict);
    } else if (verdict != MUSTER_WELCOME) {
        (void)drop_path(path, muster_verdict_text(verdict));
    } else if (muster_verbs_greeting_decode(path->bytes + MUSTER_ANSWER_SIZE, &path->peer) !=
               MUSTER_OK) {
        (void)drop_path(path, muster_last_error());
    } else {
        connect_later(path);
    }
}

static void read_answer(struct muster_verbs_path *path)
{
    int got = receive_greeting(path, VERBS_ANSWER_SIZE);
    if (got < 0) {
        connection_closed(path);
    } else if (got > 0) {
        handle_answer(path);
    }
}

/* Accepting ---------------------------------------------------------------------------------- */

/* Accepts a path: refuses it at once, or answers later, when the queue pair is connected. */
static void accept_path(struct muster_verbs_path *path, struct muster_verbs_link *end,
                        uint32_t place)
{
    place_path(path, end, place);
    if (muster_verbs_check_port(path->device) == MUSTER_OK &&
        muster_verbs_pair_create(path) == MUSTER_OK) {
        connect_later(path);
        return;
    }
    log_unavailable(end);
    (void)muster_verbs_answer(&path->pending, MUSTER_REFUSED_VERBS);
    (void)drop_path(path, muster_last_error());
}

/* The peer dials one more path of an open link. */
static void admit_further_path(struct muster_verbs_path *path, struct muster_link *link)
{
    struct muster_verbs_link *end = muster_bundle_open_end(&path->pending, link);
    uint32_t place = path->pending.hello.index - 1U;
    if (end == NULL || place >= VERBS_PATHS_MAX ||
        end->opening.ticket != path->pending.hello.ticket || end->paths[place] != NULL) {
        (void)muster_verbs_answer(&path->pending, MUSTER_REFUSED_CROSSED);
        muster_verbs_path_close(path);
        return;
    }
    accept_path(path, end, place);
}

void muster_verbs_admit(struct muster_pending_connection *pending, struct muster_link *link)
{
    struct muster_verbs_path *path = (struct muster_verbs_path *)pending;
    if (pending->hello.index > 0) {
        admit_further_path(path, link);
        return;
    }
    if (!muster_pending_claim_link(pending, link)) {
        return;
    }
    struct muster_verbs_link *end = link->end;
    if (end->paths[0] != NULL) {
        muster_verbs_path_close(end->paths[0]);
    }
    end->opening.ticket = pending->hello.ticket;
    accept_path(path, end, 0);
}

static void read_hello(struct muster_verbs_path *path)
{
    int got = receive_greeting(path, VERBS_HELLO_SIZE);
    if (got < 0) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_SILENT);
    } else if (!muster_hello_begins(path->bytes, path->have) ||
               (got > 0 && muster_verbs_greeting_decode(path->bytes + MUSTER_HELLO_SIZE,
                                                        &path->peer) != MUSTER_OK)) {
        muster_pending_refuse(&path->pending, MUSTER_REJECTED_GARBAGE);
    } else if (got > 0) {
        muster_pending_check_hello(&path->pending, path->bytes);
    }
}

/* Open ----------------------------------------------------------------------------------------- */

/* Reads the byte that announces a close, or the end of the connection. */
static void read_end(struct muster_verbs_path *path)
{
    unsigned char byte = 0;
    ssize_t got = recv(path->pending.watch.fd, &byte, 1, 0);
    if (got == 1) {
        path->peer_leaving = true;
        return;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    const char *what = got == 0 ? "it closed the connection without goodbye" : strerror(errno);
    if (path->pending.phase == MUSTER_PHASE_OPEN) {
        (void)muster_verbs_connection_ended(path, what);
        return;
    }
    /* The proof may have arrived before, and frames after it. */
    struct muster_verbs_link *end = path->end;
    uint32_t place = path->place;
    muster_verbs_handle_all(path->verbs);
    if (!path->proven) {
        (void)proof_failed(path, "it gives up the RDMA connection");
    } else if (muster_verbs_prove(path) && end->paths[place] == path) {
        (void)muster_verbs_connection_ended(path, what);
    }
}

/* Handles an event of the TCP connection by its phase. */
void muster_verbs_path_ready(struct muster_watch *watch, uint32_t events)
{
    struct muster_verbs_path *path = (struct muster_verbs_path *)watch;
    (void)events;
    switch (path->pending.phase) {
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
        muster_pending_refuse(
            &path->pending,
            MUSTER_REJECTED_SILENT); /* most likely the peer has closed the connection */
        break;
    case MUSTER_PHASE_PROVING:
    case MUSTER_PHASE_OPEN:
        read_end(path);
        break;
    }
}
