/* The groups of GPUs: NCCL performs their steps. Private to this folder. */
#ifndef MUSTER_WORKER_DEVICE_CUDA_NCCL_GROUPS_H
#define MUSTER_WORKER_DEVICE_CUDA_NCCL_GROUPS_H

#include "worker/device/group.h"

extern const struct muster_group_ops muster_nccl_groups;

/* A communicator was left behind: its kernel may run for ever, so that what waits for the whole
 * GPU, such as the release of memory, would not return. */
bool muster_nccl_is_hanging(void);

#endif
