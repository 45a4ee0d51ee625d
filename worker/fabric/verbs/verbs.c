#include "worker/fabric/verbs/verbs.h"

#include "worker/base/cleanup.h"
#include "worker/base/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { PIECE_ALIGNMENT = 64 };

/* The fabric's part --------------------------------------------------------------------------- */

static muster_status open_device(struct verbs *verbs, const struct muster_verbs_wish *wish)
{
    if (verbs->device_count == MUSTER_VERBS_DEVICES_MAX) {
        return muster_error_set(MUSTER_INVALID, "MUSTER_VERBS_DEVICE names more than %d devices",
                                MUSTER_VERBS_DEVICES_MAX);
    }
    struct muster_verbs_device *device = &verbs->devices[verbs->device_count];
    if (wish->device != NULL && wish->device[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "MUSTER_VERBS_DEVICE has a comma too many");
    }
    TRY(muster_verbs_device_open(wish, device));
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

/* Where RDMA need not be, those that are good do. */
static muster_status open_named(struct verbs *verbs, const struct muster_fabric_verbs *options,
                                struct muster_verbs_wish *wish)
{
    AUTO_FREE char *names = strdup(options->device);
    char *rest = names;
    muster_status status = MUSTER_OK;
    if (names == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    bool alone = strchr(names, ',') == NULL;
    while ((wish->device = strsep(&rest, ",")) != NULL) {
        muster_status opened = open_device(verbs, wish);
        if (opened != MUSTER_OK && (alone || options->use == MUSTER_VERBS_REQUIRED)) {
            return opened;
        }
        if (opened != MUSTER_OK) {
            muster_log(MUSTER_LOG_WARN, "one device less for RDMA: %s", muster_last_error());
            status = opened;
        }
    }
    return verbs->device_count > 0 ? MUSTER_OK : status;
}

/* Those that are named, or the first that is good. */
static muster_status open_devices(struct verbs *verbs, const struct muster_fabric_verbs *options)
{
    struct muster_verbs_wish wish = {.port = options->port, .gid = options->gid};
    if (options->connections > VERBS_PATHS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%u connections over RDMA: there can be %d",
                                options->connections, VERBS_PATHS_MAX);
    }
    if (options->device == NULL) {
        TRY(open_device(verbs, &wish));
    } else {
        TRY(open_named(verbs, options, &wish));
    }
    verbs->connections = options->connections > 0 ? options->connections : verbs->device_count;
    return MUSTER_OK;
}

static muster_status begin(struct verbs *verbs, const struct muster_fabric_options *options)
{
    if (options->tls.certificate != NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "links are to use TLS (MUSTER_TLS_CERTIFICATE), and what goes over "
                                "RDMA is not encrypted");
    }
    if (verbs->piece == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    TRY(open_devices(verbs, &options->verbs));
    TRY(muster_verbs_events_start(verbs));
    return muster_verbs_listen(verbs, options);
}

static void verbs_stop(void *transport)
{
    struct verbs *verbs = transport;
    muster_verbs_events_stop(verbs);
    muster_pending_connections_stop(&verbs->pending_list);
}

static muster_status verbs_start(struct muster_fabric *fabric,
                                 const struct muster_fabric_options *options, void **ret_transport)
{
    if (options->verbs.use == MUSTER_VERBS_OFF) {
        return MUSTER_OK;
    }
    struct verbs *verbs = calloc(1, sizeof *verbs);
    if (verbs == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_pending_connections_init(&verbs->pending_list, fabric, &muster_verbs_pending_ops);
    verbs->piece = aligned_alloc(PIECE_ALIGNMENT, MUSTER_PIECE_BYTES);
    muster_status status = begin(verbs, options);
    if (status != MUSTER_OK) {
        verbs_stop(verbs);
        return muster_verbs_is_off(options, status);
    }
    *ret_transport = verbs;
    return MUSTER_OK;
}

static bool verbs_has_news(const void *transport)
{
    return muster_verbs_poll((struct verbs *)transport);
}

static void verbs_take_news(void *transport)
{
    (void)muster_verbs_handle_some(transport);
}

static void verbs_doze(void *transport, bool dozing)
{
    if (dozing) {
        muster_verbs_arm(transport);
    }
}

/* A link -------------------------------------------------------------------------------------- */

static void close_paths(struct verbs_link *end)
{
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL) {
            muster_verbs_path_close(end->paths[i]);
        }
    }
}

