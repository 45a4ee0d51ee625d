/*
 * The exchange by which the members of a process set create it: they find out whether they have
 * the same list of members, agree on the number of the set's context, and adopt the link figures of
 * the set's first member.
 *
 * It is one small allreduce among the members alone, whose key follows from the name of the set.
 * Members with different lists find out by its signature (fabric/signatures.h), also when some
 * of them have finished it long ago.
 *
 * May use: set_numbers, figures, executor, fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_SET_EXCHANGE_H
#define MUSTER_WORKER_COMMUNICATOR_SET_EXCHANGE_H

#include "collectives/select/cost.h"
#include "worker/fabric/fabric.h"

/* Borrowed for the call. */
struct muster_set_exchange {
    struct muster_fabric *fabric;
    uint64_t generation;
    const char *name;
    uint32_t creation;       /* how often the name has been created in this generation, from 1 */
    const uint32_t *members; /* [count] global ranks, in the same order on all members */
    uint32_t count;
    uint32_t rank; /* this member's place among them */
    int64_t deadline_ns;
};

/* In: what this member has; out: what all members have agreed on. */
struct muster_set_terms {
    uint8_t free_candidates; /* bit i: candidate i is free here; out: the lowest one that is free on
                                all members is `candidate` */
    uint32_t candidate;
    struct muster_cost_model model; /* out: that of the first member; so is `autotunes` */
    bool autotunes;
};

/* Blocks. MUSTER_INVALID: the members disagree about the list, or no candidate is free on all of
 * them; all members get it. MUSTER_REJOIN: a member died, or was missing at the deadline;
 * ret_suspect as in muster_context_run(). */
MUSTER_CHECKED muster_status muster_set_agree(const struct muster_set_exchange *exchange,
                                              struct muster_set_terms *terms,
                                              uint32_t *ret_suspect);

#endif
