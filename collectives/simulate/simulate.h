/*
 * The simulator: runs the schedules of all ranks under the cost model, with stragglers and faults,
 * and reports when each step is done. Event-driven, sequential, pure: same input, same result.
 *
 * The model of an execution:
 * - Ports are full duplex. Messages that flow at the same time share a rank's port, a host's uplink
 *   and a rack's uplink fairly; those within a host share the bandwidth of the host's memory.
 * - Small messages leave when they are sent. Messages over eager_bytes leave when the receive is
 *   posted as well; a receive is posted one round early where that is possible.
 * - A rank has one core. It posts one message at a time, copies, and reduces. A message that is
 *   reduced on arrival is reduced in pieces, one piece behind the wire. The ranks of a host may
 *   share fewer cores than there are ranks: then a rank that waits sleeps, and waking it takes time
 *   on a core.
 *
 * Schedules are added one by one and stored in 16 bytes a step, so that the schedules of a large
 * job need not be in memory at the same time.
 */
#ifndef MUSTER_COLLECTIVES_SIMULATE_SIMULATE_H
#define MUSTER_COLLECTIVES_SIMULATE_SIMULATE_H

#include "collectives/select/cost.h"

enum { MUSTER_SIMULATION_TEXT_MAX = 512, MUSTER_FAULTS_MAX = 4096 };

enum muster_fault_kind {
    MUSTER_FAULT_LATE_RANK = 1, /* the rank begins at at_us */
    MUSTER_FAULT_SLOW_RANK = 2, /* work on its core takes `factor` times as long */
    MUSTER_FAULT_SLOW_LINK = 3, /* messages between rank and peer take `factor` times as long */
    MUSTER_FAULT_DEAD_RANK = 4, /* the rank does nothing from at_us on */
    MUSTER_FAULT_DEAD_LINK = 5, /* no message arrives between rank and peer from at_us on */
};

struct muster_fault {
    enum muster_fault_kind kind;
    uint32_t rank;
    uint32_t peer; /* of a link: the rank at its other end */
    double factor; /* of slow ranks and links; at least 1 */
    double at_us;  /* of late and dead ones */
};

/* How many faults of each kind to draw. */
struct muster_fault_mix {
    uint32_t late_ranks, slow_ranks, slow_links, dead_ranks, dead_links;
    double factor_max; /* factors lie between 1 and this; at least 1 */
    double at_us_max;  /* times lie between 0 and this */
};

/* Draws the mix's faults from the seed, kind by kind in the order above: same seed, same faults.
 * Ranks and links are drawn independently, so two faults may strike the same one. With one rank no
 * faults of links are drawn. Writes at most `size` faults, and returns their number. */
size_t muster_faults_draw(uint64_t seed, uint32_t ranks, const struct muster_fault_mix *mix,
                          struct muster_fault *ret_faults, size_t size);

struct muster_simulation_options {
    const struct muster_topology *topology; /* borrowed until the simulation is destroyed */
    const struct muster_cost_model *model;  /* copied */
    size_t element_size_bytes;
    const struct muster_fault *faults; /* copied */
    size_t fault_count;
    bool trace; /* record when each step begins and ends */
};

struct muster_simulation_result {
    bool finished;       /* all ranks have finished */
    bool beyond_limit;   /* stopped at limit_us: not finished, but nothing is wrong */
    double total_us;     /* when the last rank finished; if not finished, the last event */
    uint32_t unfinished; /* ranks that have not finished */
    uint64_t bytes[MUSTER_LEVEL_COUNT]; /* sent, by level */
    uint64_t messages[MUSTER_LEVEL_COUNT];
    /* If it is neither finished nor beyond the limit: what is wrong (a dead link or rank, or a
     * deadlock), and which ranks wait for which. Else "". */
    char verdict[MUSTER_SIMULATION_TEXT_MAX];
};

/* When a step was posted and when it was done, counted from the start; -1: it was not. */
struct muster_step_times {
    double start_us, end_us;
};

struct muster_simulation;

/* MUSTER_INVALID: the model or a fault is impossible (the text says why); MUSTER_FATAL: no memory.
 */
MUSTER_CHECKED muster_status muster_simulation_create(
    const struct muster_simulation_options *options, struct muster_simulation **ret_simulation);

/* Accepts NULL. */
void muster_simulation_destroy(struct muster_simulation *simulation);

/* Copies what it needs of one rank's schedule, which stays the caller's. Each rank's schedule once,
 * in any order. MUSTER_INVALID: a peer out of range, or a second schedule for the same rank;
 * MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_simulation_add(struct muster_simulation *simulation,
                                                   const struct muster_schedule *schedule);

/* Generates and adds the schedules of all ranks, one after the other. plan->rank is ignored. */
MUSTER_CHECKED muster_status muster_simulation_add_all(struct muster_simulation *simulation,
                                                       size_t algorithm,
                                                       const struct muster_plan *plan);

/* A lower bound: no run takes less, with or without faults. After all schedules were added. */
MUSTER_CHECKED muster_status muster_simulation_bound_us(const struct muster_simulation *simulation,
                                                        double *ret_us);

/* True if for each rank's list of steps both simulations have the same number of ranks with that
 * list: the same kinds of steps, with the same sizes, over links of the same levels. They may
 * differ in where data is, in which rank does which steps, and in the peers. Both have the same
 * topology, and all schedules were added. */
bool muster_simulation_is_alike(const struct muster_simulation *one,
                                const struct muster_simulation *other);

/* The run stops after this time; 0: no limit. To be called before the run. */
void muster_simulation_limit(struct muster_simulation *simulation, double limit_us);

/* Runs, once, after all schedules were added. A dead link or a deadlock is a result, not an error.
 * MUSTER_INVALID: a schedule is missing, or the two ends of a message differ in size; MUSTER_FATAL:
 * no memory. */
MUSTER_CHECKED muster_status muster_simulation_run(struct muster_simulation *simulation,
                                                   struct muster_simulation_result *ret_result);

/* After the run: when the rank finished; -1 if it did not. */
double muster_simulation_finish_us(const struct muster_simulation *simulation, uint32_t rank);

/* After a run with trace: the times of the rank's steps, in the order of its schedule. Borrowed
 * from the simulation. */
const struct muster_step_times *muster_simulation_times(const struct muster_simulation *simulation,
                                                        uint32_t rank);

/* Creates, runs and destroys a simulation without faults: the time that the collective takes. With
 * a limit_us above 0 the simulation stops there, and a longer time is only known to be longer: the
 * result is some time above the limit. */
MUSTER_CHECKED muster_status muster_simulate_us(size_t algorithm, const struct muster_plan *plan,
                                                size_t element_size_bytes,
                                                const struct muster_cost_model *model,
                                                double limit_us, double *ret_us);

#endif
