/* The table of the RDMA transport: its object in a fabric, and its links. */
#include "worker/fabric/verbs/verbs_parts.h"

#include "worker/base/cleanup.h"
#include "worker/base/log.h"
#include "worker/fabric/verbs/verbs_unused.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { PIECE_ALIGNMENT = 64 };

/* The fabric's part --------------------------------------------------------------------------- */

static muster_status open_device(struct muster_verbs *verbs,
                                 const struct muster_verbs_selection *selection)
{
    if (verbs->device_count == MUSTER_VERBS_DEVICES_MAX) {
        return muster_error_set(MUSTER_INVALID, "MUSTER_VERBS_DEVICE names more than %d devices",
                                MUSTER_VERBS_DEVICES_MAX);
    }
    struct muster_verbs_device *device = &verbs->devices[verbs->device_count];
    if (selection->device != NULL && selection->device[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "MUSTER_VERBS_DEVICE has a comma too many");
    }
    TRY(muster_verbs_device_open(selection, device));
    muster_status status = muster_verbs_try_memory(device);
    if (status != MUSTER_OK) {
        muster_verbs_device_close(device);
        *device = (struct muster_verbs_device){0};
        return status;
    }
    device->timeline = verbs->pending_list.fabric->timeline;
    verbs->device_count++;
    return MUSTER_OK;
}

