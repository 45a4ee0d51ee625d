/*
 * Compressed operations: a schedule that counts packs (collectives/call/compression.h) runs on
 * buffers of float32.
 *
 *   INPUT    the caller's elements. Packs are made of what is sent from there, before the first
 *            round; what is reduced or copied from there is encoded at that time.
 *   OUTPUT   packs. What arrives last at a place is decoded to the caller's elements as it
 *   SCRATCH  arrives, the rest of OUTPUT after the last round. What is sent on is the same bytes.
 *
 * Private to the executor. May use: fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_PACKS_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_PACKS_H

#include "worker/executor/executor_parts.h"

/* What an operation knows of its schedule, for compressed launches. */
struct muster_pack_plan {
    struct muster_span *sent; /* [sent_count] of INPUT, sent from there */
    size_t sent_count;
    struct muster_span *left; /* [left_count] of OUTPUT, not decoded on arrival */
    size_t left_count;
    bool *decodes; /* [step_count] a receive whose packs are decoded as they arrive */
};

/* MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_pack_plan_create(const struct muster_schedule *schedule,
                                                     struct muster_pack_plan **ret_plan);
/* Accepts NULL. */
void muster_pack_plan_destroy(struct muster_pack_plan *plan);

/* Binds the launch's packs, and encodes what is sent from INPUT. */
void muster_operation_prepare_packs(struct muster_operation *operation);

/* Completes a transfer that is prepared for elements. */
void muster_message_prepare_packs(struct muster_step_message *message);

/* A local step. */
void muster_operation_step_packs(const struct muster_operation *operation,
                                 const struct muster_step *step);

/* Decodes what is left, when the operation has succeeded. */
void muster_operation_finish_packs(const struct muster_operation *operation);

#endif
