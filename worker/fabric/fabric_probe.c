/* Says of a member whether its process is there: address/probe.h, for the layers above. A verdict
 * is used again for a moment: all operations in flight may reach their deadlines at once. */
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/fabric/address/probe.h"
#include "worker/fabric/link.h"

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
