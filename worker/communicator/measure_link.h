/*
 * Link figures: what two ranks find out about what is between them. Both call the same functions in
 * the same order.
 *
 * May use: executor, fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_LINK_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_LINK_H

#include "worker/fabric/fabric.h"

enum {
    MUSTER_MEASURE_MESSAGE_BYTES = 256 << 10, /* the largest message */
    MUSTER_MEASURE_FLYING = 3,                /* at the same time */
};

struct muster_measure_pair {
    struct muster_fabric *fabric; /* borrowed */
    uint64_t generation;
    uint32_t context;  /* number of a context that nobody else uses between these two */
    uint32_t ranks[2]; /* global, rising */
    uint32_t index;    /* of this rank */
    uint64_t sequence; /* of the last operation; counted here */
    const char *in;    /* [MUSTER_MEASURE_MESSAGE_BYTES] what is sent; borrowed */
    char *out;         /* as many for each that flies; borrowed */
    int64_t deadline_ns;
};

/* An empty message each way at the same time, as cost.h defines both figures. */
MUSTER_CHECKED muster_status muster_measure_latency(struct muster_measure_pair *pair,
                                                    double *ret_latency_us, double *ret_posting_us,
                                                    uint32_t *ret_suspect);

/* The rate of what arrives here; NAN on the lower rank, which only sends. Takes up to 7 ms, or two
 * messages of 32 KiB if those take longer. Both ways, with others that share something and begin at
 * about the same time, it is what arrives here of what all of them get together; up to 14 ms, or
 * two messages of 64 KiB. The statuses are those of muster_operation_run(). */
MUSTER_CHECKED muster_status muster_measure_rate(struct muster_measure_pair *pair, bool both_ways,
                                                 double *ret_GBps, uint32_t *ret_suspect);

#endif
