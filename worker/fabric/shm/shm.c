/* The slots of the shared memory transport. */
#include "worker/fabric/shm/shm.h"

#include "worker/base/option_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* The transport's object ----------------------------------------------------------------------- */

static void shm_read_environment(muster_options *options)
{
    options->shared_memory = muster_option_read_switch("MUSTER_SHARED_MEMORY", 1);
}

/* The only option is whether shared memory is used. */
static muster_status shm_parse(const muster_options *options, bool *used, void **ret_settings)
{
    (void)ret_settings;
    TRY(muster_option_check_switch(options->shared_memory, "shared_memory",
                                   "MUSTER_SHARED_MEMORY"));
    *used = *used || options->shared_memory != 0;
    return MUSTER_OK;
}

static muster_status shm_start(struct muster_fabric *fabric, const void *settings,
                               void **ret_transport)
{
    struct muster_shm_address own;
    (void)settings;
    if (!muster_shm_address_here(&own)) {
        return MUSTER_OK;
    }
    struct muster_shm *shm = calloc(1, sizeof *shm);
    if (shm == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    muster_pending_connections_init(&shm->pending_list, fabric, &muster_shm_transport);
    shm->own = own;
    shm->piece = aligned_alloc(MUSTER_CACHE_LINE, MUSTER_PIECE_BYTES);
    muster_status status = shm->piece == NULL ? muster_error_set(MUSTER_FATAL, "out of memory")
                                              : muster_shm_listen(shm);
    if (status != MUSTER_OK) {
        muster_pending_connections_stop(&shm->pending_list);
        return status;
    }
    *ret_transport = shm;
    return MUSTER_OK;
}

static uint32_t shm_addresses(const void *transport, uint32_t most,
                              char (*ret_addresses)[MUSTER_ADDRESS_SIZE])
{
    const struct muster_shm *shm = transport;
    if (most > 0) {
        muster_shm_address_print(&shm->own, ret_addresses[0]);
    }
    return most > 0;
}

static bool is_open(const struct muster_shm_link *end)
{
    return end->path != NULL && end->path->pending.phase == MUSTER_PHASE_OPEN;
}

/* Closes the descriptors of generations before this one. */
static void drop_descriptors(struct muster_shm_link *end, uint64_t generation)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end->descriptor_count; i++) {
        if (end->descriptors[i].generation < generation) {
            close(end->descriptors[i].fd);
        } else {
            end->descriptors[count++] = end->descriptors[i];
        }
    }
    end->descriptor_count = count;
}

static void shm_begin_generation(void *transport)
{
    struct muster_shm *shm = transport;
    struct muster_dialler *each = NULL;
    DL_FOREACH(shm->pending_list.diallers, each)
    {
        drop_descriptors((struct muster_shm_link *)each, shm->pending_list.fabric->generation);
    }
    muster_common_link_begin_generation(shm);
}

/* Polling ------------------------------------------------------------------------------------- */

/* Called with or without the lock: what posting threads write is atomic, and only the leader
 * changes the rest. */
static bool has_work(struct muster_shm_link *end)
{
    uint64_t blocked = atomic_load_explicit(&end->blocked, memory_order_relaxed);
    return muster_shm_poll_direct(end->link) ||
           (blocked != SHM_NOT_BLOCKED &&
            atomic_load_explicit(&end->out.theirs->bytes, memory_order_acquire) != blocked);
}

static bool shm_poll(const void *transport)
{
    const struct muster_shm *shm = transport;
    struct muster_shm_link *end = NULL;
    DL_FOREACH2(shm->open, end, next_open)
    {
        if (has_work(end)) {
            return true;
        }
    }
    return false;
}

static void shm_mark_updated(void *transport)
{
    struct muster_shm *shm = transport;
    struct muster_shm_link *end = NULL;
    DL_FOREACH2(shm->open, end, next_open)
    {
        if (has_work(end)) {
            muster_link_mark(end->link);
        }
    }
}

static void shm_arm_wakeups(void *transport, bool armed)
{
    struct muster_shm *shm = transport;
    struct muster_shm_link *end = NULL;
    DL_FOREACH2(shm->open, end, next_open)
    {
        bool blocked = atomic_load_explicit(&end->blocked, memory_order_relaxed) != SHM_NOT_BLOCKED;
        uint32_t what = SHM_WAITS_FOR_DATA | (blocked ? SHM_WAITS_FOR_ROOM : 0);
        atomic_store_explicit(&end->path->mine->sleeping, armed ? what : 0, memory_order_relaxed);
    }
    muster_ring_fence(); /* pairs with the one in wake_peer() of shm_move.c */
}

/* A link -------------------------------------------------------------------------------------- */

static void shm_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_shm_link *end = link->end;
    muster_shm_retract_all(end);
    if (is_open(end) && end->parting) {
        muster_shm_flush_control(end); /* the goodbye, if there is room */
    }
    if (end->path != NULL) {
        muster_shm_path_close(end->path);
    }
    drop_descriptors(end, UINT64_MAX);
    muster_shm_unmap_allocations(end);
    free(end->runs.runs);
    muster_common_link_destroy(link, ret_sends);
}

static void shm_peer_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_shm_link *end = link->end;
    muster_shm_retract_all(end);
    if (end->path != NULL) {
        muster_shm_path_close(end->path);
    }
    end->has_next = false;
    muster_match_peer_left(&end->match, ret_sends);
}

static void shm_send_goodbye(struct muster_link *link)
{
    struct muster_shm_link *end = link->end;
    if (!end->parting) {
        end->parting = true;
        muster_match_goodbye(&end->match);
    }
}

static bool shm_goodbye_done(const struct muster_link *link)
{
    const struct muster_shm_link *end = link->end;
    /* The peer can read the ring when this process is gone. */
    return end->match.control.start == end->match.control.end;
}

