/*
 * Links of several connections, some of which are cut in the middle of traffic, again and again:
 * large and small messages go both ways, and all of them arrive once and whole.
 */
#ifndef MUSTER_TESTS_CONFORMANCE_FAULT_INJECTOR_H
#define MUSTER_TESTS_CONFORMANCE_FAULT_INJECTOR_H

#include "tests/conformance/rig.h"

struct fault_injection {
    const struct rig_transport *transport;
    uint32_t connections; /* that its links have */
    uint32_t times;       /* that some are cut */
    /* Cuts so many of them, chosen by chance, and gives how many it were. */
    uint32_t (*cut)(uint32_t count, unsigned *seed);
    /* When both ends have noticed, and messages went meanwhile. NULL: nothing is to be mended. */
    void (*mend)(void);
};

/* Fails the test if a message does not arrive, if the link is lost, or if what was cut is not
 * opened again. Prints its seed. */
void fault_injector_run(const struct fault_injection *wish);

/* Shuts TCP connections down that this process has with itself: a way to cut. */
uint32_t fault_injector_shut_down(uint32_t count, unsigned *seed);

#endif
