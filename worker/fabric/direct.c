/* Small messages of point to point without transfers: for blocking sends and receives, whose time
 * is the whole time of a small message. */
#include "worker/fabric/fabric.h"

#include "worker/fabric/link.h"

enum {
    POLLS = 20,           /* of one link, for each poll of memory that the spin policy allows */
    RECEIVES_MAX = 64,    /* in a row; then a wait does what else is due */
    POLLS_WITH_LOCK = 100 /* for less than 1 us; to release the lock and take it costs time, too */
};

/* NULL: the message cannot go directly. The timeline has only transfers. */
static struct muster_link *find_link(const struct muster_fabric *fabric,
                                     const struct muster_direct_message *message)
{
    if (message->key.generation != fabric->generation || fabric->generation <= fabric->revoked ||
        message->peer >= fabric->link_count || fabric->timeline != NULL) {
        return NULL;
    }
    struct muster_link *link = fabric->links[message->peer];
    return link != NULL && link->state == MUSTER_LINK_OPEN && link->ops->send_direct != NULL ? link
                                                                                             : NULL;
}

bool muster_fabric_send_direct_locked(struct muster_fabric *fabric,
                                      const struct muster_direct_message *message)
{
    struct muster_link *link = find_link(fabric, message);
    if (link == NULL || !link->ops->send_direct(link, message)) {
        return false;
    }
    fabric->figures.messages_sent++;
    fabric->figures.bytes_sent += message->size_bytes;
    return true;
}

/* Whether there is a leader, or work for one. */
static bool has_other_work(const struct muster_fabric *fabric)
{
    return fabric->leading || fabric->waiters != NULL || fabric->marked != NULL ||
           fabric->completed.first != NULL || fabric->quiescing > 0 ||
           atomic_load_explicit(&fabric->woken, memory_order_relaxed);
}

static enum muster_direct_result receive_now(struct muster_link *link,
                                             struct muster_direct_message *message)
{
    const struct muster_spin_policy *policy = &link->fabric->spin_policy;
    uint32_t polls = policy->polls && policy->polls_of_memory > 1 ? POLLS_WITH_LOCK : 1;
    for (; !link->ops->poll_direct(link); polls--) {
        if (polls == 0) {
            return MUSTER_DIRECT_NOTHING;
        }
    }
    return link->ops->receive_direct(link, message);
}

/* As the leader, without the lock. Whoever needs the leader wakes it. */
static bool poll(struct muster_fabric *fabric, const struct muster_link *link)
{
    const struct muster_spin_policy *policy = &fabric->spin_policy;
    bool polls = policy->polls && policy->rests_left == 0;
    uint32_t left = polls ? POLLS * policy->polls_of_memory : 0;
    bool found = false;
    if (left == 0) {
        return false;
    }
    fabric->leading = true;
    muster_fabric_unlock(fabric);
    while (!found && left-- > 0 && !atomic_load_explicit(&fabric->woken, memory_order_relaxed)) {
        found = link->ops->poll_direct(link);
    }
    muster_fabric_lock(fabric);
    fabric->leading = false;
    return found;
}

bool muster_fabric_receive_direct_locked(struct muster_fabric *fabric,
                                         struct muster_direct_message *message)
{
    struct muster_link *link = find_link(fabric, message);
    if (link == NULL || has_other_work(fabric)) {
        return false;
    }
    if (++fabric->direct_receives % RECEIVES_MAX == 0) {
        muster_progress_expect_events(fabric);
        return false;
    }
    enum muster_direct_result result = receive_now(link, message);
    if (result == MUSTER_DIRECT_NOTHING && poll(fabric, link)) {
        /* Threads that wait for the lock may have begun to close the link. */
        muster_fabric_yield(fabric);
        link = find_link(fabric, message);
        result = link != NULL && !fabric->leading ? link->ops->receive_direct(link, message)
                                                  : MUSTER_DIRECT_OTHER;
    }
    if (fabric->waiters != NULL || fabric->telling) { /* since the poll */
        muster_progress_end_leading(fabric);
    }
    if (result != MUSTER_DIRECT_RECEIVED) {
        return false;
    }
    fabric->figures.messages_received++;
    fabric->figures.bytes_received += message->size_bytes;
    return true;
}
