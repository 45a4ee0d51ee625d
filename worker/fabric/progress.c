/*
 * Progress. One of the waiting threads is the leader: it moves bytes, handles events, and calls
 * done functions. The others sleep until their operation has finished, the generation is revoked,
 * or the leader has finished and one of them becomes the leader.
 */
#include "worker/base/clock.h"
#include "worker/base/core_move.h"
#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/fabric/link.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 64,          /* taken from epoll at a time */
    TURNS_WITHOUT_EVENTS = 8, /* while there is other work; then descriptors are polled */
    RELAXES = 16,             /* between two polls of descriptors */
    SIGNATURES_DELAY_NS =
        50 * 1000 * 1000, /* of a wait, until it sends its signature to the peers */
};

struct muster_waiter {
    const bool *finished;
    uint64_t generation;
    const struct muster_operation_id *operation;    /* NULL: waits for something else */
    int64_t signatures_delay_ns, signatures_due_ns; /* 0: the wait has just begun */
    pthread_cond_t woken;                           /* while another thread is the leader */
    struct muster_waiter *next, *previous;
};

/* Waking ------------------------------------------------------------------------------------- */

void muster_fabric_wake(struct muster_fabric *fabric)
{
    /* Either the leader sees `woken` before it sleeps, or this thread sees `sleeping`: each stores
     * its own flag before it loads the other one. */
    if (atomic_exchange(&fabric->woken, true) || !atomic_load(&fabric->sleeping)) {
        return;
    }
    uint64_t one = 1;
    ssize_t written = write(fabric->wake_fd, &one, sizeof one);
    (void)written; /* cannot fail: the counter holds 2^64 - 2 wakes */
}

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

/* The lock while bytes are moved ------------------------------------------------------------- */

void muster_fabric_unlock(struct muster_fabric *fabric)
{
    fabric->busy = true;
    muster_mutex_unlock(&fabric->lock);
}

void muster_fabric_lock(struct muster_fabric *fabric)
{
    muster_mutex_lock(&fabric->lock);
    fabric->busy = false;
    if (fabric->quiescing > 0) {
        pthread_cond_broadcast(&fabric->idle);
    }
}

void muster_fabric_yield(struct muster_fabric *fabric)
{
    while (fabric->quiescing > 0) {
        pthread_cond_wait(&fabric->idle, &fabric->lock);
    }
}

void muster_fabric_quiesce(struct muster_fabric *fabric)
{
    fabric->quiescing++;
    while (fabric->busy) {
        muster_fabric_wake(fabric); /* the leader may be spinning */
        pthread_cond_wait(&fabric->idle, &fabric->lock);
    }
    fabric->quiescing--;
    pthread_cond_broadcast(&fabric->idle);
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
    if (atomic_exchange(&fabric->woken, false)) {
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

static int64_t run_timers(struct muster_fabric *fabric)
{
    int64_t due_ns = MUSTER_NEVER;
    int64_t now_ns = muster_clock_ns();
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        int64_t next_ns = fabric->transports[i].ops->timers(fabric->transports[i].self, now_ns);
        due_ns = next_ns < due_ns ? next_ns : due_ns;
    }
    return due_ns;
}

/* Polling -------------------------------------------------------------------------------------- */

static void mark_updated_links(struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        if (fabric->transports[i].ops->mark_updated != NULL) {
            fabric->transports[i].ops->mark_updated(fabric->transports[i].self);
        }
    }
}

static bool poll_transports(const struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        if (fabric->transports[i].ops->poll != NULL &&
            fabric->transports[i].ops->poll(fabric->transports[i].self)) {
            return true;
        }
    }
    return false;
}

static void arm_wakeups(struct muster_fabric *fabric, bool armed)
{
    for (uint32_t i = 0; i < fabric->transport_count; i++) {
        if (fabric->transports[i].ops->arm_wakeups != NULL) {
            fabric->transports[i].ops->arm_wakeups(fabric->transports[i].self, armed);
        }
    }
}

