/* What the devices report: completions of work requests, and asynchronous events. */
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/log.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <utlist.h>

enum { ROUNDS_MAX = 8 }; /* polls before links have their turn */

/* Completions ---------------------------------------------------------------------------------- */

/* A send of the peer has arrived. It always returns credits, and may be a frame, or the proof. A
 * frame in a segment has also used a receive slot, which is posted again at once. */
static muster_status handle_receive(struct muster_verbs_path *path, const struct ibv_wc *completion,
                                    uint32_t slot)
{
    bool has_word = (completion->wc_flags & IBV_WC_WITH_IMM) != 0;
    uint32_t word = has_word ? be32toh(completion->imm_data) : 0;
    path->credits += word >> VERBS_CREDITS_SHIFT & VERBS_CREDITS_MASK;
    path->segment_credits += word >> VERBS_SEGMENTS_SHIFT & VERBS_CREDITS_MASK;
    if (!has_word || path->credits > VERBS_SEND_SLOTS ||
        path->segment_credits > path->peer.segments || slot >= VERBS_RECEIVE_SLOTS) {
        return muster_error_set(MUSTER_INVALID, "more credits than there are");
    }
    if ((word & VERBS_PROOF) != 0 || completion->byte_len == 0) {
        path->proven = path->proven || (word & VERBS_PROOF) != 0;
        muster_verbs_post_receive(path, slot);
        return MUSTER_OK;
    }
    struct muster_verbs_in_frame in = {.path = path,
                                       .bytes = muster_verbs_receive_slot(path, slot),
                                       .size = completion->byte_len,
                                       .slot = slot,
                                       .segment = completion->opcode == IBV_WC_RECV_RDMA_WITH_IMM};
    if (in.segment) {
        if (path->segments.base == NULL) {
            return muster_error_set(MUSTER_INVALID, "a segment that does not exist");
        }
        in.slot = path->segment_in;
        in.bytes = muster_verbs_segment(path, path->segment_in);
        path->segment_in = (path->segment_in + 1) % VERBS_SEGMENTS;
        muster_verbs_post_receive(path, slot);
    }
    return muster_verbs_arrived(path, (uint16_t)(word & VERBS_NUMBER_MASK), &in);
}

static struct muster_verbs_path *find_path(struct muster_verbs *verbs, uint64_t completion_id)
{
    if (verbs->last_completed == NULL || verbs->last_completed->completion_id != completion_id) {
        HASH_FIND(hh, verbs->by_completion_id, &completion_id, sizeof completion_id,
                  verbs->last_completed);
    }
    return verbs->last_completed;
}

/* Finds the path of a completion, and what has completed, by its wr_id. */
static void handle_completion(struct muster_verbs *verbs, const struct ibv_wc *completion)
{
    uint64_t completion_id = completion->wr_id >> 16;
    enum muster_verbs_work work = (enum muster_verbs_work)(completion->wr_id >> 8 & 0xff);
    uint32_t slot = completion->wr_id & 0xff;
    struct muster_verbs_path *path = find_path(verbs, completion_id);
    if (path == NULL) { /* closed meanwhile */
        return;
    }
    path->receives -= work == VERBS_WORK_RECEIVE;
    if (completion->status != IBV_WC_SUCCESS) {
        char what[128];
        (void)snprintf(what, sizeof what, "%s (vendor error 0x%x)",
                       path->device->library->wc_status_str(completion->status),
                       completion->vendor_err);
        muster_verbs_note_failure(path, what);
    } else if (work == VERBS_WORK_FRAME) {
        muster_verbs_acknowledged(path, slot);
    } else if (work == VERBS_WORK_EMPTY) {
        path->credit_sends--;
    } else if (handle_receive(path, completion, slot) != MUSTER_OK) {
        char what[MUSTER_REASON_SIZE];
        (void)snprintf(what, sizeof what, "it violates the protocol: %.160s", muster_last_error());
        muster_verbs_note_failure(path, what);
    }
    muster_link_mark(path->end->link);
}

