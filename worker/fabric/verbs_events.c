/* What the device reports: completions of what was posted, and what happens to it. */
#include "worker/base/log.h"
#include "worker/fabric/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <utlist.h>

enum { ROUNDS_MAX = 8 }; /* in one go, then links have their turn */

static void note_failure(struct verbs_path *path, const char *what)
{
    if (path->failure[0] == '\0') {
        (void)snprintf(path->failure, sizeof path->failure, "RDMA device %s: %s",
                       path->verbs->device.name, what);
    }
}

/* Completions ---------------------------------------------------------------------------------- */

static void received(struct verbs_path *path, const struct ibv_wc *completion, uint32_t slot)
{
    bool has_word = (completion->wc_flags & IBV_WC_WITH_IMM) != 0;
    uint32_t word = has_word ? be32toh(completion->imm_data) : 0;
    path->credits += word & VERBS_CREDIT_MASK;
    if (!has_word || path->credits > VERBS_SEND_SLOTS || slot >= VERBS_RECEIVE_SLOTS ||
        path->arrived_count == VERBS_RECEIVE_SLOTS) {
        note_failure(path, "what came breaks the rules");
        return;
    }
    if ((word & VERBS_PROOF) != 0 || completion->byte_len == 0) {
        path->proven = path->proven || (word & VERBS_PROOF) != 0;
        muster_verbs_post_receive(path, slot);
        return;
    }
    uint32_t place = (path->arrived_first + path->arrived_count++) % VERBS_RECEIVE_SLOTS;
    path->arrived[place].slot = slot;
    path->arrived[place].size = completion->byte_len;
}

static void sent(struct verbs_path *path, enum verbs_work work, uint32_t slot)
{
    path->sends--;
    if (work == VERBS_WORK_FRAME) {
        path->free_slots |= 1U << slot;
    } else {
        path->credit_sends--;
    }
}

static void hand_over(struct verbs *verbs, const struct ibv_wc *completion)
{
    uint64_t number = completion->wr_id >> 16;
    enum verbs_work work = (enum verbs_work)(completion->wr_id >> 8 & 0xff);
    uint32_t slot = completion->wr_id & 0xff;
    struct verbs_path *path = NULL;
    HASH_FIND(hh, verbs->by_number, &number, sizeof number, path);
    if (path == NULL) { /* closed since */
        return;
    }
    if (completion->status != IBV_WC_SUCCESS) {
        char what[128];
        (void)snprintf(what, sizeof what, "%s (vendor error 0x%x)",
                       verbs->device.library->wc_status_str(completion->status),
                       completion->vendor_err);
        note_failure(path, what);
    } else if (work == VERBS_WORK_RECEIVE) {
        received(path, completion, slot);
    } else {
        sent(path, work, slot);
    }
    if (path->link != NULL) {
        muster_link_mark(path->link->link);
    }
}

bool muster_verbs_look(struct verbs *verbs)
{
    if (verbs->taken_count == 0) {
        int count = ibv_poll_cq(verbs->device.queue, VERBS_TAKEN_MAX, verbs->taken);
        verbs->taken_count = count > 0 ? count : 0;
    }
    return verbs->taken_count > 0;
}

void muster_verbs_take(struct verbs *verbs)
{
    for (int round = 0; round < ROUNDS_MAX && muster_verbs_look(verbs); round++) {
        int count = verbs->taken_count;
        verbs->taken_count = 0;
        for (int i = 0; i < count; i++) {
            hand_over(verbs, &verbs->taken[i]);
        }
    }
}

void muster_verbs_arm(struct verbs *verbs)
{
    (void)ibv_req_notify_cq(verbs->device.queue, 0);
}

/* Events --------------------------------------------------------------------------------------- */

/* Both descriptors are the library's: these are copies, to be closed. */
struct device_watch {
    struct muster_watch watch; /* first */
    struct verbs *verbs;
};

/* The leader is awake; it looks for completions by itself. */
static void completion_ready(struct muster_watch *watch, uint32_t events)
{
    const struct muster_verbs_device *device = &((struct device_watch *)watch)->verbs->device;
    struct ibv_cq *queue = NULL;
    void *unused = NULL;
    (void)events;
    while (device->library->get_cq_event(device->channel, &queue, &unused) == 0) {
        device->library->ack_cq_events(queue, 1);
    }
}

static void fail_paths(struct verbs *verbs, const struct ibv_qp *pair, const char *what)
{
    struct verbs_path *path = NULL;
    struct verbs_path *next = NULL;
    HASH_ITER(hh, verbs->by_number, path, next)
    {
        if (path->link != NULL && (pair == NULL || path->pair == pair)) {
            note_failure(path, what);
            muster_link_mark(path->link->link);
        }
    }
}

static void event_ready(struct muster_watch *watch, uint32_t events)
{
    struct verbs *verbs = ((struct device_watch *)watch)->verbs;
    const struct muster_verbs_library *library = verbs->device.library;
    struct ibv_async_event event;
    (void)events;
    while (library->get_async_event(verbs->device.context, &event) == 0) {
        const char *what = library->event_type_str(event.event_type);
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_PATH_MIG_ERR:
            fail_paths(verbs, event.element.qp, what);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            fail_paths(verbs, NULL, what);
            break;
        case IBV_EVENT_PORT_ERR: /* it may come back before the device gives up */
            muster_log(MUSTER_LOG_WARN, "RDMA device %s: %s", verbs->device.name, what);
            break;
        default:
            muster_log(MUSTER_LOG_DEBUG, "RDMA device %s: %s", verbs->device.name, what);
        }
        library->ack_async_event(&event);
    }
}

static void free_watch(struct muster_watch *watch)
{
    free(watch);
}

static muster_status watch_device(struct verbs *verbs, int fd,
                                  void (*ready)(struct muster_watch *watch, uint32_t events),
                                  struct muster_watch **ret_watch)
{
    struct device_watch *device = calloc(1, sizeof *device);
    int copy = dup(fd);
    if (device == NULL || copy < 0) {
        free(device);
        return muster_error_set(MUSTER_FATAL, "no descriptor for an RDMA device");
    }
    device->verbs = verbs;
    device->watch =
        (struct muster_watch){.fd = copy, .events = EPOLLIN, .ready = ready, .free = free_watch};
    muster_status status = muster_watch_add(verbs->halves.fabric, &device->watch);
    if (status != MUSTER_OK) {
        close(copy);
        free(device);
        return status;
    }
    *ret_watch = &device->watch;
    return MUSTER_OK;
}

muster_status muster_verbs_events_start(struct verbs *verbs)
{
    TRY(watch_device(verbs, verbs->device.channel->fd, completion_ready, &verbs->completions));
    return watch_device(verbs, verbs->device.context->async_fd, event_ready, &verbs->events);
}

void muster_verbs_events_stop(struct verbs *verbs)
{
    if (verbs->completions != NULL) {
        muster_watch_retire(verbs->halves.fabric, verbs->completions);
    }
    if (verbs->events != NULL) {
        muster_watch_retire(verbs->halves.fabric, verbs->events);
    }
}
