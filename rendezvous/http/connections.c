/* A thread with an epoll set of the suspended connections, and a list of all. */
#include "rendezvous/http/connections.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
    EPOLL_EVENTS = 64,
    SWEEPS_PER_TIMEOUT = 4, /* searches for expired connections within transfer_timeout_ms */
    SWEEP_MAX_MS = 1000,
};

struct muster_connection {
    struct muster_admitted admitted; /* first */
    struct muster_connections *all;
    int fd;
    int64_t deadline_ns; /* MUSTER_NEVER: suspended */
    bool watched;
    struct muster_held_id held; /* of the last request that was held over it; serial 0: none */
    struct muster_connection *prev, *next;
};

struct muster_connections {
    uint32_t transfer_timeout_ms;
    muster_connection_closed_function closed;
    void *user;
    int epoll_fd, stop_fd;
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    /* Under the lock: */
    struct muster_connection *first; /* and the list that begins with it */
    uint32_t admitted;               /* sockets that were admitted and not added yet */
    uint64_t open, accepted;
    struct muster_admission admission;
    bool refuses;
    pthread_cond_t empty; /* no connection is left and none admitted */
};

bool muster_connections_admit(struct muster_connections *connections)
{
    AUTO_LOCK(&connections->mutex);
    if (!connections->refuses) {
        connections->admitted++;
    }
    return !connections->refuses;
}

struct muster_connection *muster_connections_add(struct muster_connections *connections, int fd,
                                                 const struct sockaddr *address)
{
    struct muster_connection *connection = calloc(1, sizeof *connection);
    struct muster_admitted *victim = NULL;
    char name[MUSTER_ADDRESS_TEXT_SIZE];
    muster_admission_name(address, name);
    AUTO_LOCK(&connections->mutex);
    connections->admitted--;
    connections->open += connection != NULL;
    connections->accepted++;
    if (connection == NULL ||
        !muster_admission_open(&connections->admission, name, &connection->admitted, &victim) ||
        connections->refuses) {
        (void)shutdown(fd, SHUT_RDWR);
    }
    if (victim != NULL) {
        (void)shutdown(((struct muster_connection *)victim)->fd, SHUT_RDWR);
    }
    if (connection != NULL) {
        connection->all = connections;
        connection->fd = fd;
        connection->deadline_ns = muster_clock_after_ms(connections->transfer_timeout_ms);
        DL_APPEND(connections->first, connection);
    }
    return connection;
}

void muster_connections_set_busy(struct muster_connections *connections,
                                 struct muster_connection *connection, bool busy)
{
    if (connection != NULL) {
        AUTO_LOCK(&connections->mutex);
        muster_admission_set_busy(&connections->admission, &connection->admitted, busy);
    }
}

void muster_connections_set_trusted(struct muster_connections *connections,
                                    struct muster_connection *connection, bool trusted)
{
    if (connection != NULL) {
        AUTO_LOCK(&connections->mutex);
        muster_admission_set_trusted(&connections->admission, &connection->admitted, trusted);
    }
}

bool muster_connections_take_body(struct muster_connections *connections,
                                  struct muster_connection *connection, size_t size_bytes)
{
    if (connection == NULL) {
        return false;
    }
    AUTO_LOCK(&connections->mutex);
    return muster_admission_take_body(&connections->admission, &connection->admitted, size_bytes);
}

void muster_connections_give_body(struct muster_connections *connections,
                                  struct muster_connection *connection, size_t size_bytes)
{
    if (connection != NULL && size_bytes > 0) {
        AUTO_LOCK(&connections->mutex);
        muster_admission_give_body(&connections->admission, &connection->admitted, size_bytes);
    }
}

const char *muster_connection_address(const struct muster_connection *connection)
{
    return connection != NULL ? muster_admission_address(&connection->admitted) : "?";
}

void *muster_connection_user(const struct muster_connection *connection)
{
    return connection != NULL ? connection->all->user : NULL;
}

bool muster_connection_is_closed(const struct muster_connection *connection)
{
    struct pollfd end = {.fd = connection != NULL ? connection->fd : -1, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0;
}

void muster_connections_count(struct muster_connections *connections, uint64_t *ret_open,
                              uint64_t *ret_accepted)
{
    AUTO_LOCK(&connections->mutex);
    *ret_open = connections->open;
    *ret_accepted = connections->accepted;
}

/* libmicrohttpd calls this before it closes the socket. */
void muster_connections_remove(struct muster_connections *connections,
                               struct muster_connection *connection)
{
    if (connection == NULL) {
        return;
    }
    muster_mutex_lock(&connections->mutex);
    DL_DELETE(connections->first, connection);
    muster_admission_close(&connections->admission, &connection->admitted);
    connections->open--;
    if (connections->first == NULL) {
        (void)pthread_cond_signal(&connections->empty);
    }
    muster_mutex_unlock(&connections->mutex);
    /* A client that dies right after a response is not seen while its connection is suspended. */
    if (connection->held.serial != 0) {
        connections->closed(connections->user, &connection->held);
    }
    free(connection);
}

void muster_connections_restart_timeout(struct muster_connections *connections,
                                        struct muster_connection *connection)
{
    if (connection != NULL) {
        AUTO_LOCK(&connections->mutex);
        connection->deadline_ns = muster_clock_after_ms(connections->transfer_timeout_ms);
    }
}

void muster_connections_watch(struct muster_connections *connections,
                              struct muster_connection *connection, const struct muster_held_id *id)
{
    if (connection == NULL) {
        return;
    }
    AUTO_LOCK(&connections->mutex);
    connection->deadline_ns = MUSTER_NEVER;
    connection->watched = true;
    if (id->job[0] != '\0') { /* else it only waits for its response to be synced */
        connection->held = *id;
    }
    /* The serial, not the pointer: the connection may be gone when the event is read. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = id->serial};
    if (epoll_ctl(connections->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0) {
        muster_log(MUSTER_LOG_WARN, "a suspended connection cannot be polled: %s", strerror(errno));
    }
}

void muster_connections_unwatch(struct muster_connections *connections,
                                struct muster_connection *connection)
{
    if (connection == NULL) {
        return;
    }
    AUTO_LOCK(&connections->mutex);
    (void)epoll_ctl(connections->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    connection->watched = false;
    connection->deadline_ns = muster_clock_after_ms(connections->transfer_timeout_ms);
}

void muster_connections_refuse(struct muster_connections *connections)
{
    AUTO_LOCK(&connections->mutex);
    connections->refuses = true;
}

void muster_connections_close(struct muster_connections *connections, uint32_t wait_ms)
{
    int64_t deadline_ns = muster_clock_after_ms(wait_ms);
    struct muster_connection *connection = NULL;
    AUTO_LOCK(&connections->mutex);
    DL_FOREACH(connections->first, connection)
    {
        (void)shutdown(connection->fd, SHUT_RDWR); /* libmicrohttpd sees it and closes */
    }
    while ((connections->first != NULL || connections->admitted > 0) &&
           muster_condition_wait(&connections->empty, &connections->mutex, deadline_ns)) {
    }
}

