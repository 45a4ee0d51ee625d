/*
 * The lists with which this member creates process sets, for members that have other lists: when
 * the exchange of a set's members (set_exchange.h) has found out that two of them disagree, each
 * asks the other for its list, to say in what they differ.
 *
 *   question   a message without data; its call has type uint8, and as root and count the context
 *              and sequence of the exchange
 *   answer     the list, as uint32; type uint32, root and count as in the question. Empty: the
 *              member does not know such a list any more
 *
 * A member answers whenever it drives progress, also if it has created the set long ago.
 *
 * May use: set_difference, set_numbers, fabric, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_SET_LISTS_H
#define MUSTER_WORKER_COMMUNICATOR_SET_LISTS_H

#include "worker/base/status.h"
#include "worker/fabric/fabric.h"

enum {
    MUSTER_SET_LISTS_KEPT = 256,      /* the last ones of a generation */
    MUSTER_SET_LISTS_ANSWER_MS = 1000 /* then the member asked is busy, and the text stays short */
};

struct muster_set_lists;

/* Of one generation, which has begun. size: its members. */
MUSTER_CHECKED muster_status muster_set_lists_create(struct muster_fabric *fabric,
                                                     uint64_t generation, uint32_t own,
                                                     uint32_t size,
                                                     struct muster_set_lists **ret_lists);
/* Accepts NULL. */
void muster_set_lists_destroy(struct muster_set_lists *lists);

/* This member is about to create a set with this list. Any thread. */
void muster_set_lists_remember(struct muster_set_lists *lists, const char *name, uint32_t creation,
                               const uint32_t *members, uint32_t count);

/* The exchange has ended with MUSTER_INVALID, whose text names members that disagree: asks them,
 * and replaces the text by one that says in what their lists and this member's differ. Blocks for
 * MUSTER_SET_LISTS_ANSWER_MS at most for each. Any thread. */
void muster_set_lists_explain(struct muster_set_lists *lists, const char *name, uint32_t creation);

#endif
