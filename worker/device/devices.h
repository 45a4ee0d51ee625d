/*
 * The registry of devices: whose memory an address is. No other file knows all devices.
 *
 * Threads: any.
 *
 * May use: base, trace, and of collectives the words and kernels.
 */
#ifndef MUSTER_WORKER_DEVICE_DEVICES_H
#define MUSTER_WORKER_DEVICE_DEVICES_H

#include "worker/device/device.h"

enum { MUSTER_DEVICES_MAX = 8 };

/* Whether the process can have memory that is not the host's. Quick: without it no address has to
 * be looked for. */
bool muster_devices_active(void);

/* Finds the allocation of an address. False: it is memory of the host, or NULL. */
bool muster_device_find(const void *data, struct muster_device_memory *ret_memory);

/* Copies between memory of any kind, after the work that the program has put on the default stream.
 * Blocks. MUSTER_FATAL: the device's name of the error. */
MUSTER_CHECKED muster_status muster_devices_copy(void *to, const void *from, size_t size_bytes);

/* Memory of the host. */
const struct muster_device *muster_devices_host(void);

/* The device of the first place that is not memory of the host; else the host. */
const struct muster_device *muster_device_of_places(const struct muster_device_place *places,
                                                    size_t count);

/* Adds a device behind the rows of the registry, for the life of the process: for tests. Borrowed.
 * MUSTER_INVALID: there are MUSTER_DEVICES_MAX already. */
MUSTER_CHECKED muster_status muster_devices_add(const struct muster_device *device);

#endif
