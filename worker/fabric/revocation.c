/*
 * Revocations: a generation ends here, and at all members.
 *
 * A revocation floods the open links: the member that begins it sends a frame on each of them, and
 * a member that receives the first one does the same. So it reaches all members whose links connect
 * them, whatever their operations wait for, and each link carries one frame each way at most. The
 * frame is an ABORT whose operation stands for all operations of the generation; one of an older
 * generation than the present one is dropped.
 *
 * All waits end with the revocation, so no thread may be left to send the frames. Therefore the
 * last leader sends them before it returns, and where there is no leader, the thread that revokes.
 */
#include <stdio.h>

#include "worker/base/thread.h"
#include "worker/fabric/link.h"

/* No context and no operation has such a number. */
static const uint32_t all_contexts = UINT32_MAX;
static const uint64_t all_operations = UINT64_MAX;

bool muster_operation_id_is_revocation(const struct muster_operation_id *operation)
{
    return operation->context == all_contexts && operation->sequence == all_operations;
}

static bool revoke_locked(struct muster_fabric *fabric, uint64_t generation, const char *reason)
{
    bool first = generation > fabric->revoked;
    if (first) {
        fabric->revoked = generation;
        if (generation >= fabric->generation) {
            atomic_store(&fabric->valid, 0);
        }
        (void)snprintf(fabric->revoked_reason, MUSTER_REASON_SIZE, "%s", reason);
    }
    muster_progress_wake_all(fabric);
    return first;
}

void muster_fabric_revoke(struct muster_fabric *fabric, uint64_t generation, const char *reason)
{
    AUTO_LOCK(&fabric->lock);
    (void)revoke_locked(fabric, generation, reason);
}

/* Queues the frame on all open links. */
static void flood(struct muster_fabric *fabric, uint64_t generation)
{
    const struct muster_operation_id everything = {
        .generation = generation, .sequence = all_operations, .context = all_contexts};
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL && link->state == MUSTER_LINK_OPEN && link->end != NULL) {
            link->ops->abort(link, &everything, fabric->revoked_reason);
            fabric->telling = true;
        }
    }
}

void muster_fabric_revoked_by_peer(struct muster_fabric *fabric, uint64_t generation,
                                   const char *reason)
{
    if (generation >= fabric->generation && revoke_locked(fabric, generation, reason)) {
        flood(fabric, generation);
    }
}

/* The reason with this member's rank. */
static void begin_flood(struct muster_fabric *fabric, uint64_t generation, const char *reason)
{
    char text[MUSTER_REASON_SIZE];
    (void)snprintf(text, sizeof text, "rank %u: %.230s", muster_fabric_own_rank(fabric), reason);
    if (!fabric->killed && !fabric->closing && revoke_locked(fabric, generation, text)) {
        flood(fabric, generation);
    }
}

void muster_fabric_revoke_after_loss(struct muster_fabric *fabric, const char *reason)
{
    if (fabric->loss_revokes) {
        begin_flood(fabric, fabric->generation, reason);
    }
}

void muster_fabric_revoke_for_all(struct muster_fabric *fabric, uint64_t generation,
                                  const char *reason)
{
    AUTO_LOCK(&fabric->lock);
    if (generation == fabric->generation) {
        begin_flood(fabric, generation, reason);
        muster_progress_tell(fabric);
    }
}
