/* A large message from rank 1 to rank 0 of a rig, and a fault in its middle. One at a time. */
#ifndef MUSTER_TESTS_CONFORMANCE_RIG_FLOW_H
#define MUSTER_TESTS_CONFORMANCE_RIG_FLOW_H

#include "tests/conformance/rig.h"

enum { RIG_FLOW_BYTES = 8 << 20, RIG_FLOW_SEQUENCE = 5, RIG_FLOW_SEED = 7 /* of rig_fill() */ };

struct rig_flow {
    unsigned char *out, *in;
    void (*strike)(void); /* called once by the receiver, when less than half has come; or NULL */
    bool struck;
    muster_status statuses[2]; /* how it ended, by rank */
    char reasons[2][MUSTER_ERROR_MAX];
};
extern struct rig_flow rig_flow;

void rig_flow_start(void (*strike)(void));
void rig_flow_finish(void);

/* The receiver's consume. */
void rig_flow_consume(struct muster_transfer *transfer, uint64_t offset, const void *data,
                      size_t size);

/* For rig_run(): moves it. Whose link ends has it reported, and the other hears of it: as the
 * service does it. */
char *rig_flow_transfer(struct rig *rig, uint32_t rank, void *user);

/* Moves it, with the fault. It must end at both ranks, and one must say these words. */
void rig_flow_expect_lost(struct rig *rig, const char *words);
/* The next generation moves it without a fault; or the one after that, because a link may be
 * noticed to be broken as late as that. */
void rig_flow_expect_recovered(struct rig *rig);
/* Moves it without a fault. All of it must come. */
void rig_flow_expect_moved(struct rig *rig);

#endif
