/*
 * Progress. One of the waiting threads is the leader: it moves bytes, handles events, and calls
 * done functions. The others sleep until their operation has finished, the generation is revoked,
 * or the leader has finished and one of them becomes the leader.
 */
#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/fabric/leader_wait.h"
#include "worker/fabric/link.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    TURNS_WITHOUT_EVENTS = 8, /* while there is other work; then descriptors are polled */
    SIGNATURES_DELAY_NS =
        50 * 1000 * 1000, /* of a wait, until it sends its signature to the peers */
};

/* RDMA finds out that a peer is cut off when it sends something: here at the latest. */
static const int64_t signatures_delay_max_ns = 10 * (int64_t)MUSTER_NS_PER_S;

struct muster_waiter {
    const bool *finished;
    uint64_t generation;
    const struct muster_operation_id *operation; /* NULL: waits for something else */
    struct muster_wait_clock clock;              /* 0: the wait has just begun */
    pthread_cond_t woken;                        /* while another thread is the leader */
    struct muster_waiter *next, *previous;
};

/* Waking ------------------------------------------------------------------------------------- */

static void wake_ready(struct muster_watch *watch, uint32_t events)
{
    (void)events;
    uint64_t wakes = 0;
    ssize_t got = read(watch->fd, &wakes, sizeof wakes);
    (void)got;
}

void muster_progress_wake_all(struct muster_fabric *fabric)
{
    for (struct muster_waiter *waiter = fabric->waiters; waiter != NULL; waiter = waiter->next) {
        pthread_cond_signal(&waiter->woken);
    }
    muster_fabric_wake(fabric);
}

static void wake_finished(struct muster_fabric *fabric)
{
    for (struct muster_waiter *waiter = fabric->waiters; waiter != NULL; waiter = waiter->next) {
        if (*waiter->finished) {
            pthread_cond_signal(&waiter->woken);
        }
    }
}

/* Watches ------------------------------------------------------------------------------------ */

