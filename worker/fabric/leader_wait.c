/* How the leader waits: polls memory and descriptors, yields in between, and then sleeps. */
#include "worker/fabric/leader_wait.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/epoll.h>

#include "worker/base/clock.h"
#include "worker/base/core_move.h"
#include "worker/base/thread.h"
#include "worker/fabric/link.h"

enum {
    READS_MAX = 15,   /* of the awaited link, for one poll of all descriptors */
    AT_ONCE_MAX = 64, /* messages that were there already, in a row; then descriptors are polled */
};

/* Polling -------------------------------------------------------------------------------------- */

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

/* Reads from the link of the last posted receive, if that receive still waits: one system call
 * instead of two, one that finds the event and one that reads. True if anything came. */
static bool receive_awaited_locked(struct muster_fabric *fabric, bool *ret_was_read)
{
    struct muster_link *link = fabric->awaited;
    bool found = false;
    *ret_was_read = link != NULL && link->state == MUSTER_LINK_OPEN && link->receives.count > 0 &&
                    link->ops->receive != NULL && link->ops->receive(link, &found);
    muster_fabric_yield(fabric);
    return found;
}

void muster_leader_receive_at_once(struct muster_fabric *fabric)
{
    bool was_read = false;
    muster_fabric_yield(fabric);
    if (receive_awaited_locked(fabric, &was_read)) {
        muster_spin_policy_note_success(&fabric->spin_policy);
        if (++fabric->direct_receives % AT_ONCE_MAX == 0) {
            muster_progress_expect_events(fabric);
        }
    }
}

/* The same without the lock. */
static bool receive_awaited(struct muster_fabric *fabric, bool *ret_was_read)
{
    muster_fabric_lock(fabric);
    bool found = receive_awaited_locked(fabric, ret_was_read);
    muster_fabric_unlock(fabric);
    return found;
}

/* must: also where the awaited link has been read from, since the thread yields next. */
static bool poll_descriptors(struct muster_fabric *fabric, bool must, struct epoll_event *events,
                             int *ret_count)
{
    bool was_read = false;
    if (receive_awaited(fabric, &was_read)) {
        return true;
    }
    if (was_read && !must && fabric->reads_left > 0) {
        fabric->reads_left--;
        return false;
    }
    fabric->reads_left = fabric->reads;
    *ret_count = epoll_wait(fabric->epoll_fd, events, MUSTER_EVENTS_MAX, 0);
    return *ret_count != 0;
}

void muster_leader_note_events(struct muster_fabric *fabric, bool awaited_came)
{
    fabric->reads = awaited_came ? READS_MAX : 1;
}

/* When a wait begins, and how long it may last. */
struct wait_times {
    int64_t now_ns, until_ns;
};

/* Polls memory and descriptors without the lock, for as long as the spin policy allows, and yields
 * in between. change_core: first moves this thread to the core that the policy gives it. True if
 * there is work; *ret_count is then the number of events taken from epoll. Tells the policy how
 * long each yield took, and whether polling found work before the sleep. */
static bool spin(struct muster_fabric *fabric, bool change_core, struct wait_times times,
                 struct epoll_event *events, int *ret_count)
{
    int64_t now_ns = times.now_ns;
    int64_t spin_ns = fabric->spin_policy.poll_ns;
    int64_t end_ns = now_ns + spin_ns < times.until_ns ? now_ns + spin_ns : times.until_ns;
    int64_t yield_ns = now_ns + fabric->spin_policy.pause;
    bool found = false;
    muster_fabric_unlock(fabric);
    if (change_core) {
        (void)muster_core_move(fabric->spin_policy.index);
    }
    while (!found && now_ns < end_ns) {
        found = poll_memory(fabric);
        found = found || poll_descriptors(fabric, now_ns >= yield_ns, events, ret_count);
        if (found) {
            break;
        }
        now_ns = muster_clock_ns();
        if (now_ns >= yield_ns) {
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

/* Sleeping ------------------------------------------------------------------------------------- */

/* Sleeps until there is an event, at most left_ns; negative: without limit. */
static int sleep_for(const struct muster_fabric *fabric, int64_t left_ns,
                     struct epoll_event *events)
{
    const struct timespec left = muster_clock_timespec(left_ns);
    int got =
        epoll_pwait2(fabric->epoll_fd, events, MUSTER_EVENTS_MAX, left_ns < 0 ? NULL : &left, NULL);
    if (got >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return got;
    }
    /* Before Linux 5.11, or with a filter of system calls that is as old, the unit is milliseconds.
     * Rounded up, so that the leader does not poll in a loop before the time has come. */
    int64_t left_ms = left_ns / MUSTER_NS_PER_MS + (left_ns % MUSTER_NS_PER_MS > 0);
    int most_ms = left_ms < INT_MAX ? (int)left_ms : INT_MAX;
    return epoll_wait(fabric->epoll_fd, events, MUSTER_EVENTS_MAX, left_ns < 0 ? -1 : most_ms);
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

/* Waiting -------------------------------------------------------------------------------------- */

/* Before the leader sleeps, it arms the wake-ups and polls once more: either the leader sees what
 * was written, or the writer sees that the leader sleeps. */
int muster_leader_wait(struct muster_fabric *fabric, int64_t now_ns, int64_t until_ns,
                       struct epoll_event *events)
{
    int count = 0;
    enum muster_spin_action action =
        until_ns == 0 ? MUSTER_SPIN_SLEEP : muster_spin_policy_begin_wait(&fabric->spin_policy);
    const struct wait_times times = {.now_ns = now_ns, .until_ns = until_ns};
    if (action == MUSTER_SPIN_SLEEP ||
        !spin(fabric, action == MUSTER_SPIN_MOVE, times, events, &count)) {
        arm_wakeups(fabric, true);
        int64_t sleep_ns = poll_transports(fabric) ? 0 : until_ns;
        muster_mutex_unlock(&fabric->lock);
        count = sleep_until(fabric, sleep_ns, events);
        muster_mutex_lock(&fabric->lock);
        arm_wakeups(fabric, false);
    }
    assert(count >= 0 || errno == EINTR);
    return count;
}
