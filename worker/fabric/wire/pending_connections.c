/* Pending connections: their records, hellos, deadlines and retries. */
#include "worker/fabric/wire/pending_connections.h"

#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"
#include "worker/fabric/known_peers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

/* A connection that was accepted less than 100 ms ago may be a member's whose hello is still on the
 * way: it is not closed to make room. */
static const int64_t protected_ns = (MUSTER_HELLO_MS - 100) * INT64_C(1000000);

static const int64_t warn_interval_ns = INT64_C(60) * 1000 * 1000 * 1000;

/* Records ------------------------------------------------------------------------------------ */

void *muster_pending_create(struct muster_pending_connections *pending_list, size_t size_bytes,
                            enum muster_phase phase, const struct muster_watch *watch)
{
    struct muster_pending_connection *pending = calloc(1, size_bytes);
    if (pending == NULL) {
        muster_fork_guard_close(watch->fd);
        return NULL;
    }
    pending->pending_list = pending_list;
    pending->watch = *watch;
    pending->watch.ready = pending_list->ops->connection.ready;
    pending->phase = phase;
    pending->deadline_ns = MUSTER_NEVER;
    if (muster_watch_add(pending_list->fabric, &pending->watch) != MUSTER_OK) {
        muster_fork_guard_close(pending->watch.fd);
        free(pending);
        return NULL;
    }
    DL_APPEND(pending_list->list, pending);
    pending_list->hello_count += phase == MUSTER_PHASE_HELLO;
    return pending;
}

static void leave_phase(const struct muster_pending_connection *pending)
{
    pending->pending_list->hello_count -= pending->phase == MUSTER_PHASE_HELLO;
    pending->pending_list->parked_count -= pending->phase == MUSTER_PHASE_PARKED;
}