static bool poll_memory(const struct muster_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->spin_policy.polls_of_memory; i++) {
        if (poll_transports(fabric) || atomic_load_explicit(&fabric->woken, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

/* Takes between 100 ns and 1 us. */
static void relax(void)
{
    for (int i = 0; i < RELAXES; i++) {
        muster_spin_relax();
    }
}

/* Polls memory and descriptors without the lock, for as long as the spin policy allows, and yields
 * in between. change_core: first moves this thread to the core that the policy gives it. True if
 * there is work; *ret_count is then the number of events taken from epoll. Tells the policy how
 * long each yield took, and whether polling found work before the sleep. */
static bool spin(struct muster_fabric *fabric, bool change_core, int64_t until_ns,
                 struct epoll_event *events, int *ret_count)
{
    int64_t now_ns = muster_clock_ns();
    int64_t spin_ns = fabric->spin_policy.poll_ns;
    int64_t end_ns = now_ns + spin_ns < until_ns ? now_ns + spin_ns : until_ns;
    int64_t yield_ns = now_ns + fabric->spin_policy.pause;
    bool found = false;
    muster_fabric_yield(fabric);
    muster_fabric_unlock(fabric);
    if (change_core) {
        (void)muster_core_move(fabric->spin_policy.index);
    }
    while (!found && now_ns < end_ns) {
        found = poll_memory(fabric);
        if (!found) {
            *ret_count = epoll_wait(fabric->epoll_fd, events, EVENTS_MAX, 0);
            found = *ret_count != 0;
            now_ns = muster_clock_ns();
        }
        if (!found && now_ns < yield_ns) {
            relax();
            continue;
        }
        if (!found) {
            int64_t before_ns = now_ns;
            sched_yield(); /* to a peer that shares this core */
            now_ns = muster_clock_ns();
            muster_spin_policy_note_yield(&fabric->spin_policy, now_ns - before_ns);
            yield_ns = now_ns + fabric->spin_policy.pause;
        }
    }
    muster_fabric_lock(fabric);
    if (found) {
        muster_spin_policy_note_success(&fabric->spin_policy);
    }
    return found;
}

/* Sleeps until there is an event, at most left_ns; negative: without limit. */
static int sleep_for(const struct muster_fabric *fabric, int64_t left_ns,
                     struct epoll_event *events)
{
    const struct timespec left = muster_clock_timespec(left_ns);
    int got = epoll_pwait2(fabric->epoll_fd, events, EVENTS_MAX, left_ns < 0 ? NULL : &left, NULL);
    if (got >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return got;
    }
    /* Before Linux 5.11, or with a filter of system calls that is as old, the unit is milliseconds.
     * Rounded up, so that the leader does not poll in a loop before the time has come. */
    int64_t left_ms = left_ns / MUSTER_NS_PER_MS + (left_ns % MUSTER_NS_PER_MS > 0);
    int most_ms = left_ms < INT_MAX ? (int)left_ms : INT_MAX;
    return epoll_wait(fabric->epoll_fd, events, EVENTS_MAX, left_ns < 0 ? -1 : most_ms);
}

/* Sleeps until until_ns, an event or a wake. Called without the lock. */
static int sleep_until(struct muster_fabric *fabric, int64_t until_ns, struct epoll_event *events)
{
    int64_t now_ns = muster_clock_ns();
    int64_t left_ns = until_ns == MUSTER_NEVER ? -1 : until_ns > now_ns ? until_ns - now_ns : 0;
    atomic_store(&fabric->sleeping, true);
    int got = sleep_for(fabric, atomic_load(&fabric->woken) ? 0 : left_ns, events);
    atomic_store(&fabric->sleeping, false);
    return got;
}

/* Waits for events, at most until until_ns, and handles them. Before the leader sleeps, it arms the
 * wake-ups and polls once more: either the leader sees what was written, or the writer sees that
 * the leader sleeps. */
static void handle_events(struct muster_fabric *fabric, int64_t until_ns)
{
    struct epoll_event events[EVENTS_MAX];
    int count = 0;
    enum muster_spin_action action =
        until_ns == 0 ? MUSTER_SPIN_SLEEP : muster_spin_policy_begin_wait(&fabric->spin_policy);
    if (action == MUSTER_SPIN_SLEEP ||
        !spin(fabric, action == MUSTER_SPIN_MOVE, until_ns, events, &count)) {
        arm_wakeups(fabric, true);
        int64_t sleep_ns = poll_transports(fabric) ? 0 : until_ns;
        muster_mutex_unlock(&fabric->lock);
        count = sleep_until(fabric, sleep_ns, events);
        muster_mutex_lock(&fabric->lock);
        arm_wakeups(fabric, false);
    }
    assert(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; i++) {
        struct muster_watch *watch = events[i].data.ptr;
        if (!watch->retired) {
            watch->ready(watch, events[i].events);
        }
    }
}

/* Links come before descriptors: memory is polled in every turn, descriptors only when there was no
 * work, or in every eighth turn. The leader sleeps only if nothing has been completed and no link
 * is marked. */
void muster_progress_turn(struct muster_fabric *fabric, int64_t deadline_ns)
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
        int64_t due_ns = run_timers(fabric);
        /* A timer may have dialled and been refused at once, which completes transfers. */
        bool more = worked || fabric->completed_any || fabric->marked != NULL ||
                    fabric->completed.first != NULL;
        handle_events(fabric, more ? 0 : due_ns < deadline_ns ? due_ns : deadline_ns);
        call_done_functions(fabric);
    }
    wake_finished(fabric);
}

/* Waiting ------------------------------------------------------------------------------------ */

muster_status muster_fabric_over(const struct muster_fabric *fabric, uint64_t generation)
{
    if (generation <= fabric->revoked) {
        return muster_error_set(MUSTER_REJOIN, "generation %llu is over: %s",
                                (unsigned long long)generation, fabric->revoked_reason);
    }
    return muster_error_set(MUSTER_REJOIN, "generation %llu is over: generation %llu has begun",
                            (unsigned long long)generation, (unsigned long long)fabric->generation);
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

/* Sends signatures after SIGNATURES_DELAY_NS, and again after twice the time. Returns when to be
 * called again. */
static int64_t send_signatures_when_due(struct muster_fabric *fabric, struct muster_waiter *waiter,
                                        int64_t now_ns)
{
    if (waiter->operation == NULL) {
        return MUSTER_NEVER;
    }
    if (waiter->signatures_due_ns == 0) {
        waiter->signatures_delay_ns = SIGNATURES_DELAY_NS;
        waiter->signatures_due_ns = now_ns + SIGNATURES_DELAY_NS;
    } else if (now_ns >= waiter->signatures_due_ns) {
        send_signatures(fabric, waiter->operation);
        waiter->signatures_delay_ns *= 2;
        waiter->signatures_due_ns = now_ns + waiter->signatures_delay_ns;
    }
    return waiter->signatures_due_ns;
}

/* Waits as a follower while another thread is the leader, and drives progress as the leader
 * otherwise. The conditions are checked again after each turn and each wake-up. */
static muster_status wait_locked(struct muster_fabric *fabric, struct muster_waiter *waiter,
                                 int64_t deadline_ns)
{
    for (;;) {
        if (*waiter->finished) {
            return MUSTER_OK;
        }
        if (waiter->generation <= fabric->revoked || waiter->generation < fabric->generation) {
            return muster_fabric_over(fabric, waiter->generation);
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
            fabric->leading = true;
            muster_progress_turn(fabric, until_ns);
            fabric->leading = false;
        }
    }
}

void muster_progress_tell(struct muster_fabric *fabric)
{
    if (fabric->telling && !fabric->leading && !fabric->killed) {
        fabric->leading = true;
        fabric->telling = false;
        muster_progress_turn(fabric, 0);
        fabric->leading = false;
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
        fabric->leading = true;
        muster_progress_turn(fabric, 0);
        fabric->leading = false;
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
                                    const bool *finished, int64_t deadline_ns)
{
    const struct muster_operation_id id = muster_key_operation(operation);
    struct muster_waiter waiter = {
        .finished = finished, .generation = operation->generation, .operation = &id};
    return drive(fabric, &waiter, deadline_ns);
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