bool muster_verbs_poll(struct muster_verbs *verbs)
{
    for (uint32_t i = 0; i < verbs->device_count && verbs->completion_count == 0; i++) {
        struct ibv_cq *queue = verbs->devices[verbs->next_device].queue;
        int count = ibv_poll_cq(queue, VERBS_POLL_MAX, verbs->completions);
        verbs->completion_count = count > 0 ? count : 0;
        verbs->next_device =
            verbs->next_device + 1 < verbs->device_count ? verbs->next_device + 1 : 0;
    }
    return verbs->completion_count > 0;
}

bool muster_verbs_handle_some(struct muster_verbs *verbs)
{
    if (!muster_verbs_poll(verbs)) {
        return false;
    }
    int count = verbs->completion_count;
    verbs->completion_count = 0;
    for (int i = 0; i < count; i++) {
        handle_completion(verbs, &verbs->completions[i]);
    }
    return true;
}

void muster_verbs_handle_all(struct muster_verbs *verbs)
{
    for (uint32_t round = 0; round < ROUNDS_MAX && muster_verbs_handle_some(verbs); round++) {
    }
}

void muster_verbs_arm(struct muster_verbs *verbs)
{
    for (uint32_t i = 0; i < verbs->device_count; i++) {
        (void)ibv_req_notify_cq(verbs->devices[i].queue, 0);
    }
}

/* Events --------------------------------------------------------------------------------------- */

/* The library owns its descriptors: a watch has a duplicate, which it closes. */
struct device_watch {
    struct muster_watch watch; /* first */
    struct muster_verbs *verbs;
    struct muster_verbs_device *device;
};

/* Only wakes the leader, which then polls for completions. */
static void completion_ready(struct muster_watch *watch, uint32_t events)
{
    const struct muster_verbs_device *device = ((struct device_watch *)watch)->device;
    struct ibv_cq *queue = NULL;
    void *unused = NULL;
    (void)events;
    while (device->library->get_cq_event(device->channel, &queue, &unused) == 0) {
        device->library->ack_cq_events(queue, 1);
    }
}

/* Fails the paths of this queue pair; all paths of the device if `pair` is NULL. */
static void fail_paths(struct muster_verbs *verbs, const struct muster_verbs_device *device,
                       const struct ibv_qp *pair, const char *what)
{
    struct muster_verbs_path *path = NULL;
    struct muster_verbs_path *next = NULL;
    HASH_ITER(hh, verbs->by_completion_id, path, next)
    {
        if (path->device == device && (pair == NULL || path->pair == pair)) {
            muster_verbs_note_failure(path, what);
            muster_link_mark(path->end->link);
        }
    }
}

/* Ports that are down --------------------------------------------------------------------------
 *
 * A device gives up what is not acknowledged after 3.8 s, also when its own port is down. Soft-RoCE
 * sometimes never does (Linux 6.1: an interface goes down while packets are sent; the timer of the
 * retransmission does not run any more). So the paths of a port that is down for VERBS_PORT_DOWN_MS
 * are given up here. A path without unacknowledged sends stays: the port may come back. */

static void port_changed(struct muster_verbs_device *device, int port, bool up)
{
    if (port == device->port) {
        device->port_check_ns = up ? 0 : muster_clock_after_ms(VERBS_PORT_DOWN_MS);
    }
}

static bool has_unacknowledged(const struct muster_verbs_path *path)
{
    return muster_verbs_path_is_usable(path) &&
           (path->free_slots != VERBS_ALL_SLOTS || path->credit_sends > 0);
}

static void fail_unacknowledged(struct muster_verbs *verbs,
                                const struct muster_verbs_device *device)
{
    struct muster_verbs_path *path = NULL;
    struct muster_verbs_path *next = NULL;
    HASH_ITER(hh, verbs->by_completion_id, path, next)
    {
        if (path->device == device && has_unacknowledged(path)) {
            char what[96];
            (void)snprintf(what, sizeof what,
                           "no acknowledgement, and its port %u has been down for %d s",
                           device->port, VERBS_PORT_DOWN_MS / 1000);
            muster_verbs_note_failure(path, what);
            muster_link_mark(path->end->link);
        }
    }
}

