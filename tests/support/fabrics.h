/* A fabric as tests make it: of the transports that they name, at loopback. */
#ifndef MUSTER_TESTS_SUPPORT_FABRICS_H
#define MUSTER_TESTS_SUPPORT_FABRICS_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

struct fabric_wish {
    /* Those that it uses and has to have, "shm,tcp"; NULL: those that the options ask for. Rows of
     * the registry, and of the tests' own. */
    const char *transports;
    /* What the transports parse of them. `listen` NULL is 127.0.0.1, 0 TCP connections are 1. */
    muster_options options;
    uint32_t silence_ms;                 /* of TCP; 0: as usual */
    struct muster_fabric_options fabric; /* without settings of transports */
};

MUSTER_CHECKED muster_status fabrics_make(const struct fabric_wish *wish,
                                          struct muster_fabric **ret_fabric);

#endif
