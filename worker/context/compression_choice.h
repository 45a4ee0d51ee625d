/*
 * Whether calls of a kind are compressed, and by which algorithm: they are if that is predicted to
 * be faster. Not in memory that ranks share, where nothing travels. All ranks decide alike.
 *
 * May use: algorithm_choice, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_COMPRESSION_CHOICE_H
#define MUSTER_WORKER_CONTEXT_COMPRESSION_CHOICE_H

#include "collectives/call/request.h"
#include "worker/context/algorithm_choice.h"

/* plan: of the call without compression. key: says which compression is asked for, and the
 * algorithm if one is named. *ret_packing is zeroed if the calls are not compressed. */
MUSTER_CHECKED muster_status muster_compression_choose(struct muster_choices *choices,
                                                       const struct muster_request_key *key,
                                                       const struct muster_plan *plan,
                                                       struct muster_packing *ret_packing,
                                                       size_t *ret_algorithm);

/* The plan of the same call compressed. It has no shared memory. Nor need it keep the input: as
 * partial results are packs, nothing but results gets to the caller's output anyway. */
struct muster_plan muster_compression_plan(const struct muster_plan *plan,
                                           const struct muster_packing *packing);

#endif