int64_t muster_verbs_check_ports(struct muster_verbs *verbs, int64_t now_ns)
{
    int64_t due_ns = MUSTER_NEVER;
    for (uint32_t i = 0; i < verbs->device_count; i++) {
        struct muster_verbs_device *device = &verbs->devices[i];
        if (device->port_check_ns != 0 && now_ns >= device->port_check_ns) {
            bool up = muster_verbs_check_port(device) == MUSTER_OK;
            if (!up) {
                fail_unacknowledged(verbs, device);
            }
            port_changed(device, device->port, up);
        }
        if (device->port_check_ns != 0 && device->port_check_ns < due_ns) {
            due_ns = device->port_check_ns;
        }
    }
    return due_ns;
}

/* Asynchronous events: those that end a queue pair or the device fail its paths; the others are
 * logged. */
static void event_ready(struct muster_watch *watch, uint32_t events)
{
    struct muster_verbs *verbs = ((struct device_watch *)watch)->verbs;
    struct muster_verbs_device *device = ((struct device_watch *)watch)->device;
    const struct muster_verbs_library *library = device->library;
    struct ibv_async_event event;
    (void)events;
    while (library->get_async_event(device->context, &event) == 0) {
        const char *what = library->event_type_str(event.event_type);
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_PATH_MIG_ERR:
            fail_paths(verbs, device, event.element.qp, what);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            fail_paths(verbs, device, NULL, what);
            break;
        case IBV_EVENT_PORT_ERR: /* the port may come back before the device gives up */
            muster_log(MUSTER_LOG_WARN, "RDMA device %s: %s", device->name, what);
            port_changed(device, event.element.port_num, false);
            break;
        case IBV_EVENT_PORT_ACTIVE:
            muster_log(MUSTER_LOG_DEBUG, "RDMA device %s: %s", device->name, what);
            port_changed(device, event.element.port_num, true);
            break;
        default:
            muster_log(MUSTER_LOG_DEBUG, "RDMA device %s: %s", device->name, what);
        }
        library->ack_async_event(&event);
    }
}

static void free_watch(struct muster_watch *watch)
{
    free(watch);
}

static muster_status watch_device(struct muster_verbs *verbs, struct muster_verbs_device *device,
                                  int fd,
                                  void (*ready)(struct muster_watch *watch, uint32_t events),
                                  struct muster_watch **ret_watch)
{
    struct device_watch *record = calloc(1, sizeof *record);
    int copy = MUSTER_GUARDED(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (record == NULL || copy < 0) {
        free(record);
        return muster_error_set(MUSTER_FATAL, "no descriptor for an RDMA device");
    }
    record->verbs = verbs;
    record->device = device;
    record->watch =
        (struct muster_watch){.fd = copy, .events = EPOLLIN, .ready = ready, .free = free_watch};
    muster_status status = muster_watch_add(verbs->pending_list.fabric, &record->watch);
    if (status != MUSTER_OK) {
        muster_fork_guard_close(copy);
        free(record);
        return status;
    }
    *ret_watch = &record->watch;
    return MUSTER_OK;
}

muster_status muster_verbs_events_start(struct muster_verbs *verbs)
{
    for (uint32_t i = 0; i < verbs->device_count; i++) {
        struct muster_verbs_device *device = &verbs->devices[i];
        TRY(watch_device(verbs, device, device->channel->fd, completion_ready,
                         &verbs->watches[(size_t)2 * i]));
        TRY(watch_device(verbs, device, device->context->async_fd, event_ready,
                         &verbs->watches[(size_t)2 * i + 1]));
    }
    return MUSTER_OK;
}

void muster_verbs_events_stop(struct muster_verbs *verbs)
{
    for (uint32_t i = 0; i < 2 * MUSTER_VERBS_DEVICES_MAX; i++) {
        if (verbs->watches[i] != NULL) {
            muster_watch_retire(verbs->pending_list.fabric, verbs->watches[i]);
        }
    }
}
