#include "worker/fabric/verbs.h"

#include <stdlib.h>
#include <sys/socket.h>

enum { PIECE_ALIGNMENT = 64 };

/* The fabric's part --------------------------------------------------------------------------- */

static muster_status begin(struct verbs *verbs, const struct muster_fabric_options *options)
{
    const struct muster_verbs_wish wish = {
        .device = options->verbs.device, .port = options->verbs.port, .gid = options->verbs.gid};
    if (options->tls.certificate != NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "links are to use TLS (MUSTER_TLS_CERTIFICATE), and what goes over "
                                "RDMA is not encrypted");
    }
    if (verbs->piece == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    TRY(muster_verbs_device_open(&wish, &verbs->device));
    TRY(muster_verbs_try_memory(&verbs->device));
    TRY(muster_verbs_events_start(verbs));
    return muster_verbs_listen(verbs, options);
}

static void verbs_stop(void *transport)
{
    struct verbs *verbs = transport;
    muster_verbs_events_stop(verbs);
    muster_halves_stop(&verbs->halves);
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
    muster_halves_init(&verbs->halves, fabric, &muster_verbs_half_ops);
    verbs->piece = aligned_alloc(PIECE_ALIGNMENT, MUSTER_PIECE_BYTES);
    muster_status status = begin(verbs, options);
    if (status != MUSTER_OK) {
        verbs_stop(verbs);
        return muster_verbs_is_off(options, status);
    }
    *ret_transport = verbs;
    return MUSTER_OK;
}

static bool is_open(const struct verbs_link *end)
{
    return end->path != NULL && end->path->half.phase == MUSTER_PHASE_OPEN;
}

static bool verbs_has_news(const void *transport)
{
    return muster_verbs_look((struct verbs *)transport);
}

static void verbs_take_news(void *transport)
{
    muster_verbs_take(transport);
}

static void verbs_doze(void *transport, bool dozing)
{
    if (dozing) {
        muster_verbs_arm(transport);
    }
}

/* A link -------------------------------------------------------------------------------------- */

static void verbs_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct verbs_link *end = link->end;
    if (is_open(end) && end->parting) {
        /* What the queue pair has not sent goes with it: this comes through. */
        (void)send(end->path->half.watch.fd, "L", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (end->path != NULL) {
        muster_verbs_path_close(end->path);
    }
    muster_arrival_finish(&end->arrival);
    muster_end_destroy(link, ret_sends);
}

static void verbs_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct verbs_link *end = link->end;
    if (end->path != NULL) {
        muster_verbs_path_close(end->path);
    }
    end->has_next = false;
    muster_match_left(&end->match, ret_sends);
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
    return end->match.control.start == end->match.control.end && end->path->sends == 0;
}

/* Data that finds a slot goes at once, without waiting for the leader. */
static void verbs_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct verbs_link *end = link->end;
    muster_match_post_send(&end->match, transfer);
    if (is_open(end) && end->match.ready.first == transfer) {
        end->match.posting = true;
        muster_verbs_flush(end);
        end->match.posting = false;
    }
}

static void verbs_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                           struct muster_transfer_list *ret_sends)
{
    struct verbs_link *end = link->end;
    if (end->has_next && muster_operation_has(operation, &end->next_out.transfer->key)) {
        muster_match_unsent(&end->match, &end->next_out);
        end->has_next = false;
    }
    muster_match_withdraw(&end->match, operation, ret_sends);
}

static void verbs_progress(struct muster_link *link)
{
    struct verbs_link *end = link->end;
    if (end->path != NULL && !muster_verbs_prove(end->path)) {
        return;
    }
    uint64_t opened = link->opened;
    bool open = is_open(end);
    if (!open && link->state != MUSTER_LINK_LEFT) {
        return;
    }
    if (open && !muster_verbs_receive(end)) {
        return;
    }
    if (!muster_match_progress(&end->match, end->verbs->piece) || link->end != end ||
        link->opened != opened || !is_open(end)) {
        return;
    }
    muster_verbs_flush(end);
}

const struct muster_link_ops muster_verbs_ops = {
    .scheme = "verbs",
    .start = verbs_start,
    .stop = verbs_stop,
    .addresses = muster_verbs_addresses,
    .woken = muster_ends_woken,
    .refresh = muster_ends_refresh,
    .begin_generation = muster_ends_begin_generation,
    .timers = muster_ends_timers,
    .has_news = verbs_has_news,
    .take_news = verbs_take_news,
    .doze = verbs_doze,
    .open = muster_end_open,
    .post_send = verbs_post_send,
    .post_receive = muster_end_post_receive,
    .withdraw = verbs_withdraw,
    .abort = muster_end_abort,
    .announce = muster_end_announce,
    .progress = verbs_progress,
    .goodbye = verbs_goodbye,
    .said_goodbye = verbs_said_goodbye,
    .left = verbs_left,
    .has_arrived = muster_end_has_arrived,
    .close = verbs_close,
};
