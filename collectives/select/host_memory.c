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

static struct muster_memory_call call_of_plan(const struct muster_plan *plan,
                                              size_t element_size_bytes)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    return (struct muster_memory_call){
        .collective = plan->collective,
        .ranks = shape.ranks,
        .input = muster_shape_input_count(&shape),
        .output = muster_shape_output_count(&shape),
        .keep_input = plan->keep_input,
        .finish_together = plan->finish_together,
        .largest_input = muster_memory_input_bytes(plan, element_size_bytes) / element_size_bytes,
        .element_size_bytes = element_size_bytes};
}

struct muster_memory_call muster_memory_call_of(const struct muster_step *step, uint32_t members,
                                                size_t element_size_bytes)
{
    static const enum muster_collective collectives[] = {
        [MUSTER_STEP_GROUP_ALLREDUCE] = MUSTER_ALLREDUCE,
        [MUSTER_STEP_GROUP_REDUCE_SCATTER] = MUSTER_REDUCE_SCATTER,
        [MUSTER_STEP_GROUP_ALLGATHER] = MUSTER_ALLGATHER,
        [MUSTER_STEP_GROUP_REDUCE] = MUSTER_REDUCE,
        [MUSTER_STEP_GROUP_BROADCAST] = MUSTER_BROADCAST,
        [MUSTER_STEP_GROUP_BARRIER] = MUSTER_BARRIER};
    uint64_t count = step->span.count;
    uint64_t share = (count + members - 1) / members;
    uint64_t input = step->kind == MUSTER_STEP_GROUP_ALLGATHER ? share : count;
    return (struct muster_memory_call){
        .collective = collectives[step->kind],
        .ranks = members,
        .input = input,
        .output = step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER ? share : count,
        .largest_input = input,
        .element_size_bytes = element_size_bytes};
}

/* Elements that the busiest rank reads from all ranks together. */
static uint64_t read_elements(const struct muster_memory_call *call)
{
    switch (call->collective) {
    case MUSTER_BROADCAST:
        return call->input;
    case MUSTER_REDUCE_SCATTER:
        return call->input / call->ranks * (call->ranks - 1);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return call->output;
    default:
        return call->input * (call->ranks - 1);
    }
}

/* Slots that the input fills one after the other. */
static uint64_t windows_of(const struct muster_memory_call *call,
                           const struct muster_memory_reach *reach)
{
    uint64_t bytes = call->largest_input * call->element_size_bytes;
    uint64_t staging_bytes = reach->staging_bytes;
    return bytes <= staging_bytes ? 1 : (bytes + staging_bytes - 1) / staging_bytes;
}

/* Signals are barriers of all ranks; calls are system calls. */
static struct work work_of(const struct muster_memory_call *call, enum muster_memory_method method,
                           uint64_t windows)
{
    uint32_t ranks = call->ranks;
    uint64_t input = call->input;
    uint64_t others = input - input / ranks; /* of an allreduce: the shares of all others */
    bool reduces = muster_collective_reduces(call->collective);
    bool shared = call->collective == MUSTER_ALLREDUCE;
    switch (method) {
    case MUSTER_MEMORY_SHARES:
        return shared ? (struct work){.signals = windows == 1 ? 2 : 1 + 2 * windows,
                                      .copied = 2 * others + input / ranks,
                                      .reduced = others}
                      : (struct work){.signals = 1 + windows,
                                      .copied = input + (reduces ? 0 : read_elements(call)),
                                      .reduced = reduces ? read_elements(call) : 0};
    case MUSTER_MEMORY_BUFFERS:
        return shared ? (struct work){.signals = 3,
                                      .calls = 2 * (ranks - 1),
                                      .copied = 2 * others,
                                      .reduced = others}
                      : (struct work){.signals = 2,
                                      .calls = ranks - 1,
                                      .copied = read_elements(call),
                                      .reduced = reduces ? read_elements(call) : 0};
    default:
        return (struct work){.signals = 1,
                             .copied = input + (reduces ? 0 : read_elements(call)),
                             .reduced = reduces ? read_elements(call) : 0};
    }
}

/* Ranks that share cores take turns, and so does their work. */
static struct muster_memory_cost predict(const struct muster_memory_call *call,
                                         const struct muster_memory_reach *reach,
                                         const struct muster_cost_model *model,
                                         enum muster_memory_method method)
{
    const struct muster_core_figures *core = &model->core;
    const struct work work = work_of(call, method, windows_of(call, reach));
    bool crowded = core->cores != 0 && core->cores < call->ranks;
    double crowd = crowded ? (double)call->ranks / core->cores : 1;
    double signal_us = crowded ? SWITCH_US * crowd : SIGNAL_US;
    double copy = work.calls > 0 ? CALL_COPY : 1;
    double busy_us =
        (double)work.calls * CALL_US +
        copy * muster_cost_bytes_us(work.copied, call->element_size_bytes, core->copy_GBps) +
        muster_cost_bytes_us(work.reduced, call->element_size_bytes, core->reduce_GBps);
    /* A rank that would finish early waits for one more signal. */
    bool waits = call->finish_together && !muster_collective_synchronizes(call->collective);
    double wait_us = (double)(work.signals + (waits ? 1 : 0)) * signal_us;
    return (struct muster_memory_cost){.method = method,
                                       .wait_us = wait_us,
                                       .busy_us = busy_us,
                                       .all_us = wait_us + crowd * busy_us};
}

