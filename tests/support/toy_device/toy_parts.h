/* What the files of the toy device share. */
#ifndef MUSTER_TESTS_SUPPORT_TOY_DEVICE_TOY_PARTS_H
#define MUSTER_TESTS_SUPPORT_TOY_DEVICE_TOY_PARTS_H

#include "worker/device/devices.h"

/* Where the device touches these bytes, which may be the host's. */
char *toy_reach(const void *data);

/* toy_groups.c */
extern const struct muster_group_ops toy_group_ops;

#endif
