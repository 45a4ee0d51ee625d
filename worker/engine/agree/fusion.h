/*
 * Fusion: which tensors go together in one operation. A function of the tensors, their order and
 * the limit, so that all ranks that agree on these come to the same plan. Pure.
 */
#ifndef MUSTER_WORKER_ENGINE_AGREE_FUSION_H
#define MUSTER_WORKER_ENGINE_AGREE_FUSION_H

#include "worker/engine/agree/description.h"

/* Tensors that go together are operation `i` of the plan: tensors[starts[i]] up to
 * tensors[starts[i + 1]]. Zeroed to begin with; kept for its memory. */
struct muster_fusion_plan {
    uint32_t *tensors; /* owned [count] */
    uint32_t *starts;  /* owned [operations + 1] */
    uint32_t count, operations;
    uint32_t room; /* of both arrays */
};

void muster_fusion_plan_finish(struct muster_fusion_plan *plan);

/* Whether a tensor can be part of an operation with others at all. */
bool muster_description_fuses(const struct muster_description *description);

/* Plans `count` tensors in the given order. descriptions[i] is that of numbers[i]. Tensors that fit
 * together (kind, type, operation, factors; group, where one is alone) share an operation of at
 * most limit_bytes; the place of an operation is that of its first tensor. A tensor passes others
 * that it does not fit with. MUSTER_FATAL: no memory, and the plan is as it was. */
MUSTER_CHECKED muster_status muster_fusion_plan_make(
    struct muster_fusion_plan *plan, const uint32_t *numbers,
    const struct muster_description *const *descriptions, uint32_t count, uint64_t limit_bytes);

#endif