muster_status muster_watch_add(struct muster_fabric *fabric, struct muster_watch *watch)
{
    struct epoll_event event = {.events = watch->events, .data.ptr = watch};
    if (epoll_ctl(fabric->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0) {
        return muster_error_errno(MUSTER_FATAL, "epoll");
    }
    return MUSTER_OK;
}

void muster_watch_change(struct muster_fabric *fabric, struct muster_watch *watch, uint32_t events)
{
    if (watch->retired || watch->events == events) {
        return;
    }
    watch->events = events;
    struct epoll_event event = {.events = events, .data.ptr = watch};
    int failed = epoll_ctl(fabric->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
    assert(failed == 0);
    (void)failed;
}

void muster_watch_retire(struct muster_fabric *fabric, struct muster_watch *watch)
{
    if (watch->retired) {
        return;
    }
    /* close() does not remove the descriptor from epoll while another process has it open, too: a
     * child of fork() closes its copies, but only when it runs. */
    (void)epoll_ctl(fabric->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    muster_fork_guard_close(watch->fd);
    watch->fd = -1;
    watch->retired = true;
    watch->next = fabric->retired_watches;
    fabric->retired_watches = watch;
}

static void free_retired(struct muster_fabric *fabric)
{
    while (fabric->retired_watches != NULL) {
        struct muster_watch *watch = fabric->retired_watches;
        fabric->retired_watches = watch->next;
        watch->free(watch);
    }
    struct muster_link **pointer = &fabric->retired_links;
    while (*pointer != NULL) {
        struct muster_link *link = *pointer;
        if (link->marked) { /* its record is in the list of marked links, so it is freed later */
            pointer = &link->next;
            continue;
        }
        *pointer = link->next;
        free(link);
    }
}

/* A turn ------------------------------------------------------------------------------------- */

static void call_done_functions(struct muster_fabric *fabric)
{
    struct muster_transfer *transfer = NULL;
    while ((transfer = muster_transfer_list_pop(&fabric->completed)) != NULL) {
        transfer->state = MUSTER_TRANSFER_DONE;
        if (transfer->done != NULL) {
            transfer->done(transfer);
        }
    }
}

/* Links that are marked meanwhile make progress in the next turn. */
static void progress_marked(struct muster_fabric *fabric)
{
    if (atomic_load(&fabric->woken) && atomic_exchange(&fabric->woken, false)) {
        for (uint32_t i = 0; i < fabric->transport_count; i++) {
            fabric->transports[i].ops->woken(fabric->transports[i].self);
        }
    }
    struct muster_link *link = fabric->marked;
    fabric->marked = NULL;
    while (link != NULL) {
        struct muster_link *next = link->next_marked;
        link->marked = false;
        if (link->end != NULL) {
            link->ops->progress(link);
        }
        link = next;
    }
}

static int64_t run_timers(struct muster_fabric *fabric, int64_t now_ns)
{
    int64_t due_ns = fabric->look_at_links(fabric, now_ns);
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        int64_t next_ns = fabric->transports[i].ops->timers(fabric->transports[i].self, now_ns);
        due_ns = next_ns < due_ns ? next_ns : due_ns;
    }
    return due_ns;
}

static void mark_updated_links(struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        if (fabric->transports[i].ops->mark_updated != NULL) {
            fabric->transports[i].ops->mark_updated(fabric->transports[i].self);
        }
    }
}

/* Waits for events, at most until until_ns, and handles them. */
static void handle_events(struct muster_fabric *fabric, int64_t now_ns, int64_t until_ns)
{
    struct epoll_event events[MUSTER_EVENTS_MAX];
    int count = muster_leader_wait(fabric, now_ns, until_ns, events);
    const struct muster_link *awaited = fabric->awaited;
    uint32_t receives = awaited != NULL ? awaited->receives.count : 0;
    for (int i = 0; i < count; i++) {
        struct muster_watch *watch = events[i].data.ptr;
        if (!watch->retired) {
            watch->ready(watch, events[i].events);
        }
    }
    if (count > 0) {
        muster_leader_note_events(fabric, awaited != NULL && awaited->receives.count < receives);
    }
}

/* Links come before descriptors: memory is polled in every turn, descriptors only when there was no
 * work, or in every eighth turn. The leader sleeps only if nothing has been completed and no link
 * is marked. */
void muster_progress_turn(struct muster_fabric *fabric, int64_t now_ns, int64_t deadline_ns)
{
    free_retired(fabric);
    fabric->completed_any = false;
    mark_updated_links(fabric);
    bool worked = fabric->completed_any || fabric->marked != NULL ||
                  fabric->completed.first != NULL || atomic_load(&fabric->woken);
    if (worked) {
        progress_marked(fabric);
        call_done_functions(fabric);
    }
    fabric->turns = worked ? fabric->turns + 1 : 0;
    if (!worked || fabric->turns % TURNS_WITHOUT_EVENTS == 0) {
        now_ns = now_ns != 0 ? now_ns : muster_clock_ns();
        int64_t due_ns = run_timers(fabric, now_ns);
        /* A timer may have dialled and been refused at once, which completes transfers. */
        bool more = worked || fabric->completed_any || fabric->marked != NULL ||
                    fabric->completed.first != NULL;
        handle_events(fabric, now_ns, more ? 0 : due_ns < deadline_ns ? due_ns : deadline_ns);
        call_done_functions(fabric);
    }
    wake_finished(fabric);
}

/* Waiting ------------------------------------------------------------------------------------ */

muster_status muster_fabric_over(const struct muster_fabric *fabric, uint64_t generation)
{
    if (generation <= fabric->revoked) {
        return muster_error_set(MUSTER_REJOIN, "generation %llu is over: %s",
                                (unsigned long long)muster_epoch_shown(generation),
                                fabric->revoked_reason);
    }
    return muster_error_set(MUSTER_REJOIN, "generation %llu is over: generation %llu has begun",
                            (unsigned long long)muster_epoch_shown(generation),
                            (unsigned long long)muster_epoch_shown(fabric->generation));
}

static void wait_for_leader(struct muster_fabric *fabric, struct muster_waiter *waiter,
                            int64_t deadline_ns)
{
    muster_condition_init(&waiter->woken);
    waiter->next = fabric->waiters;
    waiter->previous = NULL;
    if (waiter->next != NULL) {
        waiter->next->previous = waiter;
    }
    fabric->waiters = waiter;
    (void)muster_condition_wait(&waiter->woken, &fabric->lock, deadline_ns);
    if (waiter->next != NULL) {
        waiter->next->previous = waiter->previous;
    }
    if (waiter->previous != NULL) {
        waiter->previous->next = waiter->next;
    } else {
        fabric->waiters = waiter->next;
    }
    pthread_cond_destroy(&waiter->woken);
}

/* Sends the operation's signature to the peers that it waits for. Members whose calls differ may
 * each wait for a message that its peer never sends; signatures break such a deadlock, because the
 * members with equal calls run one schedule, and a schedule is proven to have no deadlock. */
static void send_signatures(struct muster_fabric *fabric,
                            const struct muster_operation_id *operation)
{
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL && link->end != NULL &&
            (link->state == MUSTER_LINK_OPENING || link->state == MUSTER_LINK_OPEN)) {
            link->ops->send_signature(link, operation);
        }
    }
    if (fabric->leading) {
        muster_fabric_wake(fabric);
    }
}

