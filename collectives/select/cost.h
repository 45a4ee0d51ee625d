/*
 * The cost model: what messages, reductions and copies take at each level of a job. Selection and
 * the simulator predict with it. All ranks of a job hold the same figures, so they predict alike.
 *
 * After LogGP (A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman: LogGP: incorporating long
 * messages into the LogP model, SPAA 1995), with its latency, overhead and bandwidth at each level,
 * and what is shared named beside them.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_COST_H
#define MUSTER_COLLECTIVES_SELECT_COST_H

#include "collectives/algorithms/algorithm.h"

/* Of a link: how far apart its two ends are. */
enum muster_link_level {
    MUSTER_LEVEL_HOST = 0,  /* ranks of one host */
    MUSTER_LEVEL_RACK = 1,  /* hosts of one rack; all hosts, where no rack is named */
    MUSTER_LEVEL_WORLD = 2, /* between racks */
};
enum { MUSTER_LEVEL_COUNT = 3 };

/* "host", "rack", "world"; "unknown" for values out of range. */
const char *muster_level_name(unsigned level);

/* What links of one level can do. */
struct muster_link_figures {
    double latency_us;     /* of an empty message, one way, from both ends' posting to the receive's
                              being done; postings included */
    double posting_us;     /* of it, what one message keeps a rank busy at each end */
    double bandwidth_GBps; /* of one rank's port, each way, the others being still */
    double shared_GBps;    /* host: of all messages within one host together; rack: of a host's
                              uplink, each way; world: of a rack's uplink, each way */
};

/* What one rank's core does, in bytes of result. */
struct muster_core_figures {
    double reduce_GBps;
    double copy_GBps;
    uint32_t cores;       /* that the ranks of a host share; 0: each rank has its own */
    uint32_t one_machine; /* 1: all hosts are one in truth, and share these cores; or 0 */
};

struct muster_cost_model {
    struct muster_core_figures core;
    struct muster_link_figures links[MUSTER_LEVEL_COUNT];
    uint64_t burst_bytes; /* that a host's uplink lets through after a pause before its rate holds,
                             as shaped links of virtual machines do; 0: none */
    uint64_t eager_bytes; /* larger messages leave only when the receiver has said that it is ready:
                             one more latency */
};

/* Figures of an ordinary machine, used until measured ones are there. */
extern const struct muster_cost_model muster_cost_model_default;

/* MUSTER_INVALID: a figure is not finite, negative, or a rate that is not above 0; the text names
 * it. For models that come from outside. */
MUSTER_CHECKED muster_status muster_cost_model_check(const struct muster_cost_model *model);

/* Bytes at this rate take so long; 1 GB/s is 1000 bytes in a microsecond. */
double muster_cost_bytes_us(uint64_t elements, size_t element_size_bytes, double rate_GBps);

/* By the algorithm's formula: an estimate, for jobs that are too large to be simulated when a call
 * waits. The plan must pass muster_plan_check(). */
double muster_cost_formula_us(size_t algorithm, const struct muster_plan *plan,
                              size_t element_size_bytes, const struct muster_cost_model *model);

#endif
