/* The devices of the tests, one row each: memory of each device of the library's registry, and of
 * devices that only tests have. */
#ifndef MUSTER_TESTS_SUPPORT_DEVICES_H
#define MUSTER_TESTS_SUPPORT_DEVICES_H

#include "tests/support/sweep.h"

struct test_device {
    const char *name;
    /* Called once, before the other functions. */
    void (*start)(void);
    /* Memory by the address that the library is called with, and that the test may not touch. */
    void *(*allocate)(size_t size_bytes);
    void (*release)(void *memory);
    /* Where the test may touch the same byte, and the reverse; NULL: it is no such memory. */
    void *(*alias)(const void *memory);
    void *(*of_alias)(const void *alias);
};

/* NULL: there is no such row. The device is started. */
const struct test_device *devices_start(const char *name);

/* Buffers of sweeps: those of odd ranks and all outputs are memory of the device, the others of the
 * host. */
const struct sweep_memory *devices_memory(const struct test_device *device);

#endif
