/* Selects the method by which ranks that share memory run a collective, and predicts its time. */
#include "collectives/select/host_memory.h"

/* Costs that do not depend on the size, of a current processor. Only their order of magnitude
 * matters: they decide between methods that differ by a few microseconds. */
static const double SIGNAL_US = 0.3; /* until all ranks, each on its own core, see all that was
                                        written before */
static const double SWITCH_US = 1.0; /* to another rank that shares the core */
static const double CALL_US = 0.5;   /* system call that reads another process's memory */
static const double CALL_COPY =
    1.6; /* a copy by that call takes so many times as long as another */

enum { WINDOWS_MAX = 1 << 20 }; /* in one call */

/* The work of one rank. */
struct work {
    uint64_t signals, calls;
    uint64_t copied, reduced; /* elements */
};

static bool is_allgather(const struct muster_plan *plan)
{
    return plan->collective == MUSTER_ALLGATHER || plan->collective == MUSTER_ALLGATHERV;
}

uint64_t muster_memory_input_bytes(const struct muster_plan *plan, size_t element_size_bytes)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint64_t most = muster_shape_input_count(&shape);
    if (is_allgather(plan)) {
        for (uint32_t rank = 0; rank < shape.ranks; rank++) {
            uint64_t count = muster_shape_output_block(&shape, rank).count;
            most = count > most ? count : most;
        }
    }
    return most * element_size_bytes;
}

/* Elements that the busiest rank reads from all ranks together. */
static uint64_t read_elements(const struct muster_plan *plan)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint32_t ranks = shape.ranks;
    uint64_t input = muster_shape_input_count(&shape);
    switch (plan->collective) {
    case MUSTER_BROADCAST:
        return plan->count;
    case MUSTER_REDUCE_SCATTER:
        return input / ranks * (ranks - 1);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return muster_shape_output_count(&shape);
    default:
        return input * (ranks - 1);
    }
}

/* Slots that the input fills one after the other. */
static uint64_t windows_of(const struct muster_plan *plan, size_t element_size_bytes)
{
    uint64_t bytes = muster_memory_input_bytes(plan, element_size_bytes);
    uint64_t staging_bytes = plan->memory->staging_bytes;
    return bytes <= staging_bytes ? 1 : (bytes + staging_bytes - 1) / staging_bytes;
}

/* Signals are barriers of all ranks; calls are system calls. */
static struct work work_of(const struct muster_plan *plan, enum muster_memory_method method,
                           uint64_t windows)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint32_t ranks = shape.ranks;
    uint64_t input = muster_shape_input_count(&shape);
    uint64_t others = input - input / ranks; /* of an allreduce: the shares of all others */
    bool reduces = muster_collective_reduces(plan->collective);
    bool shared = plan->collective == MUSTER_ALLREDUCE;
    switch (method) {
    case MUSTER_MEMORY_SHARES:
        return (struct work){.signals = windows == 1 ? 2 : 1 + 2 * windows,
                             .copied = 2 * others + input / ranks,
                             .reduced = others};
    case MUSTER_MEMORY_BUFFERS:
        return shared ? (struct work){.signals = 3,
                                      .calls = 2 * (ranks - 1),
                                      .copied = 2 * others,
                                      .reduced = others}
                      : (struct work){.signals = 2,
                                      .calls = ranks - 1,
                                      .copied = read_elements(plan),
                                      .reduced = reduces ? read_elements(plan) : 0};
    default:
        return (struct work){.signals = 1,
                             .copied = input + (reduces ? 0 : read_elements(plan)),
                             .reduced = reduces ? read_elements(plan) : 0};
    }
}

/* Ranks that share cores take turns, and so does their work. */
static double predict_us(const struct muster_plan *plan, size_t element_size_bytes,
                         const struct muster_cost_model *model, enum muster_memory_method method)
{
    const struct muster_core_figures *core = &model->core;
    const struct work work = work_of(plan, method, windows_of(plan, element_size_bytes));
    uint32_t ranks = plan->topology->ranks;
    bool crowded = core->cores != 0 && core->cores < ranks;
    double crowd = crowded ? (double)ranks / core->cores : 1;
    double signal_us = crowded ? SWITCH_US * crowd : SIGNAL_US;
    double copy = work.calls > 0 ? CALL_COPY : 1;
    double busy_us = (double)work.calls * CALL_US +
                     copy * muster_cost_bytes_us(work.copied, element_size_bytes, core->copy_GBps) +
                     muster_cost_bytes_us(work.reduced, element_size_bytes, core->reduce_GBps);
    /* A rank that would finish early waits for one more signal. */
    bool waits = plan->finish_together && !muster_collective_synchronizes(plan->collective);
    return (double)(work.signals + (waits ? 1 : 0)) * signal_us + crowd * busy_us;
}

static bool is_possible(const struct muster_plan *plan, size_t element_size_bytes,
                        enum muster_memory_method method)
{
    if (method == MUSTER_MEMORY_BUFFERS) {
        /* A rank that gives up returns its buffers to its caller, who may change them while others
         * read. These find out before they return, but may have written to their own by then. */
        return plan->memory->buffers && plan->collective != MUSTER_BARRIER && !plan->keep_input;
    }
    if (method == MUSTER_MEMORY_SHARES) {
        return plan->collective == MUSTER_ALLREDUCE &&
               windows_of(plan, element_size_bytes) <= WINDOWS_MAX;
    }
    return muster_memory_input_bytes(plan, element_size_bytes) <= plan->memory->staging_bytes;
}

bool muster_memory_choose(const struct muster_plan *plan, size_t element_size_bytes,
                          const struct muster_cost_model *model,
                          enum muster_memory_method *ret_method, double *ret_us)
{
    bool found = false;
    for (int i = MUSTER_MEMORY_STAGED; plan->memory != NULL && i <= MUSTER_MEMORY_BUFFERS; i++) {
        enum muster_memory_method method = (enum muster_memory_method)i;
        if (!is_possible(plan, element_size_bytes, method)) {
            continue;
        }
        double cost_us = predict_us(plan, element_size_bytes, model, method);
        if (!found || cost_us < *ret_us) {
            *ret_method = method;
            *ret_us = cost_us;
            found = true;
        }
    }
    return found;
}
