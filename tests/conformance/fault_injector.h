/*
 * Links of several connections, some of which are cut in the middle of traffic, repeatedly. Large
 * and small messages go both ways; each must arrive once and whole.
 */
#ifndef MUSTER_TESTS_CONFORMANCE_FAULT_INJECTOR_H
#define MUSTER_TESTS_CONFORMANCE_FAULT_INJECTOR_H

#include "tests/conformance/rig.h"

struct fault_injection {
    const struct rig_transport *transport;
    uint32_t connections; /* of its links */
    uint32_t times;       /* faults */
    /* Cuts so many connections, chosen at random; returns their number. */
    uint32_t (*cut)(uint32_t count, unsigned *seed);
    /* Called after both ends have noticed a fault and a round has passed. May be NULL. */
    void (*repair)(void);
};

/* Fails the test if a message does not arrive, if the link is lost, or if a connection that was cut
 * is not opened again. Prints its seed. */
void fault_injector_run(const struct fault_injection *injection);

/* For `cut`: shuts down TCP connections of this process with itself. */
uint32_t fault_injector_shut_down(uint32_t count, unsigned *seed);

#endif