/* Sends signatures after SIGNATURES_DELAY_NS, and again after twice the time, up to 10 s. Returns
 * when to be called again. */
static int64_t send_signatures_when_due(struct muster_fabric *fabric, struct muster_waiter *waiter,
                                        int64_t now_ns)
{
    if (waiter->operation == NULL) {
        return MUSTER_NEVER;
    }
    if (waiter->clock.signatures_due_ns == 0) {
        waiter->clock.signatures_delay_ns = SIGNATURES_DELAY_NS;
        waiter->clock.signatures_due_ns = now_ns + SIGNATURES_DELAY_NS;
    } else if (now_ns >= waiter->clock.signatures_due_ns) {
        send_signatures(fabric, waiter->operation);
        waiter->clock.signatures_delay_ns =
            2 * waiter->clock.signatures_delay_ns < signatures_delay_max_ns
                ? 2 * waiter->clock.signatures_delay_ns
                : signatures_delay_max_ns;
        waiter->clock.signatures_due_ns = now_ns + waiter->clock.signatures_delay_ns;
    }
    return waiter->clock.signatures_due_ns;
}

static void lead(struct muster_fabric *fabric, int64_t now_ns, int64_t deadline_ns)
{
    fabric->leading = true;
    muster_progress_turn(fabric, now_ns, deadline_ns);
    fabric->leading = false;
}

/* What this thread has just posted goes out, and what has arrived is taken. Timers and other
 * descriptors have their turn later, so that a small call does not pay for them. */
static void begin_wait(struct muster_fabric *fabric, const bool *finished)
{
    fabric->leading = true;
    muster_progress_turn(fabric, 0, 0);
    if (!*finished) {
        muster_leader_receive_at_once(fabric);
        call_done_functions(fabric);
        wake_finished(fabric);
    }
    fabric->leading = false;
}

/* Waits as a follower while another thread is the leader, and drives progress as the leader
 * otherwise. The conditions are checked again after each turn and each wake-up. */
static muster_status wait_locked(struct muster_fabric *fabric, struct muster_waiter *waiter,
                                 int64_t deadline_ns)
{
    bool began = false;
    for (;;) {
        if (*waiter->finished) {
            return MUSTER_OK;
        }
        if (waiter->generation <= fabric->revoked || waiter->generation < fabric->generation) {
            return muster_fabric_over(fabric, waiter->generation);
        }
        if (!fabric->leading && fabric->marked != NULL && !began) {
            began = true;
            begin_wait(fabric, waiter->finished);
            continue;
        }
        int64_t now_ns = muster_clock_ns();
        if (now_ns >= deadline_ns) {
            return muster_error_set(MUSTER_RETRY, "the deadline has passed");
        }
        int64_t due_ns = send_signatures_when_due(fabric, waiter, now_ns);
        int64_t until_ns = due_ns < deadline_ns ? due_ns : deadline_ns;
        if (fabric->leading) {
            wait_for_leader(fabric, waiter, until_ns);
        } else {
            lead(fabric, now_ns, until_ns);
        }
    }
}