/* Opens the named devices. Unless RDMA is required, one of several may fail. */
static muster_status open_named(struct muster_verbs *verbs,
                                const struct muster_verbs_settings *settings,
                                struct muster_verbs_selection *selection)
{
    AUTO_FREE char *names = strdup(settings->device);
    char *rest = names;
    muster_status status = MUSTER_OK;
    if (names == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    bool alone = strchr(names, ',') == NULL;
    while ((selection->device = strsep(&rest, ",")) != NULL) {
        muster_status opened = open_device(verbs, selection);
        if (opened != MUSTER_OK && (alone || settings->required)) {
            return opened;
        }
        if (opened != MUSTER_OK) {
            muster_log(MUSTER_LOG_WARN, "a device is not used for RDMA: %s", muster_last_error());
            status = opened;
        }
    }
    return verbs->device_count > 0 ? MUSTER_OK : status;
}

/* Opens the named devices, or the first usable one. */
static muster_status open_devices(struct muster_verbs *verbs,
                                  const struct muster_verbs_settings *settings)
{
    struct muster_verbs_selection selection = {.port = settings->port, .gid = settings->gid};
    if (settings->device == NULL) {
        TRY(open_device(verbs, &selection));
    } else {
        TRY(open_named(verbs, settings, &selection));
    }
    verbs->connections = settings->connections > 0 ? settings->connections : verbs->device_count;
    return MUSTER_OK;
}

static muster_status start_devices(struct muster_verbs *verbs,
                                   const struct muster_verbs_settings *settings)
{
    if (settings->encrypted) {
        return muster_error_set(
            MUSTER_INVALID, "links use TLS (MUSTER_TLS_CERTIFICATE), and RDMA is not encrypted");
    }
    if (verbs->piece == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    TRY(open_devices(verbs, settings));
    TRY(muster_verbs_events_start(verbs));
    return muster_verbs_listen(verbs, settings);
}

static void verbs_stop(void *transport)
{
    struct muster_verbs *verbs = transport;
    muster_verbs_events_stop(verbs);
    muster_pending_connections_stop(&verbs->pending_list);
}

static muster_status verbs_start(struct muster_fabric *fabric, const void *settings_object,
                                 void **ret_transport)
{
    const struct muster_verbs_settings *settings = settings_object;
    struct muster_verbs *verbs = calloc(1, sizeof *verbs);
    if (verbs == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_pending_connections_init(&verbs->pending_list, fabric, &muster_verbs_transport);
    verbs->piece = aligned_alloc(PIECE_ALIGNMENT, MUSTER_PIECE_BYTES);
    muster_status status = start_devices(verbs, settings);
    if (status != MUSTER_OK) {
        verbs_stop(verbs);
        return muster_verbs_unavailable(settings->required, status);
    }
    *ret_transport = verbs;
    return MUSTER_OK;
}

static int64_t verbs_timers(void *transport, int64_t now_ns)
{
    int64_t check_ns = muster_verbs_check_ports(transport, now_ns);
    int64_t due_ns = muster_common_link_timers(transport, now_ns);
    return check_ns < due_ns ? check_ns : due_ns;
}

static bool verbs_poll(const void *transport)
{
    return muster_verbs_poll((struct muster_verbs *)transport);
}

static void verbs_mark_updated(void *transport)
{
    (void)muster_verbs_handle_some(transport);
}

static void verbs_arm_wakeups(void *transport, bool dozing)
{
    if (dozing) {
        muster_verbs_arm(transport);
    }
}

/* A link -------------------------------------------------------------------------------------- */

static void close_paths(struct muster_verbs_link *end)
{
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL) {
            muster_verbs_path_close(end->paths[i]);
        }
    }
}

/* No device reads the memory of these sends any more. */
static void return_sends(struct muster_verbs *verbs, struct muster_transfer_list *sends,
                         struct muster_transfer_list *ret_sends)
{
    for (const struct muster_transfer *each = sends->first; each != NULL; each = each->next) {
        muster_verbs_end_registrations(verbs, each);
    }
    muster_transfer_list_splice(sends, ret_sends);
}

/* Announces it over TCP, because sends that are still in the queue pairs are lost with them. */
static void announce_leaving(const struct muster_verbs_link *end)
{
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL && end->paths[i]->pending.phase == MUSTER_PHASE_OPEN) {
            (void)send(end->paths[i]->pending.watch.fd, "L", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static void verbs_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_verbs_link *end = link->end;
    struct muster_transfer_list sends = {0};
    if (end->goodbye_queued) {
        announce_leaving(end);
    }
    close_paths(end);
    muster_verbs_finish_sends(end);
    muster_verbs_finish_receives(end);
    muster_arrival_finish(&end->arrival);
    struct muster_verbs *verbs = end->verbs;
    muster_common_link_destroy(link, &sends);
    return_sends(verbs, &sends, ret_sends);
}

static void verbs_peer_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_verbs_link *end = link->end;
    struct muster_transfer_list sends = {0};
    close_paths(end);
    muster_verbs_finish_sends(end);
    muster_match_peer_left(&end->match, &sends);
    return_sends(end->verbs, &sends, ret_sends);
}

static void verbs_send_goodbye(struct muster_link *link)
{
    struct muster_verbs_link *end = link->end;
    if (!end->goodbye_queued) {
        end->goodbye_queued = true;
        muster_match_goodbye(&end->match);
    }
}

static bool verbs_goodbye_done(const struct muster_link *link)
{
    const struct muster_verbs_link *end = link->end;
    /* What the peer's device has acknowledged, the peer receives even when this process is gone. */
    return end->match.control.start == end->match.control.end &&
           end->bundle.first_out == end->bundle.next_out;
}

/* Sends at once, without waiting for the leader, if there is a free slot. */
static void verbs_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct muster_verbs_link *end = link->end;
    muster_match_post_send(&end->match, transfer);
    if (link->state == MUSTER_LINK_OPEN && end->match.ready.first == transfer) {
        end->match.posting = true;
        muster_verbs_flush(end);
        end->match.posting = false;
    }
}

static void verbs_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                           struct muster_transfer_list *ret_sends)
{
    struct muster_verbs_link *end = link->end;
    struct muster_transfer_list sends = {0};
    muster_verbs_withdraw_sends(end, operation);
    muster_match_withdraw(&end->match, operation, &sends);
    return_sends(end->verbs, &sends, ret_sends);
}

/* False: the link is closed now. */
static bool prove_paths(struct muster_verbs_link *end)
{
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL && !muster_verbs_prove(end->paths[i])) {
            return false;
        }
    }
    return true;
}

static void verbs_progress(struct muster_link *link)
{
    struct muster_verbs_link *end = link->end;
    if (!prove_paths(end)) {
        return;
    }
    uint64_t opened = link->opened;
    bool open = link->state == MUSTER_LINK_OPEN;
    if (!open && link->state != MUSTER_LINK_PEER_LEFT) {
        return;
    }
    if (open) {
        muster_verbs_end_sends(end);
        if (!muster_verbs_receive(end)) {
            return;
        }
    }
    if (!muster_match_progress(&end->match, end->verbs->piece) || link->end != end ||
        link->opened != opened || link->state != MUSTER_LINK_OPEN) {
        return;
    }
    muster_verbs_flush(end);
}

