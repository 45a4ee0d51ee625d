/*
 * Remembers which operations of the present generation were withdrawn here or aborted by a peer, so
 * that what still arrives for them is dropped. Bounded: operations of a context are numbered
 * upward, so far behind the newest withdrawn one everything counts as withdrawn.
 */
#ifndef MUSTER_WORKER_FABRIC_ENDED_OPERATIONS_H
#define MUSTER_WORKER_FABRIC_ENDED_OPERATIONS_H

#include "worker/fabric/transfers.h"

enum {
    MUSTER_WITHDRAWN_CONTEXTS = 64, /* that withdrew most lately */
    MUSTER_WITHDRAWN_WINDOW = 64,   /* operations of a context told apart, from the newest down */
    MUSTER_ABORTED_MAX = 64,        /* aborts remembered, newest first */
};

struct muster_ended_operations {
    struct {
        uint32_t context;
        uint64_t newest;
        uint64_t bits; /* bit i: newest - i was withdrawn */
    } withdrawn[MUSTER_WITHDRAWN_CONTEXTS];
    uint32_t withdrawn_next;
    uint32_t withdrawn_used; /* from the first on */
    struct {
        struct muster_operation_id id; /* sequence 0: unused */
        char reason[MUSTER_REASON_SIZE];
    } aborted[MUSTER_ABORTED_MAX];
    uint32_t aborted_next;
    uint32_t aborted_used; /* from the first on */
};

/* A new generation begins: only its own aborts are kept. */
void muster_ended_operations_begin(struct muster_ended_operations *operations, uint64_t generation);

void muster_ended_operations_withdraw(struct muster_ended_operations *operations,
                                      const struct muster_operation_id *operation);
bool muster_ended_operations_withdrawn(const struct muster_ended_operations *operations,
                                       const struct muster_operation_id *operation);

/* False if it was known already. */
bool muster_ended_operations_abort(struct muster_ended_operations *operations,
                                   const struct muster_operation_id *operation, const char *reason);
/* The reason, or NULL if nobody has aborted it. */
const char *muster_ended_operations_aborted(const struct muster_ended_operations *operations,
                                            const struct muster_operation_id *operation);

#endif
