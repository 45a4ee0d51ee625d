/* The table of the TCP transport: its object in a fabric, and its links. */
#include "worker/fabric/tcp/tcp.h"

#include "worker/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

enum {
    PIECE_ALIGNMENT = 64,
    READ_AT_ONCE_BYTES = 64 << 10, /* still to come: without an event */
};

/* The fabric's part --------------------------------------------------------------------------- */

static muster_status start_listening(struct muster_tcp *tcp,
                                     const struct muster_tcp_settings *settings)
{
    if (tcp->staging == NULL || tcp->piece == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    const struct muster_tls_files tls = muster_tcp_tls_files(settings);
    if (tls.certificate != NULL || tls.key != NULL || tls.authority != NULL || tls.name != NULL) {
        TRY(muster_tls_create(&tls, &tcp->tls));
    }
    return muster_tcp_listen(tcp, settings);
}

static muster_status tcp_start(struct muster_fabric *fabric, const void *settings_object,
                               void **ret_transport)
{
    const struct muster_tcp_settings *settings = settings_object;
    struct muster_tcp *tcp = calloc(1, sizeof *tcp);
    if (tcp == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_pending_connections_init(&tcp->pending_list, fabric, &muster_tcp_transport);
    tcp->connections = settings->connections;
    tcp->silence_ms = settings->silence_ms == 0 ? TCP_SILENCE_MS : settings->silence_ms;
    tcp->staging = malloc(TCP_STAGING_BYTES);
    tcp->piece = aligned_alloc(PIECE_ALIGNMENT, MUSTER_PIECE_BYTES);
    muster_status status = start_listening(tcp, settings);
    if (status != MUSTER_OK) {
        muster_pending_connections_stop(&tcp->pending_list);
        return status;
    }
    *ret_transport = tcp;
    return MUSTER_OK;
}

static uint32_t tcp_addresses(const void *transport, uint32_t most,
                              char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    const struct muster_tcp *tcp = transport;
    uint32_t count = tcp->listen_count < most ? tcp->listen_count : most;
    for (uint32_t i = 0; i < count; i++) {
        muster_address_print(&tcp->listen_addresses[i], ret_addresses[i]);
    }
    return count;
}

static void tcp_begin_generation(void *transport)
{
    struct muster_tcp *tcp = transport;
    muster_tls_reload(&tcp->tls);
    muster_common_link_begin_generation(tcp);
}

static void check_silence(struct muster_tcp *tcp)
{
    struct muster_dialler *each = NULL;
    struct muster_dialler *next = NULL;
    DL_FOREACH_SAFE(tcp->pending_list.diallers, each, next)
    {
        muster_tcp_check_silence((struct muster_tcp_link *)each);
    }
}

static int64_t tcp_timers(void *transport, int64_t now_ns)
{
    struct muster_tcp *tcp = transport;
    if (now_ns >= tcp->silence_check_ns) {
        uint32_t pause_ms =
            tcp->silence_ms < TCP_SILENCE_CHECK_MS ? tcp->silence_ms : TCP_SILENCE_CHECK_MS;
        tcp->silence_check_ns = muster_clock_after_ms(pause_ms);
        check_silence(tcp);
    }
    int64_t due_ns = muster_pending_connections_timers(&tcp->pending_list, now_ns);
    return due_ns < tcp->silence_check_ns ? due_ns : tcp->silence_check_ns;
}

/* A link -------------------------------------------------------------------------------------- */

/* Best effort: as much as the socket accepts at once. */
static void send_goodbye_now(struct muster_tcp_link *end)
{
    struct muster_tcp_path *path = end->path;
    const struct muster_frame_queue *control = &end->match.control;
    if (path->pending.phase == MUSTER_PHASE_OPEN && end->bundle == NULL && path->frame_count == 0 &&
        path->control.start == path->control.end) {
        struct iovec part = {.iov_base = control->bytes + control->start,
                             .iov_len = control->end - control->start};
        (void)muster_tcp_path_send(path, &part, 1);
    }
}

static void tcp_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_tcp_link *end = link->end;
    if (end->path != NULL && end->goodbye_queued && !end->goodbye_sent) {
        send_goodbye_now(end);
    }
    muster_tcp_paths_close(end);
    muster_tcp_bundle_destroy(end->bundle);
    muster_common_link_destroy(link, ret_sends);
}

static void tcp_peer_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_tcp_link *end = link->end;
    end->dialler.redial_ns = MUSTER_NEVER;
    muster_tcp_paths_close(end);
    muster_tcp_bundle_destroy(TAKE(end->bundle));
    muster_match_peer_left(&end->match, ret_sends);
}

static void tcp_send_goodbye(struct muster_link *link)
{
    struct muster_tcp_link *end = link->end;
    if (!end->goodbye_queued) {
        end->goodbye_queued = true;
        end->opening.wanted = 0;
        muster_match_goodbye(&end->match);
    }
}

static bool tcp_goodbye_done(const struct muster_link *link)
{
    (void)link;
    return false; /* the peer closes when it has read the goodbye, and then the link is not OPEN any
                     more */
}

