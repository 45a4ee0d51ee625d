/*
 * The gradients of well-known models: their names and float32 elements, in the order in which a
 * backward pass has them ready (within a layer the bias first). So the last one is the first that
 * the next forward pass uses.
 */
#ifndef MUSTER_WORKER_CLI_BENCH_STEP_MODELS_H
#define MUSTER_WORKER_CLI_BENCH_STEP_MODELS_H

#include "worker/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { MUSTER_MODEL_NAME_SIZE = 64, MUSTER_MODEL_TENSORS_MAX = 4096 };

struct muster_model_tensor {
    char name[MUSTER_MODEL_NAME_SIZE]; /* as the model's authors call it */
    uint32_t elements;
};

struct muster_model {
    struct muster_model_tensor *tensors; /* owned [count] */
    size_t count;
    uint64_t elements; /* of all tensors */
};

/* "resnet50", "bert", "gpt2", "vgg16"; "ones:161" is 161 tensors of one element. MUSTER_INVALID:
 * there is no such model. */
MUSTER_CHECKED muster_status muster_model_init(const char *name, struct muster_model *ret_model);
void muster_model_finish(struct muster_model *model);

#endif