/* No device reads them any more. */
static void hand_back(struct verbs *verbs, struct muster_transfer_list *sends,
                      struct muster_transfer_list *ret_sends)
{
    for (const struct muster_transfer *each = sends->first; each != NULL; each = each->next) {
        muster_verbs_end_registrations(verbs, each);
    }
    muster_transfer_list_splice(sends, ret_sends);
}

/* What the queue pairs have not sent goes with them: this comes through. */
static void say_leaving(const struct verbs_link *end)
{
    for (uint32_t i = 0; i < end->path_end; i++) {
        if (end->paths[i] != NULL && end->paths[i]->pending.phase == MUSTER_PHASE_OPEN) {
            (void)send(end->paths[i]->pending.watch.fd, "L", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static void verbs_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct verbs_link *end = link->end;
    struct muster_transfer_list sends = {0};
    if (end->parting) {
        say_leaving(end);
    }
    close_paths(end);
    muster_verbs_finish_sends(end);
    muster_verbs_finish_receives(end);
    muster_arrival_finish(&end->arrival);
    struct verbs *verbs = end->verbs;
    muster_common_link_destroy(link, &sends);
    hand_back(verbs, &sends, ret_sends);
}

static void verbs_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct verbs_link *end = link->end;
    struct muster_transfer_list sends = {0};
    close_paths(end);
    muster_verbs_finish_sends(end);
    muster_match_left(&end->match, &sends);
    hand_back(end->verbs, &sends, ret_sends);
}

static void verbs_goodbye(struct muster_link *link)
{
    struct verbs_link *end = link->end;
    if (!end->parting) {
        end->parting = true;
        muster_match_goodbye(&end->match);
    }
}

static bool verbs_said_goodbye(const struct muster_link *link)
{
    const struct verbs_link *end = link->end;
    /* What the peer's device has acknowledged the peer can take when this process is gone. */
    return end->match.control.start == end->match.control.end &&
           end->bundle.first_out == end->bundle.next_out;
}

/* Data that finds a slot goes at once, without waiting for the leader. */
static void verbs_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct verbs_link *end = link->end;
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
    struct verbs_link *end = link->end;
    struct muster_transfer_list sends = {0};
    muster_verbs_withdraw_sends(end, operation);
    muster_match_withdraw(&end->match, operation, &sends);
    hand_back(end->verbs, &sends, ret_sends);
}

/* False if the link is closed now. */
static bool prove_paths(struct verbs_link *end)
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
    struct verbs_link *end = link->end;
    if (!prove_paths(end)) {
        return;
    }
    uint64_t opened = link->opened;
    bool open = link->state == MUSTER_LINK_OPEN;
    if (!open && link->state != MUSTER_LINK_LEFT) {
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

const struct muster_link_ops muster_verbs_ops = {
    .scheme = VERBS_SCHEME,
    .reads_gpu = true,
    .start = verbs_start,
    .stop = verbs_stop,
    .addresses = muster_verbs_addresses,
    .woken = muster_common_link_woken,
    .refresh = muster_common_link_refresh,
    .begin_generation = muster_common_link_begin_generation,
    .timers = muster_common_link_timers,
    .has_news = verbs_has_news,
    .take_news = verbs_take_news,
    .doze = verbs_doze,
    .open = muster_common_link_open,
    .post_send = verbs_post_send,
    .post_receive = muster_common_link_post_receive,
    .withdraw = verbs_withdraw,
    .abort = muster_common_link_abort,
    .announce = muster_common_link_announce,
    .progress = verbs_progress,
    .goodbye = verbs_goodbye,
    .said_goodbye = verbs_said_goodbye,
    .left = verbs_left,
    .has_arrived = muster_common_link_has_arrived,
    .close = verbs_close,
};
