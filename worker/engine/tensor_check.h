/* Checks a tensor before it is submitted, and describes it to the other ranks. Whatever could make
 * this rank's operation fail alone has to be found here: the others would wait for it. */
#ifndef MUSTER_WORKER_ENGINE_TENSOR_CHECK_H
#define MUSTER_WORKER_ENGINE_TENSOR_CHECK_H

#include "worker/engine/agree/description.h"

/* MUSTER_INVALID names the tensor and the field. */
MUSTER_CHECKED muster_status muster_tensor_check(const muster_tensor *tensor, uint32_t ranks);

/* Of a tensor that has passed the check. */
struct muster_description muster_tensor_describe(const muster_tensor *tensor, bool reproducible);

/* A number for the group of these tensors, not 0; the same on all ranks. */
uint64_t muster_tensor_group_number(const muster_tensor *tensors, size_t count, uint32_t flags);

#endif