static void tcp_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                         struct muster_transfer_list *ret_sends)
{
    struct muster_tcp_link *end = link->end;
    if (end->bundle != NULL) {
        muster_tcp_bundle_withdraw(end, operation);
    } else if (end->path_count > 0) {
        muster_tcp_send_withdraw(end->path, operation);
        muster_arrival_withdraw(&end->path->in, operation);
    }
    muster_match_withdraw(&end->match, operation, ret_sends);
}

static void tcp_progress(struct muster_link *link)
{
    struct muster_tcp_link *end = link->end;
    if (end->tcp->tls != NULL && !muster_tcp_receive_buffered(end)) {
        return;
    }
    struct muster_tcp_path *path = end->path_count > 0 ? end->path : NULL;
    if (path == NULL && link->state != MUSTER_LINK_PEER_LEFT) {
        return;
    }
    if (!muster_match_progress(&end->match, end->tcp->piece) || path == NULL ||
        path->pending.watch.retired) {
        return;
    }
    if (end->bundle != NULL) {
        muster_tcp_bundle_flush(end);
    } else {
        muster_tcp_flush(path);
    }
}

/* A link with several connections waits for events of all of them; and where much is to come, bytes
 * may gather until there is an event. */
static bool tcp_receive(struct muster_link *link, bool *ret_any)
{
    struct muster_tcp_link *end = link->end;
    if (end->bundle != NULL || end->path_count == 0 || end->path->pending.watch.retired ||
        end->path->in.remaining > READ_AT_ONCE_BYTES) {
        return false;
    }
    *ret_any = muster_tcp_receive(end->path);
    return true;
}

/* Connections --------------------------------------------------------------------------------- */

static void close_pending(struct muster_pending_connection *pending)
{
    muster_tcp_path_close((struct muster_tcp_path *)pending);
}

static struct muster_pending_connection *
create_connection(struct muster_pending_connections *pending_list, int fd,
                  const struct muster_socket_address *remote)
{
    struct muster_tcp_path *path =
        muster_tcp_path_create((struct muster_tcp *)pending_list, fd, MUSTER_PHASE_HELLO, EPOLLIN);
    if (path == NULL) {
        return NULL;
    }
    path->remote = *remote;
    return &path->pending;
}

static bool is_dialling(const struct muster_link *link)
{
    const struct muster_tcp_link *end = link->end;
    for (uint32_t i = 0; i < end->dialling.attempt_count; i++) {
        if (end->dialling.attempts[i]->pending.phase == MUSTER_PHASE_GREETING) {
            return true;
        }
    }
    return false; /* no hello has been sent: the peer's connection is used */
}

static void timed_out(struct muster_pending_connection *pending)
{
    muster_tcp_dial_failed((struct muster_tcp_path *)pending, ETIMEDOUT);
}

static void dial(struct muster_dialler *dialler)
{
    muster_tcp_dial_due((struct muster_tcp_link *)dialler);
}

static void init_end(struct muster_link *link)
{
    struct muster_tcp_link *end = link->end;
    end->dialler.match = &end->match;
    end->link = link;
    end->tcp = link->transport;
    end->match.link = link;
}

/* Whether all connections of the link have ended. */
static bool is_closed(const struct muster_link *link)
{
    const struct muster_tcp_link *end = link->end;
    for (uint32_t i = 0; i < MUSTER_CONNECTIONS_MAX; i++) {
        if (end->paths[i] != NULL && !muster_pending_is_closed(&end->paths[i]->pending)) {
            return false;
        }
    }
    return true;
}

static void free_tcp(struct muster_pending_connections *pending_list)
{
    struct muster_tcp *tcp = (struct muster_tcp *)pending_list;
    free(tcp->staging);
    free(tcp->piece);
    muster_tls_release(tcp->tls);
    free(tcp);
}

const struct muster_transport muster_tcp_transport = {
    .name = "tcp",
    .read_environment = muster_tcp_read_environment,
    .parse = muster_tcp_parse,
    .free_settings = muster_tcp_free_settings,
    MUSTER_COMMON_LINK_OPERATIONS,
    .start = tcp_start,
    .stop = muster_common_link_stop,
    .addresses = tcp_addresses,
    .begin_generation = tcp_begin_generation,
    .timers = tcp_timers,
    .post_send = muster_common_link_post_send,
    .withdraw = tcp_withdraw,
    .progress = tcp_progress,
    .receive = tcp_receive,
    .send_goodbye = tcp_send_goodbye,
    .goodbye_done = tcp_goodbye_done,
    .peer_left = tcp_peer_left,
    .close = tcp_close,
    .answers = muster_tcp_answers,
    .connection =
        {
            .elsewhere = MUSTER_REFUSED_CROSSED,
            .end_size_bytes = sizeof(struct muster_tcp_link),
            .init_end = init_end,
            .create = create_connection,
            .ready = muster_tcp_path_ready,
            .answer = muster_tcp_answer,
            .close = close_pending,
            .is_dialling = is_dialling,
            .admit = muster_tcp_admit,
            .timed_out = timed_out,
            .dial = dial,
            .is_closed = is_closed,
            .free = free_tcp,
        },
};