/* Writes the frame at once if there is room, without waiting for the leader. */
static void shm_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct muster_shm_link *end = link->end;
    muster_match_post_send(&end->match, transfer);
    if (is_open(end) && end->match.ready.first == transfer) {
        end->match.posting = true;
        muster_shm_flush(end);
        end->match.posting = false;
    }
}

static void shm_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                         struct muster_transfer_list *ret_sends)
{
    struct muster_shm_link *end = link->end;
    if (end->has_next && muster_operation_has(operation, &end->next_out.transfer->key)) {
        muster_match_unsent(&end->match, &end->next_out);
        end->has_next = false;
    }
    muster_match_withdraw(&end->match, operation, ret_sends);
}

static void shm_progress(struct muster_link *link)
{
    struct muster_shm_link *end = link->end;
    uint64_t opened = link->opened;
    bool open = is_open(end);
    if (!open && link->state != MUSTER_LINK_PEER_LEFT) {
        return;
    }
    if (open && !muster_shm_receive(end)) {
        return;
    }
    if (!muster_match_progress(&end->match, end->shm->piece) || link->end != end ||
        link->opened != opened || !is_open(end)) {
        return;
    }
    muster_shm_flush(end);
    if (end->match.gets != NULL && muster_shm_get_offered(end)) {
        muster_shm_flush(end);
    }
}

/* Descriptors --------------------------------------------------------------------------------- */

static muster_status shm_send_descriptor(struct muster_link *link, uint64_t generation,
                                         uint64_t tag, int fd)
{
    const struct muster_shm_link *end = link->end;
    const struct muster_shm_packet packet = {
        .kind = SHM_DESCRIPTOR, .generation = generation, .word = tag};
    if (!muster_shm_packet_send(end->path->pending.watch.fd, &packet, fd)) {
        return muster_error_errno(MUSTER_RETRY, "a descriptor for rank %u (host %s)", link->rank,
                                  link->peer.host);
    }
    return MUSTER_OK;
}

static int shm_receive_descriptor(struct muster_link *link, uint64_t generation, uint64_t tag)
{
    struct muster_shm_link *end = link->end;
    for (uint32_t i = 0; i < end->descriptor_count; i++) {
        struct muster_shm_descriptor *each = &end->descriptors[i];
        if (each->generation == generation && each->tag == tag) {
            int fd = each->fd;
            end->descriptor_count--;
            memmove(each, each + 1, (end->descriptor_count - i) * sizeof *each);
            return fd;
        }
    }
    return -1;
}

/* Connections --------------------------------------------------------------------------------- */

static void close_pending(struct muster_pending_connection *pending)
{
    muster_shm_path_close((struct muster_shm_path *)pending);
}

static bool is_dialling(const struct muster_link *link)
{
    const struct muster_shm_link *end = link->end;
    return end->path != NULL && end->path->pending.phase == MUSTER_PHASE_GREETING;
}

static void timed_out(struct muster_pending_connection *pending)
{
    struct muster_shm_path *path = (struct muster_shm_path *)pending;
    muster_link_try_next(path->end->link, "it does not confirm that it sees the same memory");
}

static void dial(struct muster_dialler *dialler)
{
    muster_shm_dial((struct muster_shm_link *)dialler);
}

static void init_end(struct muster_link *link)
{
    struct muster_shm_link *end = link->end;
    end->dialler.match = &end->match;
    end->link = link;
    end->shm = link->transport;
    end->match.link = link;
    end->match.unchecked = true;
    end->match.get_ops = &muster_shm_get_ops;
    end->match.payload_max = SHM_PAYLOAD_MAX;
    end->arrival.piece = end->shm->piece;
    atomic_init(&end->blocked, SHM_NOT_BLOCKED);
}

static bool is_closed(const struct muster_link *link)
{
    const struct muster_shm_link *end = link->end;
    return muster_pending_is_closed(&end->path->pending);
}

static void free_shm(struct muster_pending_connections *pending_list)
{
    struct muster_shm *shm = (struct muster_shm *)pending_list;
    free(shm->piece);
    free(shm);
}

const struct muster_transport muster_shm_transport = {
    .name = "shm",
    .shares_memory = true,
    .read_environment = shm_read_environment,
    .parse = shm_parse,
    MUSTER_COMMON_LINK_OPERATIONS,
    .start = shm_start,
    .stop = muster_common_link_stop,
    .addresses = shm_addresses,
    .begin_generation = shm_begin_generation,
    .timers = muster_common_link_timers,
    .poll = shm_poll,
    .mark_updated = shm_mark_updated,
    .arm_wakeups = shm_arm_wakeups,
    .post_send = shm_post_send,
    .send_direct = muster_shm_send_direct,
    .receive_direct = muster_shm_receive_direct,
    .poll_direct = muster_shm_poll_direct,
    .withdraw = shm_withdraw,
    .progress = shm_progress,
    .send_goodbye = shm_send_goodbye,
    .goodbye_done = shm_goodbye_done,
    .peer_left = shm_peer_left,
    .close = shm_close,
    .send_descriptor = shm_send_descriptor,
    .receive_descriptor = shm_receive_descriptor,
    .connection =
        {
            .elsewhere = MUSTER_REFUSED_MEMORY,
            .end_size_bytes = sizeof(struct muster_shm_link),
            .init_end = init_end,
            .create = muster_shm_create_connection,
            .ready = muster_shm_path_ready,
            .answer = muster_shm_answer,
            .close = close_pending,
            .is_dialling = is_dialling,
            .admit = muster_shm_admit,
            .timed_out = timed_out,
            .dial = dial,
            .is_closed = is_closed,
            .free = free_shm,
        },
};
