/* Says of a member whether its process is there: address/probe.h, for the layers above. A verdict
 * is used again for a moment: all operations in flight may reach their deadlines at once. */
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/fabric/address/probe.h"
#include "worker/fabric/link.h"

#include <assert.h>
#include <string.h>

enum { VALID_MS = 1000 };

static struct muster_link *find_locked(struct muster_fabric *fabric, uint64_t generation,
                                       uint32_t rank)
{
    bool known = generation == fabric->generation && rank < fabric->link_count;
    return known ? fabric->links[rank] : NULL;
}

static bool find_verdict(struct muster_fabric *fabric, uint64_t generation, uint32_t rank,
                         struct muster_peer *ret_peer, bool *ret_same_host,
                         enum muster_probe_verdict *ret_verdict)
{
    AUTO_LOCK(&fabric->lock);
    const struct muster_link *link = find_locked(fabric, generation, rank);
    if (link == NULL) {
        *ret_verdict = MUSTER_PROBE_UNKNOWN;
        return true;
    }
    *ret_peer = link->peer;
    *ret_same_host = strcmp(link->peer.host, fabric->host) == 0;
    *ret_verdict = link->probed;
    return muster_clock_ns() < link->probed_until_ns;
}

enum muster_probe_verdict muster_fabric_probe(struct muster_fabric *fabric, uint64_t generation,
                                              uint32_t rank, uint32_t bound_ms)
{
    struct muster_peer peer;
    bool same_host = false;
    enum muster_probe_verdict verdict = MUSTER_PROBE_UNKNOWN;
    if (find_verdict(fabric, generation, rank, &peer, &same_host, &verdict)) {
        return verdict;
    }
    verdict = muster_peer_probe(&peer, same_host, bound_ms).verdict;
    AUTO_LOCK(&fabric->lock);
    struct muster_link *link = find_locked(fabric, generation, rank);
    if (link != NULL) {
        link->probed = verdict;
        link->probed_until_ns = muster_clock_after_ms(VALID_MS);
    }
    return verdict;
}

static nfds_t list_pending(const struct muster_probe *probe, struct pollfd *list, nfds_t count)
{
    for (uint32_t i = 0; i < probe->count; i++) {
        if (probe->polled[i].fd >= 0) {
            list[count++] = probe->polled[i];
        }
    }
    return count;
}

void muster_peers_probe(const struct muster_peer *peers, uint32_t count, uint32_t bound_ms,
                        enum muster_probe_verdict *ret_verdicts)
{
    struct muster_probe probes[MUSTER_PROBED_MAX];
    struct pollfd list[MUSTER_PROBED_MAX * MUSTER_ADDRESSES_MAX];
    int64_t deadline_ns = muster_clock_after_ms(bound_ms);
    assert(count <= MUSTER_PROBED_MAX);
    for (uint32_t i = 0; i < count; i++) {
        muster_probe_begin(&probes[i], &peers[i], !peers[i].other_host);
        ret_verdicts[i] = MUSTER_PROBE_PENDING;
    }
    for (bool pending = count > 0; pending;) {
        int left_ms = muster_clock_left_ms(deadline_ns);
        nfds_t listed = 0;
        pending = false;
        for (uint32_t i = 0; i < count; i++) {
            if (ret_verdicts[i] == MUSTER_PROBE_PENDING) {
                ret_verdicts[i] = muster_probe_poll(&probes[i], 0, left_ms == 0);
                pending = pending || ret_verdicts[i] == MUSTER_PROBE_PENDING;
                listed = list_pending(&probes[i], list, listed);
            }
        }
        if (pending) {
            (void)poll(list, listed, left_ms);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        muster_probe_end(&probes[i]);
    }
}
