/*
 * The context of a process set: of some members of a communicator, who create it while the job
 * runs, or who have it from the generation before.
 *
 * Link figures and tuning are the communicator's: nothing is measured. Members that are all on one
 * host set up shared memory.
 *
 * May use: communicator, set_exchange, context, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_PROCESS_SET_H
#define MUSTER_WORKER_COMMUNICATOR_PROCESS_SET_H

#include "worker/communicator/communicator.h"
#include "worker/communicator/set_exchange.h"

/* Creates the context of a set; all its members call it. `exchange` but for fabric, generation and
 * deadline is the caller's. free_candidates: bit i: no other set of this member has candidate i
 * (set_numbers.h). *ret_candidate: the one that the set has got. The context is the caller's, to be
 * destroyed before the communicator. Any thread. Blocks. Statuses: those of muster_set_agree(). */
MUSTER_CHECKED muster_status muster_communicator_create_set(
    struct muster_communicator *communicator, struct muster_set_exchange exchange,
    uint8_t free_candidates, uint32_t *ret_candidate, struct muster_context **ret_context,
    uint32_t *ret_suspect);

/* The same without an exchange, at the beginning of a generation, for a set of which all members
 * know that they all have it; `number` is its context's. */
MUSTER_CHECKED muster_status muster_communicator_keep_set(struct muster_communicator *communicator,
                                                          const char *name, uint32_t number,
                                                          const uint32_t *members, uint32_t count,
                                                          struct muster_context **ret_context,
                                                          uint32_t *ret_suspect);

#endif
