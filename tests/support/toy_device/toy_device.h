/* The toy device of the tests, for those that use its groups. */
#ifndef MUSTER_TESTS_SUPPORT_TOY_DEVICE_TOY_DEVICE_H
#define MUSTER_TESTS_SUPPORT_TOY_DEVICE_TOY_DEVICE_H

#include "worker/device/devices.h"

extern const struct muster_device toy_device;

/* Group steps that all groups of this process have performed so far. */
uint64_t toy_groups_performed(void);

#endif
