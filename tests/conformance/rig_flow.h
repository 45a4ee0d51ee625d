/* A large message from rank 1 to rank 0 of a rig, with a fault in its middle. One at a time. */
#ifndef MUSTER_TESTS_CONFORMANCE_RIG_FLOW_H
#define MUSTER_TESTS_CONFORMANCE_RIG_FLOW_H

#include "tests/conformance/rig.h"

enum { RIG_FLOW_BYTES = 8 << 20, RIG_FLOW_SEQUENCE = 5, RIG_FLOW_SEED = 7 /* of rig_fill() */ };

struct rig_flow {
    unsigned char *out, *in;
    void (*inject_fault)(
        void); /* the fault: called once by the receiver, before half has arrived; or NULL */
    bool injected;
    muster_status statuses[2]; /* of the operation, by rank */
    char reasons[2][MUSTER_ERROR_MAX];
};
extern struct rig_flow rig_flow;

void rig_flow_start(void (*inject_fault)(void));
void rig_flow_finish(void);

/* The receiver's consume function. */
void rig_flow_consume(struct muster_transfer *transfer, uint64_t offset, const void *data,
                      size_t size);

/* For rig_run(): transfers the message. A rank that fails revokes the generation of the other one,
 * as the service would. */
char *rig_flow_transfer(struct rig *rig, uint32_t rank, void *user);

/* Transfers the message with the fault. The operation must end at both ranks, and one error text
 * must have these words. */
void rig_flow_expect_lost(struct rig *rig, const char *words);
/* Transfers the message without a fault in the next generation; or in the one after that, because a
 * broken link may be noticed as late as that. */
void rig_flow_expect_recovered(struct rig *rig);
/* Transfers the message without a fault. It must arrive. */
void rig_flow_expect_moved(struct rig *rig);

#endif
