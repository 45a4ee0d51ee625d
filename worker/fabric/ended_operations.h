/*
 * The operations of the current generation that were withdrawn here or aborted by a peer: messages
 * that still arrive for them are dropped. Bounded: the operations of a context have increasing
 * numbers, and those far below the newest withdrawn one all count as withdrawn.
 */
#ifndef MUSTER_WORKER_FABRIC_ENDED_OPERATIONS_H
#define MUSTER_WORKER_FABRIC_ENDED_OPERATIONS_H

#include "worker/fabric/transfers.h"

enum {
    MUSTER_WITHDRAWN_CONTEXTS = 64, /* the last ones that withdrew operations */
    MUSTER_WITHDRAWN_WINDOW = 64,   /* operations of a context, from the newest down; bits */
    MUSTER_ABORTED_MAX = 64,        /* the last ones */
};

struct muster_ended_operations {
    struct {
        uint32_t context;
        uint64_t newest;
        uint64_t bits; /* bit i: newest - i was withdrawn */
    } withdrawn[MUSTER_WITHDRAWN_CONTEXTS];
    uint32_t withdrawn_next;
    uint32_t withdrawn_used; /* entries */
    struct {
        struct muster_operation_id id; /* sequence 0: unused */
        char reason[MUSTER_REASON_SIZE];
    } aborted[MUSTER_ABORTED_MAX];
    uint32_t aborted_next;
    uint32_t aborted_used; /* entries */
};

/* A generation begins: only its own aborts are kept. */
void muster_ended_operations_begin(struct muster_ended_operations *operations, uint64_t generation);

void muster_ended_operations_withdraw(struct muster_ended_operations *operations,
                                      const struct muster_operation_id *operation);
bool muster_ended_operations_withdrawn(const struct muster_ended_operations *operations,
                                       const struct muster_operation_id *operation);

/* False if it had been aborted already. */
bool muster_ended_operations_abort(struct muster_ended_operations *operations,
                                   const struct muster_operation_id *operation, const char *reason);
/* The reason, or NULL if it has not been aborted. */
const char *muster_ended_operations_aborted(const struct muster_ended_operations *operations,
                                            const struct muster_operation_id *operation);

#endif
