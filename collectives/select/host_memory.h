/*
 * Collectives of ranks that share memory: the ranks read each other's data instead of sending it.
 *
 * They are group steps of a schedule: the whole call of a row `host_memory`, or a part of a call.
 * worker/device/ performs a group step as one operation. This file decides by which method, and
 * predicts how long it takes. Pure; every rank has the same inputs and decides alike.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_HOST_MEMORY_H
#define MUSTER_COLLECTIVES_SELECT_HOST_MEMORY_H

#include "collectives/schedule/schedule.h"
#include "collectives/select/cost.h"

enum muster_memory_method {
    MUSTER_MEMORY_STAGED = 1, /* each rank copies its input into its staging area, and every rank
                                 reads what it needs from the areas */
    /* An input larger than an area goes through it in windows of its size. An allreduce is done in
     * shares: each rank copies its input into its staging area, reduces one share of all inputs,
     * and puts the result into its area for the others. The other collectives are done as staged
     * ones, where ranks may not read each other's buffers. */
    MUSTER_MEMORY_SHARES = 2,
    MUSTER_MEMORY_BUFFERS = 3,   /* each rank reads straight from the others' buffers; an allreduce
                                    in shares; not where the input is kept */
    MUSTER_MEMORY_OF_DEVICE = 4, /* as a device does it that has prices of its own */
};

/* Bytes of INPUT, on the rank that has most, that a staging area must hold. */
uint64_t muster_memory_input_bytes(const struct muster_plan *plan, size_t element_size_bytes);

/* A collective of ranks that share memory, as one of them has it. */
struct muster_memory_call {
    enum muster_collective collective;
    uint32_t ranks;
    uint64_t input, output; /* elements of its buffers; of a broadcast those of the root */
    uint64_t largest_input; /* of all ranks */
    bool keep_input, finish_together; /* as in struct muster_plan */
    size_t element_size_bytes;
};

/* The call of a group step of so many members, without promises; `count` is that of the step. */
struct muster_memory_call muster_memory_call_of(const struct muster_step *step, uint32_t members,
                                                size_t element_size_bytes);

struct muster_memory_cost {
    enum muster_memory_method method;
    double wait_us; /* for the other ranks */
    double busy_us; /* work of one rank, on a core of its own */
    double all_us;  /* both, where the ranks share the cores of the model */
};

/* The fastest method within that reach, and its cost. False: there is none. */
bool muster_memory_find(const struct muster_memory_call *call,
                        const struct muster_memory_reach *reach,
                        const struct muster_cost_model *model, struct muster_memory_cost *ret_cost);

/* The same for the plan, which is of a host_memory algorithm, within plan->memory: the method and
 * its predicted time. False: the plan cannot be carried out in shared memory. */
bool muster_memory_choose(const struct muster_plan *plan, size_t element_size_bytes,
                          const struct muster_cost_model *model,
                          enum muster_memory_method *ret_method, double *ret_us);

/* The time of a plan of an algorithm with .on_device as group steps of its device: the step, and
 * the messages by which the ranks come together before. False: muster_device_group_fits() not. */
bool muster_device_choose(size_t algorithm, const struct muster_plan *plan,
                          size_t element_size_bytes, const struct muster_cost_model *model,
                          double *ret_us);

/* What any other algorithm takes in addition where the plan's data is in memory of a device; 0
 * where it is not. */
double muster_device_staging_us(const struct muster_plan *plan, size_t element_size_bytes);

#endif