/* A rank that gives up returns its buffers to its caller, who may change them while others read.
 * These find out before they return, but may have written to their own by then. */
static bool reads_buffers(const struct muster_memory_call *call,
                          const struct muster_memory_reach *reach)
{
    return reach->buffers && call->collective != MUSTER_BARRIER && !call->keep_input;
}

static bool is_possible(const struct muster_memory_call *call,
                        const struct muster_memory_reach *reach, enum muster_memory_method method)
{
    bool fits = call->largest_input * call->element_size_bytes <= reach->staging_bytes;
    switch (method) {
    case MUSTER_MEMORY_BUFFERS:
        return reads_buffers(call, reach);
    case MUSTER_MEMORY_SHARES:
        return windows_of(call, reach) <= WINDOWS_MAX &&
               (call->collective == MUSTER_ALLREDUCE || (!fits && !reads_buffers(call, reach)));
    default:
        return fits;
    }
}

static bool find_priced(const struct muster_memory_call *call,
                        const struct muster_group_prices *prices,
                        struct muster_memory_cost *ret_cost)
{
    double fixed_us = prices->fixed_us[call->collective];
    double rate_GBps = prices->GBps[call->collective];
    uint64_t elements = call->input > call->output ? call->input : call->output;
    if (rate_GBps <= 0) {
        return false;
    }
    double busy_us = muster_cost_bytes_us(elements, call->element_size_bytes, rate_GBps);
    *ret_cost = (struct muster_memory_cost){.method = MUSTER_MEMORY_OF_DEVICE,
                                            .wait_us = fixed_us,
                                            .busy_us = busy_us,
                                            .all_us = fixed_us + busy_us};
    return true;
}

bool muster_memory_find(const struct muster_memory_call *call,
                        const struct muster_memory_reach *reach,
                        const struct muster_cost_model *model, struct muster_memory_cost *ret_cost)
{
    bool found = false;
    if (call->keep_input && reach->spoils_input) {
        return false;
    }
    if (reach->priced) {
        return find_priced(call, &reach->prices, ret_cost);
    }
    for (int i = MUSTER_MEMORY_STAGED; i <= MUSTER_MEMORY_BUFFERS; i++) {
        enum muster_memory_method method = (enum muster_memory_method)i;
        if (!is_possible(call, reach, method)) {
            continue;
        }
        const struct muster_memory_cost cost = predict(call, reach, model, method);
        if (!found || cost.all_us < ret_cost->all_us) {
            *ret_cost = cost;
            found = true;
        }
    }
    return found;
}

bool muster_memory_choose(const struct muster_plan *plan, size_t element_size_bytes,
                          const struct muster_cost_model *model,
                          enum muster_memory_method *ret_method, double *ret_us)
{
    const struct muster_memory_call call = call_of_plan(plan, element_size_bytes);
    struct muster_memory_cost cost;
    if (plan->memory == NULL || plan->topology->hosts > 1 ||
        !muster_memory_find(&call, plan->memory, model, &cost)) {
        return false;
    }
    *ret_method = cost.method;
    *ret_us = cost.all_us;
    return true;
}

/* Of a device ---------------------------------------------------------------------------------- */

bool muster_device_choose(size_t algorithm, const struct muster_plan *plan,
                          size_t element_size_bytes, const struct muster_cost_model *model,
                          double *ret_us)
{
    const struct muster_memory_call call = call_of_plan(plan, element_size_bytes);
    struct muster_memory_cost cost;
    if (!muster_device_group_fits(algorithm, plan) || !find_priced(&call, plan->device, &cost)) {
        return false;
    }
    bool across = plan->topology->hosts > 1;
    const struct muster_link_figures *links =
        &model->links[across ? MUSTER_LEVEL_RACK : MUSTER_LEVEL_HOST];
    *ret_us = cost.all_us;
    for (uint32_t reached = 1; reached < plan->topology->ranks; reached *= 2) {
        *ret_us += links->latency_us;
    }
    return true;
}

double muster_device_staging_us(const struct muster_plan *plan, size_t element_size_bytes)
{
    if (plan->device == NULL) {
        return 0;
    }
    const struct muster_memory_call call = call_of_plan(plan, element_size_bytes);
    uint64_t elements = call.input > call.output ? call.input : call.output;
    double rate_GBps = plan->device->staging_GBps;
    return plan->device->staging_us +
           (rate_GBps > 0 ? muster_cost_bytes_us(elements, element_size_bytes, rate_GBps) : 0);
}
