/* A cache of the calls by which operations were started. */
#include "worker/fabric/signatures.h"

static struct muster_signature *slot_of(struct muster_signatures *signatures,
                                        const struct muster_operation_id *operation,
                                        const struct muster_call *call)
{
    if ((call->flags & MUSTER_CALL_SET) != 0) { /* numbered by hashes */
        return &signatures->sets[operation->context % MUSTER_SET_SIGNATURES_MAX];
    }
    /* Operations of a context follow each other; contexts are few and numbered from 0. */
    uint64_t mixed = operation->sequence + 13 * (uint64_t)operation->context;
    return &signatures->slots[mixed % MUSTER_SIGNATURES_MAX];
}

static bool is_same(const struct muster_operation_id *a, const struct muster_operation_id *b)
{
    return a->sequence == b->sequence && a->context == b->context && a->generation == b->generation;
}

const struct muster_signature *muster_signatures_note(struct muster_signatures *signatures,
                                                      const struct muster_operation_id *operation,
                                                      const struct muster_call *call, uint32_t rank)
{
    struct muster_signature *stored = slot_of(signatures, operation, call);
    if (!is_same(&stored->operation, operation)) {
        *stored = (struct muster_signature){.operation = *operation, .call = *call, .rank = rank};
        return NULL;
    }
    bool concerns_us = stored->rank == MUSTER_SIGNATURE_HERE || rank == MUSTER_SIGNATURE_HERE;
    char unused[1];
    if (concerns_us && !muster_call_matches(&stored->call, call, unused, sizeof unused)) {
        return stored;
    }
    if (rank == MUSTER_SIGNATURE_HERE) {
        stored->rank = rank;
    }
    return NULL;
}