/* Connections --------------------------------------------------------------------------------- */

static void close_pending(struct muster_pending_connection *pending)
{
    muster_verbs_path_close((struct muster_verbs_path *)pending);
}

static struct muster_pending_connection *
create_connection(struct muster_pending_connections *pending_list, int fd,
                  const struct muster_socket_address *remote)
{
    (void)remote;
    struct muster_verbs_path *path = muster_verbs_path_create((struct muster_verbs *)pending_list,
                                                              fd, MUSTER_PHASE_HELLO, EPOLLIN);
    return path != NULL ? &path->pending : NULL;
}

static bool is_dialling(const struct muster_link *link)
{
    const struct muster_verbs_link *end = link->end;
    const struct muster_verbs_path *path = end->paths[0];
    return path != NULL && path->dialler &&
           (path->pending.phase == MUSTER_PHASE_GREETING ||
            path->pending.phase == MUSTER_PHASE_PROVING);
}

static void dial(struct muster_dialler *dialler)
{
    muster_verbs_dial((struct muster_verbs_link *)dialler);
}

static void init_end(struct muster_link *link)
{
    /* Slots and segments bound the bytes in the window. */
    static const struct muster_bundle_limits limits = {.first_number = VERBS_FIRST_NUMBER,
                                                       .window_bytes = UINT64_MAX,
                                                       .ahead_max = MUSTER_BUNDLE_AHEAD_MAX};
    struct muster_verbs_link *end = link->end;
    muster_bundle_init(&end->bundle, &limits);
    end->dialler.match = &end->match;
    end->link = link;
    end->verbs = link->transport;
    end->match.link = link;
    end->match.unchecked = true; /* the device has its own CRC */
    end->arrival.piece = end->verbs->piece;
}

static bool is_closed(const struct muster_link *link)
{
    const struct muster_verbs_link *end = link->end;
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL && muster_verbs_path_is_usable(end->paths[i]) &&
            !muster_pending_is_closed(&end->paths[i]->pending)) {
            return false;
        }
    }
    return true;
}

static void free_verbs(struct muster_pending_connections *pending_list)
{
    struct muster_verbs *verbs = (struct muster_verbs *)pending_list;
    for (uint32_t i = 0; i < verbs->device_count; i++) {
        muster_verbs_device_close(&verbs->devices[i]);
    }
    free(verbs->piece);
    free(verbs);
}

const struct muster_transport muster_verbs_transport = {
    .name = VERBS_SCHEME,
    .reads_devices = true,
    .polls_device = true,
    .read_environment = muster_verbs_read_environment,
    .parse = muster_verbs_parse,
    .free_settings = muster_verbs_free_settings,
    .find_unused = muster_verbs_find_unused,
    MUSTER_COMMON_LINK_OPERATIONS,
    .start = verbs_start,
    .stop = verbs_stop,
    .addresses = muster_verbs_addresses,
    .begin_generation = muster_common_link_begin_generation,
    .timers = verbs_timers,
    .poll = verbs_poll,
    .mark_updated = verbs_mark_updated,
    .arm_wakeups = verbs_arm_wakeups,
    .post_send = verbs_post_send,
    .withdraw = verbs_withdraw,
    .progress = verbs_progress,
    .send_goodbye = verbs_send_goodbye,
    .goodbye_done = verbs_goodbye_done,
    .peer_left = verbs_peer_left,
    .close = verbs_close,
    .connection =
        {
            .elsewhere = MUSTER_REFUSED_VERBS,
            .end_size_bytes = sizeof(struct muster_verbs_link),
            .init_end = init_end,
            .create = create_connection,
            .ready = muster_verbs_path_ready,
            .answer = muster_verbs_answer,
            .close = close_pending,
            .is_dialling = is_dialling,
            .admit = muster_verbs_admit,
            .timed_out = muster_verbs_timed_out,
            .dial = dial,
            .is_closed = is_closed,
            .free = free_verbs,
        },
};
