/*
 * Collectives of ranks that share memory: they look at each other's data instead of sending it.
 *
 * Such an algorithm is a row of the table like others: its schedule says what everybody gets and in
 * which order it is reduced, and is what the checker proves and what runs where there is no shared
 * memory. Where there is, worker/device/ carries it out as one. Here is decided how, and what that
 * takes. Pure; every rank has the same inputs, so every rank decides alike.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_HOST_MEMORY_H
#define MUSTER_COLLECTIVES_SELECT_HOST_MEMORY_H

#include "collectives/select/cost.h"

enum muster_memory_method {
    MUSTER_MEMORY_SLOTS = 1,   /* everybody lays its input into its slot, and all read all of what
                                  they need there */
    MUSTER_MEMORY_SHARES = 2,  /* allreduce: likewise, but each reduces a share, and lays the result
                                  down for the others; of what a slot does not hold, one slot full
                                  after the other */
    MUSTER_MEMORY_BUFFERS = 3, /* read straight from the other's buffers; an allreduce in shares */
};

/* Bytes of INPUT that a slot must hold on the rank that has most. */
uint64_t muster_memory_input_bytes(const struct muster_plan *plan, size_t element_size_bytes);

/* How the plan, of an algorithm that may use memory, is carried out in what plan->memory says there
 * is, and its predicted time. False if it cannot be. */
bool muster_memory_choose(const struct muster_plan *plan, size_t element_size_bytes,
                          const struct muster_cost_model *model,
                          enum muster_memory_method *ret_method, double *ret_us);

#endif
