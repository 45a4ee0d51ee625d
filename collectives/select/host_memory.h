/*
 * Collectives of ranks that share memory: the ranks read each other's data instead of sending it.
 *
 * Such an algorithm is a row of the table like others. Its schedule defines what every rank gets
 * and in which order it is reduced; it is what the checker proves, and what runs where the ranks
 * share no memory. Where they do, worker/device/ carries the whole call out as one operation. This
 * file decides by which method, and predicts how long it takes. Pure; every rank has the same
 * inputs and decides alike.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_HOST_MEMORY_H
#define MUSTER_COLLECTIVES_SELECT_HOST_MEMORY_H

#include "collectives/select/cost.h"

enum muster_memory_method {
    MUSTER_MEMORY_STAGED = 1, /* each rank copies its input into its staging area, and every rank
                                 reads what it needs from the areas */
    MUSTER_MEMORY_SHARES =
        2, /* allreduce: each rank copies its input into its staging area, reduces
              one share of all inputs, and puts the result into its area for the
              others; an input larger than an area goes in windows of its size */
    MUSTER_MEMORY_BUFFERS = 3, /* each rank reads straight from the others' buffers; an allreduce
                                  in shares; not where the input is kept */
};

/* Bytes of INPUT, on the rank that has most, that a staging area must hold. */
uint64_t muster_memory_input_bytes(const struct muster_plan *plan, size_t element_size_bytes);

/* The fastest method for the plan, which is of a host_memory algorithm, within plan->memory; and
 * its predicted time. False: the plan cannot be carried out in shared memory. */
bool muster_memory_choose(const struct muster_plan *plan, size_t element_size_bytes,
                          const struct muster_cost_model *model,
                          enum muster_memory_method *ret_method, double *ret_us);

#endif