/* The thread ---------------------------------------------------------------------------------- */

/* Takes the held request of this serial from its connection, so that its end is reported once.
 * False: its response was ready first. */
static bool take_held(struct muster_connections *connections, uint64_t serial,
                      struct muster_held_id *ret_held)
{
    AUTO_LOCK(&connections->mutex);
    struct muster_connection *connection = NULL;
    DL_FOREACH(connections->first, connection)
    {
        if (connection->watched && connection->held.serial == serial) {
            *ret_held = connection->held;
            connection->held.serial = 0;
            return true;
        }
    }
    return false;
}

static void shut_down_expired(struct muster_connections *connections)
{
    AUTO_LOCK(&connections->mutex);
    int64_t now_ns = muster_clock_ns();
    struct muster_connection *connection = NULL;
    DL_FOREACH(connections->first, connection)
    {
        if (connection->deadline_ns <= now_ns) {
            (void)shutdown(connection->fd, SHUT_RDWR); /* libmicrohttpd sees it and closes */
            connection->deadline_ns = muster_clock_after_ms(connections->transfer_timeout_ms);
        }
    }
}

/* Reports closed connections at once, and shuts down expired ones every sweep_ms. */
static void *run(void *user)
{
    struct muster_connections *connections = user;
    struct epoll_event events[EPOLL_EVENTS];
    uint32_t share_ms = connections->transfer_timeout_ms / SWEEPS_PER_TIMEOUT + 1;
    uint32_t sweep_ms = share_ms < SWEEP_MAX_MS ? share_ms : SWEEP_MAX_MS;
    int64_t sweep_ns = muster_clock_after_ms(sweep_ms);
    for (;;) {
        int count =
            epoll_wait(connections->epoll_fd, events, EPOLL_EVENTS, muster_clock_left_ms(sweep_ns));
        for (int i = 0; i < count; i++) {
            struct muster_held_id held;
            if (events[i].data.u64 == 0) {
                return NULL; /* stop_fd */
            }
            if (take_held(connections, events[i].data.u64, &held)) {
                connections->closed(connections->user, &held);
            }
        }
        if (muster_clock_left_ms(sweep_ns) == 0) {
            shut_down_expired(connections);
            sweep_ns = muster_clock_after_ms(sweep_ms);
        }
    }
}

static muster_status start(struct muster_connections *connections)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    connections->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connections->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (connections->epoll_fd < 0 || connections->stop_fd < 0 ||
        epoll_ctl(connections->epoll_fd, EPOLL_CTL_ADD, connections->stop_fd, &event) != 0) {
        return muster_error_errno(MUSTER_FATAL, "cannot watch connections");
    }
    int failed = pthread_create(&connections->thread, NULL, run, connections);
    if (failed != 0) {
        errno = failed;
        return muster_error_errno(MUSTER_FATAL, "cannot start a thread");
    }
    connections->runs = true;
    return MUSTER_OK;
}

muster_status muster_connections_create(uint32_t transfer_timeout_ms,
                                        struct muster_admission_limits limits,
                                        muster_connection_closed_function closed, void *user,
                                        struct muster_connections **ret_connections)
{
    struct muster_connections *connections = calloc(1, sizeof *connections);
    if (connections == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    connections->transfer_timeout_ms = transfer_timeout_ms;
    connections->admission.limits = limits;
    connections->closed = closed;
    connections->user = user;
    muster_mutex_init(&connections->mutex);
    muster_condition_init(&connections->empty);
    muster_status status = start(connections);
    if (status != MUSTER_OK) {
        muster_connections_destroy(connections);
        return status;
    }
    *ret_connections = connections;
    return MUSTER_OK;
}

void muster_connections_destroy(struct muster_connections *connections)
{
    if (connections == NULL) {
        return;
    }
    if (connections->runs) {
        (void)eventfd_write(connections->stop_fd, 1);
        (void)pthread_join(connections->thread, NULL);
    }
    muster_cleanup_close(&connections->epoll_fd);
    muster_cleanup_close(&connections->stop_fd);
    (void)pthread_cond_destroy(&connections->empty);
    (void)pthread_mutex_destroy(&connections->mutex);
    free(connections);
}
