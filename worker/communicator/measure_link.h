/*
 * Link figures: what two ranks measure about the link between them. Both call the same functions in
 * the same order.
 *
 * May use: executor, fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_LINK_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_LINK_H

#include "worker/fabric/fabric.h"

enum {
    MUSTER_MEASURE_MESSAGE_BYTES = 256 << 10, /* the largest message */
    MUSTER_MEASURE_IN_FLIGHT = 3,             /* messages of a stream at the same time */
};

struct muster_measure_pair {
    struct muster_fabric *fabric; /* borrowed */
    uint64_t generation;
    uint32_t context;  /* a context number that no other traffic of these two uses */
    uint32_t ranks[2]; /* global, in the order of the topology */
    uint32_t index;    /* of this rank in `ranks` */
    uint64_t sequence; /* of the last operation; counted here */
    const char *in;    /* [MUSTER_MEASURE_MESSAGE_BYTES] what is sent; borrowed */
    char *out;         /* as many for each message in flight; borrowed */
    int64_t deadline_ns;
};

/* The time of an empty message each way at once, and the processor time that sending one takes: as
 * cost.h defines latency and posting. Blocks. The statuses are those of muster_operation_run(). */
MUSTER_CHECKED muster_status muster_measure_latency(struct muster_measure_pair *pair,
                                                    double *ret_latency_us, double *ret_posting_us,
                                                    uint32_t *ret_suspect);

/* The rate at which data arrives at this rank. The statuses are those of muster_operation_run().
 * - One way: the rate of the link for this pair alone. NAN on the lower rank, which only sends.
 *   Takes up to 7 ms, or two messages of 32 KiB if those take longer.
 * - Both ways, while other pairs that share a resource (measure.h) begin at about the same time:
 * this rank's part of what all of them get together. Takes up to 26 ms, or two messages of 64 KiB.
 */
MUSTER_CHECKED muster_status muster_measure_rate(struct muster_measure_pair *pair, bool both_ways,
                                                 double *ret_GBps, uint32_t *ret_suspect);

#endif