bool muster_pending_is_closed(const struct muster_pending_connection *pending)
{
    struct pollfd query = {.fd = pending->watch.fd, .events = POLLRDHUP};
    return poll(&query, 1, 0) == 1 && (query.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void muster_pending_remove(struct muster_pending_connection *pending)
{
    if (pending->phase == MUSTER_PHASE_OPEN) {
        return;
    }
    leave_phase(pending);
    DL_DELETE(pending->pending_list->list, pending);
    pending->phase = MUSTER_PHASE_OPEN;
    pending->deadline_ns = MUSTER_NEVER;
}

void muster_pending_await_proof(struct muster_pending_connection *pending)
{
    leave_phase(pending);
    pending->phase = MUSTER_PHASE_PROVING;
    pending->deadline_ns = muster_clock_after_ms(MUSTER_HELLO_MS);
}

void muster_pending_refuse_because(struct muster_pending_connection *pending,
                                   enum muster_rejection kind, const char *why)
{
    char from[MUSTER_ADDRESS_SIZE];
    struct muster_pending_connections *pending_list = pending->pending_list;
    muster_address_print_as(pending_list->ops->name, &pending->remote, from);
    muster_rejections_note(&pending_list->rejections, kind, from, why, muster_clock_ns());
    pending_list->fabric->figures.connections_rejected++;
    pending_list->ops->connection.close(pending);
}

void muster_pending_refuse(struct muster_pending_connection *pending, enum muster_rejection kind)
{
    muster_pending_refuse_because(pending, kind, NULL);
}

/* Hellos ------------------------------------------------------------------------------------- */

int muster_pending_count_received(ssize_t got, uint32_t size_bytes, uint32_t *have)
{
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    if (got == 0) {
        errno = 0;
        return -1;
    }
    *have += (uint32_t)got;
    return *have == size_bytes;
}

void muster_pending_refuse_with(struct muster_pending_connection *pending,
                                enum muster_verdict verdict, enum muster_rejection kind)
{
    (void)pending->pending_list->ops->connection.answer(pending, verdict); /* best effort */
    muster_pending_refuse(pending, kind);
}

/* Whether another connection of the same opening is parked already. A member that dials several
 * addresses at once keeps the connection that is answered "wait". */
static bool is_parked_already(const struct muster_pending_connection *pending)
{
    const struct muster_pending_connection *each = NULL;
    DL_FOREACH(pending->pending_list->list, each)
    {
        if (each->phase == MUSTER_PHASE_PARKED && pending->hello.ticket != 0 &&
            each->hello.ticket == pending->hello.ticket &&
            each->hello.index == pending->hello.index &&
            strcmp(each->hello.from, pending->hello.from) == 0) {
            return true;
        }
    }
    return false;
}

/* Parks the connection and answers "wait", so that the peer knows that it has found this member. */
static void park(struct muster_pending_connection *pending)
{
    struct muster_pending_connections *pending_list = pending->pending_list;
    if (pending->phase == MUSTER_PHASE_PARKED) {
        return;
    }
    if (is_parked_already(pending)) {
        (void)pending_list->ops->connection.answer(pending, MUSTER_REFUSED_CROSSED);
        pending_list->ops->connection.close(pending);
        return;
    }
    if (pending_list->parked_count >= MUSTER_PARKED_MAX) {
        muster_pending_refuse(pending, MUSTER_REJECTED_TOO_MANY);
        return;
    }
    leave_phase(pending);
    pending_list->parked_count++;
    pending->phase = MUSTER_PHASE_PARKED;
    pending->deadline_ns = muster_clock_after_ms(MUSTER_PARKED_MS);
    if (!pending_list->ops->connection.answer(pending, MUSTER_WAIT)) {
        pending_list->ops->connection.close(pending); /* the peer sees the end, and dials again */
    }
}

/* The member has the token, and is another rank than this member knows: this generation cannot work
 * with it. A link that is open stays, as it has proved itself. */
static void refuse_rank(struct muster_pending_connection *pending, struct muster_link *link)
{
    char why[MUSTER_REASON_SIZE];
    (void)snprintf(why, sizeof why, "%.200s", muster_last_error());
    (void)pending->pending_list->ops->connection.answer(pending, MUSTER_REFUSED_RANK);
    muster_pending_refuse_because(pending, MUSTER_REJECTED_RANK, why);
    if (link->state != MUSTER_LINK_OPEN) {
        muster_link_fail(link, MUSTER_LINK_LOST, why);
    }
}

/* The link token is compared first, so that the answer to a stranger reveals nothing else. Before
 * the first generation this member does not know the token, so the connection is parked. */
static void check_hello(struct muster_pending_connection *pending)
{
    struct muster_pending_connections *pending_list = pending->pending_list;
    struct muster_fabric *fabric = pending_list->fabric;
    const struct muster_hello *hello = &pending->hello;
    bool for_us = strcmp(hello->to, fabric->member) == 0;
    if (fabric->closing) {
        pending_list->ops->connection.close(pending);
        return;
    }
    if (fabric->generation == 0 && for_us) {
        park(pending);
        return;
    }
    if (fabric->generation > 0 && !muster_token_equal(hello->token, fabric->token)) {
        muster_pending_refuse_with(pending, MUSTER_REFUSED_TOKEN, MUSTER_REJECTED_TOKEN);
        return;
    }
    struct muster_link *link =
        for_us ? muster_known_peers_hear_of(fabric, hello->from, hello->generation, hello->rank)
               : NULL;
    if (link != NULL && muster_link_told_rank(link, hello->generation, hello->rank) != MUSTER_OK) {
        refuse_rank(pending, link);
    } else if (link != NULL) {
        pending_list->ops->connection.admit(pending, link);
    } else if (for_us && hello->generation > fabric->generation) {
        park(pending);
    } else {
        muster_pending_refuse_with(pending, MUSTER_REFUSED_UNKNOWN, MUSTER_REJECTED_UNKNOWN);
    }
}

/* The text of the error names both versions; answering may replace it. */
static void refuse_version(struct muster_pending_connection *pending)
{
    char why[MUSTER_REASON_SIZE];
    (void)snprintf(why, sizeof why, "%s", muster_last_error());
    (void)pending->pending_list->ops->connection.answer(pending, MUSTER_REFUSED_VERSION);
    muster_pending_refuse_because(pending, MUSTER_REJECTED_VERSION, why);
}

void muster_pending_check_hello(struct muster_pending_connection *pending,
                                const unsigned char bytes[MUSTER_HELLO_SIZE])
{
    switch (muster_hello_decode(bytes, &pending->hello)) {
    case MUSTER_OK:
        check_hello(pending);
        break;
    case MUSTER_FATAL:
        refuse_version(pending);
        break;
    default:
        muster_pending_refuse(pending, MUSTER_REJECTED_GARBAGE);
    }
}

void muster_pending_connections_check_parked(struct muster_pending_connections *pending_list)
{
    struct muster_pending_connection *pending = NULL;
    struct muster_pending_connection *next = NULL;
    DL_FOREACH_SAFE(pending_list->list, pending, next)
    {
        if (pending->phase == MUSTER_PHASE_PARKED) {
            check_hello(pending);
        }
    }
}

void muster_pending_handle_refusal(struct muster_pending_connection *pending,
                                   struct muster_link *link, enum muster_verdict verdict)
{
    switch (verdict) {
    case MUSTER_REFUSED_CROSSED:
        pending->pending_list->ops->connection.close(pending);
        muster_dialler_crossed(link->end);
        break;
    case MUSTER_REFUSED_VERSION:
    case MUSTER_REFUSED_TOKEN:
    case MUSTER_REFUSED_UNKNOWN:
    case MUSTER_REFUSED_LOST:
    case MUSTER_REFUSED_RANK:
        muster_link_fail(link, MUSTER_LINK_LOST, muster_verdict_text(verdict));
        break;
    default:
        muster_link_try_next(link, muster_verdict_text(verdict));
    }
}

void muster_pending_handle_close(struct muster_pending_connection *pending,
                                 struct muster_link *link)
{
    pending->pending_list->ops->connection.close(pending);
    if (!muster_dialler_retry(link->end)) {
        muster_link_try_next(link, "it closes the connection without an answer");
    }
}

/* Opening links ------------------------------------------------------------------------------ */

bool muster_pending_begin_link(struct muster_pending_connections *pending_list,
                               struct muster_link *link)
{
    struct muster_dialler *end = calloc(1, pending_list->ops->connection.end_size_bytes);
    if (end == NULL) {
        muster_link_fail(link, MUSTER_LINK_LOST, "out of memory");
        return false;
    }
    link->end = end;
    link->state = MUSTER_LINK_OPENING;
    pending_list->ops->connection.init_end(link);
    end->redial_ns = MUSTER_NEVER;
    DL_APPEND(pending_list->diallers, end);
    return true;
}

/* Accepting ---------------------------------------------------------------------------------- */

static void reject_oldest(struct muster_pending_connections *pending_list)
{
    struct muster_pending_connection *pending = NULL;
    DL_FOREACH(pending_list->list, pending)
    {
        if (pending->phase == MUSTER_PHASE_HELLO) {
            muster_pending_refuse(pending, MUSTER_REJECTED_TOO_MANY);
            return;
        }
    }
}

bool muster_pending_make_room(struct muster_pending_connections *pending_list)
{
    int64_t now_ns = muster_clock_ns();
    struct muster_pending_connection *pending = NULL;
    if (pending_list->fabric->busy) {
        return false; /* the leader may be using the connection that would be closed */
    }
    DL_FOREACH(pending_list->list, pending)
    {
        if (pending->phase == MUSTER_PHASE_HELLO) {
            int64_t left_ns = pending->deadline_ns - now_ns;
            if (!pending->extended && left_ns > protected_ns) {
                return false; /* the oldest one has just been accepted, and the others after it */
            }
            muster_pending_refuse(pending, MUSTER_REJECTED_TOO_MANY);
            return true;
        }
    }
    return false;
}

static void watch_listeners(struct muster_pending_connections *pending_list, uint32_t events)
{
    for (struct muster_listener *each = pending_list->listeners; each != NULL; each = each->next) {
        muster_watch_change(pending_list->fabric, &each->watch, events);
    }
}

/* Records that this process is out of descriptors, unless a connection is in phase HELLO: that one
 * is closed at its deadline, which frees a descriptor. */
static void note_out_of_descriptors(struct muster_pending_connections *pending_list, int error)
{
    struct muster_fabric *fabric = pending_list->fabric;
    int64_t now_ns = muster_clock_ns();
    if (!muster_is_out_of_descriptors(error) || pending_list->hello_count > 0) {
        return;
    }
    if (!fabric->lost) {
        (void)snprintf(
            fabric->out_of_descriptors, sizeof fabric->out_of_descriptors,
            "this process has no descriptor left for a peer's connection (ulimit -n): %s",
            strerror(error));
    }
    if (now_ns >= pending_list->warn_again_ns) {
        pending_list->warn_again_ns = now_ns + warn_interval_ns;
        muster_log(MUSTER_LOG_WARN, "no descriptor left for a peer's connection (ulimit -n): %s",
                   strerror(error));
    }
}

static void pause_accepting(struct muster_pending_connections *pending_list, int error)
{
    note_out_of_descriptors(pending_list, error);
    pending_list->accept_again_ns = muster_clock_after_ms(MUSTER_ACCEPT_PAUSE_MS);
    watch_listeners(pending_list, 0);
}

static bool is_shortage(int error)
{
    return muster_is_out_of_descriptors(error) || error == ENOMEM || error == ENOBUFS;
}

/* Accepts up to a bound. Where descriptors or memory have run out, a connection without a hello is
 * closed first; else accepting pauses. */
static void accept_ready(struct muster_watch *watch, uint32_t events)
{
    struct muster_pending_connections *pending_list =
        ((struct muster_listener *)watch)->pending_list;
    (void)events;
    for (int i = 0; i < MUSTER_ACCEPTS_MAX && !watch->retired; i++) {
        struct muster_socket_address remote = {.size = sizeof remote.storage};
        int fd = MUSTER_GUARDED(accept4(watch->fd, (struct sockaddr *)&remote.storage, &remote.size,
                                        SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0) {
            int error = errno;
            if (is_shortage(error) && muster_pending_make_room(pending_list)) {
                continue;
            }
            if (is_shortage(error)) {
                pause_accepting(pending_list, error);
            }
            return;
        }
        if (!pending_list->fabric->lost) {
            pending_list->fabric->out_of_descriptors[0] = '\0'; /* there is room again */
        }
        if (pending_list->hello_count >= MUSTER_PENDING_MAX) {
            reject_oldest(pending_list);
        }
        struct muster_pending_connection *pending =
            pending_list->ops->connection.create(pending_list, fd, &remote);
        if (pending != NULL) {
            pending->deadline_ns = muster_clock_after_ms(MUSTER_HELLO_MS);
            pending->remote = remote;
        }
    }
}

/* Time --------------------------------------------------------------------------------------- */

static void time_out(struct muster_pending_connection *pending)
{
    if (pending->phase == MUSTER_PHASE_HELLO) {
        muster_pending_refuse(pending, MUSTER_REJECTED_SLOW);
    } else if (pending->phase == MUSTER_PHASE_PARKED) {
        muster_pending_refuse(pending, MUSTER_REJECTED_NO_GENERATION);
    } else {
        pending->pending_list->ops->connection.timed_out(pending);
    }
}

/* See muster_pending_connections_timers(): a member that has made no progress for seconds, because
 * it computed or had no core, must not count that as the peer's silence. */
static bool extend_deadline(struct muster_pending_connection *pending)
{
    struct pollfd query = {.fd = pending->watch.fd,
                           .events = (pending->watch.events & EPOLLOUT) != 0 ? POLLOUT : POLLIN};
    if (pending->extended || poll(&query, 1, 0) != 1) {
        return false;
    }
    pending->extended = true;
    pending->deadline_ns = muster_clock_after_ms(MUSTER_HELLO_MS);
    return true;
}

static int64_t handle_deadlines(struct muster_pending_connections *pending_list, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct muster_pending_connection *pending = pending_list->list;
    while (pending != NULL) {
        if (pending->deadline_ns <= now_ns && !extend_deadline(pending)) {
            time_out(pending);
            pending = pending_list->list; /* time_out() may have closed other connections, too */
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = pending->deadline_ns < due_ns ? pending->deadline_ns : due_ns;
        pending = pending->next;
    }
    return due_ns;
}

static int64_t dial_due(struct muster_pending_connections *pending_list, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    struct muster_dialler *dialler = pending_list->diallers;
    while (dialler != NULL) {
        if (dialler->redial_ns <= now_ns) {
            dialler->redial_ns = MUSTER_NEVER;
            pending_list->ops->connection.dial(dialler);
            dialler = pending_list->diallers;
            due_ns = MUSTER_NEVER;
            continue;
        }
        due_ns = dialler->redial_ns < due_ns ? dialler->redial_ns : due_ns;
        dialler = dialler->next;
    }
    return due_ns;
}

int64_t muster_pending_connections_timers(struct muster_pending_connections *pending_list,
                                          int64_t now_ns)
{
    int64_t due_ns = handle_deadlines(pending_list, now_ns);
    int64_t redial_ns = dial_due(pending_list, now_ns);
    if (pending_list->accept_again_ns <= now_ns) {
        pending_list->accept_again_ns = MUSTER_NEVER;
        watch_listeners(pending_list, EPOLLIN);
    }
    due_ns = redial_ns < due_ns ? redial_ns : due_ns;
    return pending_list->accept_again_ns < due_ns ? pending_list->accept_again_ns : due_ns;
}

/* Beginning and end -------------------------------------------------------------------------- */

void muster_pending_connections_init(struct muster_pending_connections *pending_list,
                                     struct muster_fabric *fabric,
                                     const struct muster_transport *ops)
{
    pending_list->fabric = fabric;
    pending_list->ops = ops;
    pending_list->accept_again_ns = MUSTER_NEVER;
}

/* Frees a listener; the last one also frees the transport's object. */
static void free_listener(struct muster_watch *watch)
{
    struct muster_listener *listener = (struct muster_listener *)watch;
    struct muster_pending_connections *pending_list = listener->pending_list;
    LL_DELETE(pending_list->listeners, listener);
    free(listener);
    if (pending_list->listeners == NULL) {
        pending_list->ops->connection.free(pending_list);
    }
}

muster_status muster_pending_connections_listen(struct muster_pending_connections *pending_list,
                                                int fd)
{
    struct muster_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        muster_fork_guard_close(fd);
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    listener->pending_list = pending_list;
    listener->watch = (struct muster_watch){
        .fd = fd, .events = EPOLLIN, .ready = accept_ready, .free = free_listener};
    muster_status status = muster_watch_add(pending_list->fabric, &listener->watch);
    if (status != MUSTER_OK) {
        muster_fork_guard_close(fd);
        free(listener);
        return status;
    }
    LL_PREPEND(pending_list->listeners, listener);
    return MUSTER_OK;
}

void muster_pending_connections_stop(struct muster_pending_connections *pending_list)
{
    while (pending_list->list != NULL) {
        pending_list->ops->connection.close(pending_list->list);
    }
    if (pending_list->listeners == NULL) {
        pending_list->ops->connection.free(pending_list);
        return;
    }
    for (struct muster_listener *each = pending_list->listeners; each != NULL; each = each->next) {
        muster_watch_retire(pending_list->fabric, &each->watch);
    }
}
