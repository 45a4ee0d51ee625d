/*
 * The cost model: how long messages, reductions and copies take at each level of a job. Selection
 * and the simulator predict times with it. All ranks of a job hold the same figures, so their
 * predictions are equal.
 *
 * After LogGP (A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman: LogGP: incorporating long
 * messages into the LogP model, SPAA 1995). Each level has LogGP's latency (L), overhead (o, here
 * posting_us) and bandwidth (1/G), and beside them the bandwidth that ranks share.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_COST_H
#define MUSTER_COLLECTIVES_SELECT_COST_H

#include "collectives/algorithms/algorithm.h"

/* How far apart the two ends of a link are. */
enum muster_link_level {
    MUSTER_LEVEL_HOST = 0,  /* ranks of one host */
    MUSTER_LEVEL_RACK = 1,  /* hosts of one rack; all hosts, where no racks are given */
    MUSTER_LEVEL_WORLD = 2, /* between racks */
};
enum { MUSTER_LEVEL_COUNT = 3 };

/* "host", "rack", "world"; "unknown" for values out of range. */
const char *muster_level_name(unsigned level);

/* The links of one level. */
struct muster_link_figures {
    double latency_us;     /* of an empty message, one way: from the posting of both ends until the
                              receive is done; includes both postings */
    double posting_us;     /* the part of it for which one message keeps a rank busy, at each end */
    double bandwidth_GBps; /* of one rank's port in each direction, while no other rank sends */
    double shared_GBps;    /* host: of all messages within one host together; rack: of a host's
                              uplink, in each direction; world: of a rack's uplink likewise */
};

/* One rank's core; rates count the bytes of the result. */
struct muster_core_figures {
    double reduce_GBps;
    double copy_GBps;
    uint32_t cores;       /* that the ranks of a host share; 0: each rank has its own */
    uint32_t one_machine; /* 1: all hosts are really one machine and share these cores; else 0 */
};

struct muster_cost_model {
    struct muster_core_figures core;
    struct muster_link_figures links[MUSTER_LEVEL_COUNT];
    uint64_t burst_bytes; /* that a host's uplink passes after a pause before it limits the rate, as
                             shaped links of virtual machines do; 0: none */
    uint64_t eager_bytes; /* larger messages wait until their receive is posted (rendezvous): one
                             more latency */
};

/* Figures of an ordinary machine, used until the links have been measured. */
extern const struct muster_cost_model muster_cost_model_default;

/* For models that come from outside. MUSTER_INVALID: a figure is not finite or negative, or a rate
 * is not above 0; the text names it. */
MUSTER_CHECKED muster_status muster_cost_model_check(const struct muster_cost_model *model);

/* How long so many elements take at this rate; 1 GB/s is 1000 bytes in a microsecond. */
double muster_cost_bytes_us(uint64_t elements, size_t element_size_bytes, double rate_GBps);

/* An estimate by the algorithm's formula, for jobs that are too large to be simulated while a call
 * waits. The plan must pass muster_plan_check(). */
double muster_cost_formula_us(size_t algorithm, const struct muster_plan *plan,
                              size_t element_size_bytes, const struct muster_cost_model *model);

#endif