void muster_progress_tell(struct muster_fabric *fabric)
{
    if (fabric->telling && !fabric->leading && !fabric->killed) {
        fabric->telling = false;
        lead(fabric, 0, 0);
    }
}

void muster_progress_expect_events(struct muster_fabric *fabric)
{
    fabric->turns = TURNS_WITHOUT_EVENTS - 1;
}

void muster_progress_end_leading(struct muster_fabric *fabric)
{
    muster_progress_tell(fabric);
    if (!fabric->leading && fabric->waiters != NULL) {
        pthread_cond_signal(&fabric->waiters->woken);
    }
}

void muster_fabric_poll(struct muster_fabric *fabric)
{
    AUTO_LOCK(&fabric->lock);
    if (!fabric->leading && !fabric->killed) {
        lead(fabric, 0, 0);
        muster_progress_end_leading(fabric);
    }
}

static muster_status drive(struct muster_fabric *fabric, struct muster_waiter *waiter,
                           int64_t deadline_ns)
{
    muster_mutex_lock(&fabric->lock);
    muster_status status = wait_locked(fabric, waiter, deadline_ns);
    muster_progress_end_leading(fabric);
    muster_mutex_unlock(&fabric->lock);
    return status;
}

muster_status muster_fabric_wait(struct muster_fabric *fabric, uint64_t generation,
                                 const bool *finished, int64_t deadline_ns)
{
    struct muster_waiter waiter = {.finished = finished, .generation = generation};
    return drive(fabric, &waiter, deadline_ns);
}

muster_status muster_fabric_wait_in(struct muster_fabric *fabric,
                                    const struct muster_message_key *operation,
                                    struct muster_wait_clock *clock, const bool *finished,
                                    int64_t deadline_ns)
{
    const struct muster_operation_id id = muster_key_operation(operation);
    struct muster_waiter waiter = {.finished = finished,
                                   .generation = operation->generation,
                                   .operation = &id,
                                   .clock = *clock};
    muster_status status = drive(fabric, &waiter, deadline_ns);
    *clock = waiter.clock;
    return status;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the built-in function writes it */
void muster_fabric_notify(struct muster_fabric *fabric, bool *finished)
{
    AUTO_LOCK(&fabric->lock);
    __atomic_store_n(finished, true, __ATOMIC_SEQ_CST);
    wake_finished(fabric);
    if (fabric->leading) {
        muster_fabric_wake(fabric);
    }
}

/* Beginning and end -------------------------------------------------------------------------- */

static void wake_free(struct muster_watch *watch)
{
    (void)watch; /* the record is a part of the fabric */
}

muster_status muster_progress_init(struct muster_fabric *fabric)
{
    /* Nothing is known of the host before the first generation: each wait sleeps at once. */
    const struct muster_spin_host unknown = {.quota_millis = 0};
    muster_spin_policy_init(&fabric->spin_policy, &muster_spin_on_links, &unknown);
    muster_mutex_init(&fabric->lock);
    pthread_cond_init(&fabric->idle, NULL);
    fabric->epoll_fd = MUSTER_GUARDED(epoll_create1(EPOLL_CLOEXEC));
    fabric->wake_fd = MUSTER_GUARDED(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (fabric->epoll_fd < 0 || fabric->wake_fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "epoll and eventfd");
    }
    fabric->wake_watch = (struct muster_watch){
        .fd = fabric->wake_fd, .events = EPOLLIN, .ready = wake_ready, .free = wake_free};
    return muster_watch_add(fabric, &fabric->wake_watch);
}

void muster_progress_finish(struct muster_fabric *fabric)
{
    for (struct muster_link *link = fabric->retired_links; link != NULL; link = link->next) {
        link->marked = false; /* nobody follows the list of marked links any more */
    }
    free_retired(fabric);
    if (fabric->epoll_fd >= 0) {
        muster_fork_guard_close(fabric->epoll_fd);
    }
    if (fabric->wake_fd >= 0) {
        muster_fork_guard_close(fabric->wake_fd);
    }
    pthread_cond_destroy(&fabric->idle);
    pthread_mutex_destroy(&fabric->lock);
}
