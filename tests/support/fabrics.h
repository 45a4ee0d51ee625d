/* A fabric for tests: with the transports that the test names, on the loopback. */
#ifndef MUSTER_TESTS_SUPPORT_FABRICS_H
#define MUSTER_TESTS_SUPPORT_FABRICS_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

struct fabric_wish {
    /* The required transports, "shm,tcp": rows of the registry or of the tests' own table. NULL:
     * those of the options. */
    const char *transports;
    /* The options that transports parse. `listen` NULL is 127.0.0.1, 0 TCP connections are 1. */
    muster_options options;
    uint32_t silence_ms;                 /* of TCP; 0: the default */
    struct muster_fabric_options fabric; /* without settings of transports */
};

MUSTER_CHECKED muster_status fabrics_make(const struct fabric_wish *wish,
                                          struct muster_fabric **ret_fabric);

#endif
