/* Descriptors that members of one host send each other, over links that share memory. */
#include "worker/base/thread.h"
#include "worker/fabric/known_peers.h"
#include "worker/fabric/link.h"

/* One attempt over an open link, under the lock. After MUSTER_RETRY the attempt is repeated when
 * the link changes. */
typedef muster_status (*attempt)(struct muster_link *link, void *request);

struct request {
    uint64_t generation, tag;
    int fd;
    bool shares;
};

static void observe(struct muster_fabric *fabric, struct muster_observer *observer)
{
    observer->next = fabric->observers;
    fabric->observers = observer;
}

static void stop_observing(struct muster_fabric *fabric, const struct muster_observer *observer)
{
    struct muster_observer **place = &fabric->observers;
    while (*place != observer) {
        place = &(*place)->next;
    }
    *place = observer->next;
}

static muster_status check_peer(struct muster_fabric *fabric, uint64_t generation, uint32_t peer)
{
    if (generation != fabric->generation || generation <= fabric->revoked) {
        return muster_fabric_over(fabric, generation);
    }
    if (muster_fabric_link_to(fabric, peer) == NULL) {
        return muster_error_set(MUSTER_INVALID, "rank %u: no other member of this generation",
                                peer);
    }
    return MUSTER_OK;
}

/* Clears `notified` first, so that a change during the attempt leads to another one. */
static muster_status attempt_once(struct muster_fabric *fabric, uint32_t peer,
                                  struct muster_observer *observer, attempt function,
                                  struct request *request)
{
    AUTO_LOCK(&fabric->lock);
    observer->notified = false;
    TRY(check_peer(fabric, request->generation, peer));
    struct muster_link *link = fabric->links[peer];
    muster_link_open(link);
    if (link->state == MUSTER_LINK_LOST || link->state == MUSTER_LINK_PEER_LEFT) {
        return muster_error_set(MUSTER_REJOIN, "%s", link->reason);
    }
    return link->state == MUSTER_LINK_OPEN
               ? function(link, request)
               : muster_error_set(MUSTER_RETRY, "the link to rank %u (host %s) is not open",
                                  link->rank, link->peer.host);
}

/* Becomes an observer before the first attempt, so that no change of the link is missed between an
 * attempt and the wait. */
static muster_status retry_until(struct muster_fabric *fabric, uint32_t peer, int64_t deadline_ns,
                                 attempt function, struct request *request)
{
    struct muster_observer observer = {.notified = false};
    muster_mutex_lock(&fabric->lock);
    observe(fabric, &observer);
    muster_mutex_unlock(&fabric->lock);
    muster_status status;
    do {
        status = attempt_once(fabric, peer, &observer, function, request);
    } while (status == MUSTER_RETRY &&
             (status = muster_fabric_wait(fabric, request->generation, &observer.notified,
                                          deadline_ns)) == MUSTER_OK);
    muster_mutex_lock(&fabric->lock);
    stop_observing(fabric, &observer);
    muster_mutex_unlock(&fabric->lock);
    return status;
}

static muster_status query_sharing(struct muster_link *link, void *request)
{
    ((struct request *)request)->shares = link->ops->shares_memory;
    return MUSTER_OK;
}

static muster_status require_memory(const struct muster_link *link)
{
    if (!link->ops->shares_memory) {
        return muster_error_set(MUSTER_INVALID, "the link to rank %u (host %s) shares no memory",
                                link->rank, link->peer.host);
    }
    return MUSTER_OK;
}

static muster_status send_one(struct muster_link *link, void *request)
{
    const struct request *wanted = request;
    TRY(require_memory(link));
    return link->ops->send_descriptor(link, wanted->generation, wanted->tag, wanted->fd);
}

static muster_status receive_one(struct muster_link *link, void *request)
{
    struct request *wanted = request;
    TRY(require_memory(link));
    wanted->fd = link->ops->receive_descriptor(link, wanted->generation, wanted->tag);
    return wanted->fd >= 0 ? MUSTER_OK
                           : muster_error_set(MUSTER_RETRY, "rank %u (host %s) has sent none",
                                              link->rank, link->peer.host);
}

muster_status muster_fabric_shares_memory(struct muster_fabric *fabric, uint64_t generation,
                                          uint32_t peer, int64_t deadline_ns, bool *ret_shares)
{
    struct request request = {.generation = generation};
    TRY(retry_until(fabric, peer, deadline_ns, query_sharing, &request));
    *ret_shares = request.shares;
    return MUSTER_OK;
}

muster_status muster_fabric_send_descriptor(struct muster_fabric *fabric, uint64_t generation,
                                            uint32_t peer, uint64_t tag, int fd,
                                            int64_t deadline_ns)
{
    struct request request = {.generation = generation, .tag = tag, .fd = fd};
    return retry_until(fabric, peer, deadline_ns, send_one, &request);
}

muster_status muster_fabric_receive_descriptor(struct muster_fabric *fabric, uint64_t generation,
                                               uint32_t peer, uint64_t tag, int64_t deadline_ns,
                                               int *ret_fd)
{
    struct request request = {.generation = generation, .tag = tag};
    TRY(retry_until(fabric, peer, deadline_ns, receive_one, &request));
    *ret_fd = request.fd;
    return MUSTER_OK;
}
