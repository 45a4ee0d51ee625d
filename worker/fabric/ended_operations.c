/* Withdrawn and aborted operations: a window of bits for each context, and a ring of aborts. */
#include "worker/fabric/ended_operations.h"

#include <stdio.h>
#include <string.h>

void muster_ended_operations_begin(struct muster_ended_operations *operations, uint64_t generation)
{
    memset(operations->withdrawn, 0, sizeof operations->withdrawn);
    operations->withdrawn_used = 0;
    operations->withdrawn_next = 0;
    for (uint32_t i = 0; i < MUSTER_ABORTED_MAX; i++) {
        if (operations->aborted[i].id.generation < generation) {
            operations->aborted[i].id = (struct muster_operation_id){0};
        }
    }
}

/* A context that is not stored yet replaces the one that was stored first. A newer operation shifts
 * the window; an operation below the window counts as withdrawn already. */
void muster_ended_operations_withdraw(struct muster_ended_operations *operations,
                                      const struct muster_operation_id *operation)
{
    uint32_t i = 0;
    while (i < operations->withdrawn_used &&
           operations->withdrawn[i].context != operation->context) {
        i++;
    }
    if (i == operations->withdrawn_used) {
        i = operations->withdrawn_next++ % MUSTER_WITHDRAWN_CONTEXTS;
        operations->withdrawn_used =
            i < operations->withdrawn_used ? operations->withdrawn_used : i + 1;
        operations->withdrawn[i].context = operation->context;
        operations->withdrawn[i].newest = operation->sequence;
        operations->withdrawn[i].bits = 1;
        return;
    }
    uint64_t newest = operations->withdrawn[i].newest;
    if (operation->sequence > newest) {
        uint64_t ahead = operation->sequence - newest;
        uint64_t bits = operations->withdrawn[i].bits;
        operations->withdrawn[i].bits = (ahead < MUSTER_WITHDRAWN_WINDOW ? bits << ahead : 0) | 1;
        operations->withdrawn[i].newest = operation->sequence;
    } else if (newest - operation->sequence < MUSTER_WITHDRAWN_WINDOW) {
        operations->withdrawn[i].bits |= UINT64_C(1) << (newest - operation->sequence);
    }
}

bool muster_ended_operations_withdrawn(const struct muster_ended_operations *operations,
                                       const struct muster_operation_id *operation)
{
    for (uint32_t i = 0; i < operations->withdrawn_used; i++) {
        uint64_t newest = operations->withdrawn[i].newest;
        if (operations->withdrawn[i].context != operation->context ||
            operation->sequence > newest) {
            continue;
        }
        uint64_t behind = newest - operation->sequence;
        return behind >= MUSTER_WITHDRAWN_WINDOW ||
               (operations->withdrawn[i].bits >> behind & 1) != 0;
    }
    return false;
}

static bool same(const struct muster_operation_id *a, const struct muster_operation_id *b)
{
    return a->sequence == b->sequence && a->context == b->context && a->generation == b->generation;
}

bool muster_ended_operations_abort(struct muster_ended_operations *operations,
                                   const struct muster_operation_id *operation, const char *reason)
{
    if (muster_ended_operations_aborted(operations, operation) != NULL) {
        return false;
    }
    uint32_t i = operations->aborted_next++ % MUSTER_ABORTED_MAX;
    operations->aborted_used = i < operations->aborted_used ? operations->aborted_used : i + 1;
    operations->aborted[i].id = *operation;
    (void)snprintf(operations->aborted[i].reason, MUSTER_REASON_SIZE, "%s", reason);
    return true;
}

const char *muster_ended_operations_aborted(const struct muster_ended_operations *operations,
                                            const struct muster_operation_id *operation)
{
    for (uint32_t i = 0; i < operations->aborted_used; i++) {
        if (operation->sequence != 0 && same(&operations->aborted[i].id, operation)) {
            return operations->aborted[i].reason;
        }
    }
    return NULL;
}
