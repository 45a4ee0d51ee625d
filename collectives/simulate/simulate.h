/*
 * The simulator: runs the schedules of all ranks under the cost model, with stragglers and faults,
 * and says when what is done. Event-driven, sequential, pure: same input, same result.
 *
 * What it knows of an execution:
 * - Ports are full duplex. Messages that flow at the same time share a rank's port, a host's uplink
 *   and a rack's uplink fairly; those within a host share what the host's memory can do.
 * - Small messages leave when they are sent; larger ones (eager_bytes of the model) when the
 *   receiver has said that it is ready, which it says a round early where it can.
 * - A rank has one core: it posts one message at a time, copies, reduces. What is reduced as it
 *   arrives is reduced piece by piece, one piece behind the wire. The ranks of a host may share
 *   fewer cores than they are: then who waits sleeps, and waking takes a core's time.
 *
 * The schedules are handed over one by one and kept in 16 bytes a step, so that the whole
 * schedules of a large job need not be there at the same time.
 */
#ifndef MUSTER_COLLECTIVES_SIMULATE_SIMULATE_H
#define MUSTER_COLLECTIVES_SIMULATE_SIMULATE_H

#include "collectives/select/cost.h"

enum { MUSTER_SIMULATION_TEXT_MAX = 512, MUSTER_FAULTS_MAX = 4096 };

enum muster_fault_kind {
    MUSTER_FAULT_LATE_RANK = 1, /* begins at at_us */
    MUSTER_FAULT_SLOW_RANK = 2, /* what its core does takes `factor` times as long */
    MUSTER_FAULT_SLOW_LINK = 3, /* what goes between rank and peer takes `factor` times as long */
    MUSTER_FAULT_DEAD_RANK = 4, /* from at_us on it does nothing */
    MUSTER_FAULT_DEAD_LINK = 5, /* from at_us on nothing gets through between rank and peer */
};

struct muster_fault {
    enum muster_fault_kind kind;
    uint32_t rank;
    uint32_t peer; /* of links; another rank */
    double factor; /* of what is slow; at least 1 */
    double at_us;  /* of what is late or dead */
};

/* How many faults of which kind to draw. */
struct muster_fault_mix {
    uint32_t late_ranks, slow_ranks, slow_links, dead_ranks, dead_links;
    double factor_max; /* factors lie between 1 and this; at least 1 */
    double at_us_max;  /* times lie between 0 and this */
};

/* Draws the mix's faults, kind by kind in the order above, from the seed: same seed, same faults.
 * Ranks and links are drawn independently, so two faults may strike the same one. Links need two
 * ranks; on one rank none are drawn. Writes at most `size`, returns how many it wrote. */
size_t muster_faults_draw(uint64_t seed, uint32_t ranks, const struct muster_fault_mix *mix,
                          struct muster_fault *ret_faults, size_t size);

struct muster_simulation_options {
    const struct muster_topology *topology; /* borrowed until the simulation is destroyed */
    const struct muster_cost_model *model;  /* copied */
    size_t element_size_bytes;
    const struct muster_fault *faults; /* copied */
    size_t fault_count;
    bool trace; /* keep when each step began and ended */
};

struct muster_simulation_result {
    bool finished;       /* all ranks are through */
    bool beyond_limit;   /* stopped at limit_us; not finished, and nothing is wrong */
    double total_us;     /* when the last rank was through; if not finished, of the last event */
    uint32_t unfinished; /* ranks that are not through */
    uint64_t bytes[MUSTER_LEVEL_COUNT]; /* that left, by level */
    uint64_t messages[MUSTER_LEVEL_COUNT];
    /* If it is neither finished nor beyond the limit: what is wrong (the dead link or rank, or that
     * it is a deadlock), and who waits for whom. Else "". */
    char verdict[MUSTER_SIMULATION_TEXT_MAX];
};

/* When a step was posted and when it was done, from the start; -1: it was not. */
struct muster_step_times {
    double start_us, end_us;
};

struct muster_simulation;

/* MUSTER_INVALID: the model or a fault is impossible, the text says how; MUSTER_FATAL: no memory.
 */
MUSTER_CHECKED muster_status muster_simulation_create(
    const struct muster_simulation_options *options, struct muster_simulation **ret_simulation);

/* Accepts NULL. */
void muster_simulation_destroy(struct muster_simulation *simulation);

/* Takes over what it needs of one rank's schedule, in any order of ranks, each once. The schedule
 * stays the caller's and may go at once. MUSTER_INVALID: a peer out of range, a second one for the
 * same rank; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_simulation_add(struct muster_simulation *simulation,
                                                   const struct muster_schedule *schedule);

/* Generates and adds those of all ranks, one after the other. plan->rank is ignored. */
MUSTER_CHECKED muster_status muster_simulation_add_all(struct muster_simulation *simulation,
                                                       size_t algorithm,
                                                       const struct muster_plan *plan);

/* When all ranks' schedules are there: no run takes less, with faults or without. */
MUSTER_CHECKED muster_status muster_simulation_bound_us(const struct muster_simulation *simulation,
                                                        double *ret_us);

/* When all ranks' schedules are there, of the same topology: as many ranks as in the one take the
 * same steps of the same sizes over links of the same levels in the other. The two may differ in
 * where data lies, in which rank does what, and in who is whose peer. */
bool muster_simulation_is_alike(const struct muster_simulation *one,
                                const struct muster_simulation *other);

/* The run is to stop when this time has passed; 0: never. Before the run. */
void muster_simulation_limit(struct muster_simulation *simulation, double limit_us);

/* Once, when all ranks' schedules are there. A dead link or a deadlock is a result, not an error.
 * MUSTER_INVALID: a schedule is missing, or two ends of a message differ in size; MUSTER_FATAL: no
 * memory. */
MUSTER_CHECKED muster_status muster_simulation_run(struct muster_simulation *simulation,
                                                   struct muster_simulation_result *ret_result);

/* After the run: when the rank was through, -1 if it was not. */
double muster_simulation_finish_us(const struct muster_simulation *simulation, uint32_t rank);

/* After the run, with trace: the times of the rank's steps, in its schedule's order. Borrowed from
 * the simulation. */
const struct muster_step_times *muster_simulation_times(const struct muster_simulation *simulation,
                                                        uint32_t rank);

/* All in one, without faults: the time that the collective takes. With a limit_us above 0, a time
 * over the limit is not simulated to its end: then the result is only somewhere above it. */
MUSTER_CHECKED muster_status muster_simulate_us(size_t algorithm, const struct muster_plan *plan,
                                                size_t element_size_bytes,
                                                const struct muster_cost_model *model,
                                                double limit_us, double *ret_us);

#endif
